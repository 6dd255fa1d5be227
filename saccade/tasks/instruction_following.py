"""Instruction following: the actions of a walker in a grid world that does what a text says.

Shapes: B episodes, T steps, N cells of a view, W words of landmarks, A actions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from saccade import core
from saccade.atomic_io import read_json, write_json
from saccade.core import (
    AttentionMap,
    AttentionMaps,
    Base,
    Evaluation,
    ForwardTrace,
    GridAxis,
    InputLength,
    Metric,
    Prediction,
    PredictOptions,
    Progress,
    Role,
    Split,
    StepAxis,
    Table,
    Text,
    World,
)
from saccade.core.callback import ignore_progress
from saccade.data.batching import BucketedBatches, length_groups
from saccade.data.fingerprints import fingerprint
from saccade.data.formats.instructions import Episodes, InstructionSettings, read_episode_files, read_episodes
from saccade.data.tables.problems import BadRows, Problem
from saccade.errors import UsageError
from saccade.metrics.alignment import mean_heads
from saccade.models.policy.following import FollowerConfig, InstructionFollower, Observations
from saccade.models.text.bert import EncoderInputs
from saccade.nn.probe import watch
from saccade.tasks._encoder.inputs import EncodedText, EncoderBatch, Lengths, pad_texts, to_device
from saccade.tasks._parallel import parallel_map
from saccade.tasks._vision.texts import EncodedColumn, TextReader, write_tokenizer
from saccade.tasks._worlds.walks import Walk, follow, parse_map, to_image
from saccade.worlds.drawing import draw_map, draw_view
from saccade.worlds.grid import ACTIONS, TERRAIN, GridWorld, Terrain, observe, parse_grid, terrain, walk

LANDMARKS = "landmarks.json"
BATCH = 128  # episodes of a batch at inference
QUICK_ROWS = 200  # episodes of a quick evaluation
NAMED = 20  # held-out combinations that are listed


@dataclass(frozen=True)
class FollowingConfig:
    """All settings of instruction following except those of the training loop."""

    data: InstructionSettings = field(default_factory=InstructionSettings)
    model: FollowerConfig = field(default_factory=FollowerConfig)
    vocabulary_size: int = 2000
    """number of word pieces of the instructions"""
    max_length: int = 96
    """maximum number of tokens of an instruction; longer ones are truncated"""
    max_steps: int = 0
    """actions after which an episode that has not stopped is over; 0: twice the longest of the training data"""
    batch_steps: int = 512
    """actions per training step, padding included"""
    micro_batches: int = 1
    """micro-batches per step, to save memory (gradient accumulation); the result is the same"""

    def __post_init__(self) -> None:
        least = {"vocabulary_size": 1, "max_length": 8, "max_steps": 0, "batch_steps": 1, "micro_batches": 1}
        for name, minimum in least.items():
            if getattr(self, name) < minimum:
                raise ValueError(f"{name} must be at least {minimum}, but is {getattr(self, name)}")


@dataclass(frozen=True)
class FollowingBatch(EncoderBatch):
    """Instructions with what was seen before each action of the expert."""

    inputs: EncoderInputs
    cells: Tensor  # (B, T, N, W)
    heading: Tensor  # (B, T)
    previous: Tensor  # (B, T)
    targets: Tensor  # (B, T), -1 after the end of an episode


@dataclass(frozen=True, eq=False)
class Walks:
    """The episodes of one split as arrays."""

    episodes: Episodes
    texts: EncodedColumn
    terrains: list[Terrain]
    poses: list[NDArray[np.int64]]
    """row, column and heading before each action: (T, 3)"""

    def __len__(self) -> int:
        return len(self.episodes)


class Task(core.Task):
    """A policy that reads an instruction, and acts by what it has read and what it sees."""

    Config: ClassVar[type[Any]] = FollowingConfig
    loss_unit: ClassVar[str] = "nats"
    summary: ClassVar[str] = "follow instructions in a grid world"
    needs: ClassVar[str] = "maps with instructions and actions (JSON lines)"
    unit: ClassVar[str] = "actions"
    inputs = (
        World("map", check=parse_map, help='a JSON object with "map", "legend" and "start"'),
        Text("instruction"),
    )
    metric = Metric("success", True, "%")

    def __init__(self, config: FollowingConfig, reader: TextReader, landmarks: Sequence[str], max_steps: int) -> None:
        self.config, self.reader, self.tokenizer, self.max_steps = config, reader, reader.tokenizer, max_steps
        self.vocabulary = {word: number for number, word in enumerate((*TERRAIN, *landmarks))}
        self.model = InstructionFollower(config.model, reader.tokenizer.size, len(self.vocabulary), len(ACTIONS))
        self.splits: dict[Split, Walks] = {}

    def networks(self) -> dict[str, nn.Module]:
        return {"model": self.model}

    # Data

    @classmethod
    def prepare(
        cls, config: Any, data: Path, assets: Path, *, base: Base = None, progress: Progress = ignore_progress
    ) -> list[str]:
        if base is not None:
            raise UsageError("a task that follows instructions cannot start from pretrained weights; leave out base")
        train, valid = read_episodes(data, config.data)
        longest = max(len(episode.actions) for episode in train.items)
        landmarks = train.landmarks()
        write_json(assets / LANDMARKS, {"words": landmarks, "max_steps": config.max_steps or 2 * longest})
        notes = write_tokenizer(train.instructions, config.vocabulary_size, assets)
        notes.append(f"landmarks: {len(landmarks)} words; episodes have up to {longest} actions")
        return [*notes, *train.map_notes(valid), *held_out_notes(train, valid)]

    @classmethod
    def open(cls, config: Any, assets: Path) -> Self:
        described = read_json(assets / LANDMARKS)
        reader = TextReader.open(assets, config.max_length)
        return cls(config, reader, described["words"], described["max_steps"])

    def load_data(self, data: Path, *, eval_only: bool = False, progress: Progress = ignore_progress) -> list[str]:
        if eval_only:
            episodes = read_episode_files(data, self.config.data.encoding)
            self.splits = {Split.VALID: self.walks(episodes)}
            return [f"instructions: {len(episodes):,}"]
        train, valid = read_episodes(data, self.config.data)
        self.splits = {Split.TRAIN: self.walks(train), Split.VALID: self.walks(valid)}
        self.fingerprint = fingerprint((train, valid))
        return [f"instructions: {len(train):,} for training, {len(valid):,} for validation"]

    def walks(self, episodes: Episodes) -> Walks:
        """Return episodes as arrays; a landmark with a word that the training data do not have is refused."""
        for row, episode in enumerate(episodes.items):
            word = self.unknown_word(episode.world)
            if word:
                what, step = f"the landmark word '{word}'", "train a new model on data that have it"
                problem = Problem(
                    episodes.origins.file(row), int(episodes.origins.lines[row]), None, what, self._known, step
                )
                raise BadRows([problem])
        terrains = [terrain(episode.world, self.vocabulary) for episode in episodes.items]
        poses = [
            np.array(walk(cells.open, episode.world.start, episode.actions)[:-1], np.int64)
            for cells, episode in zip(terrains, episodes.items, strict=True)
        ]
        return Walks(episodes, self.reader.encode_column(episodes.instructions), terrains, poses)

    def unknown_word(self, world: GridWorld) -> str:
        """Return a word of a landmark that the model does not know; empty: there is none."""
        words = (word for name in world.legend.values() for word in name.split())
        return next((word for word in words if word not in self.vocabulary), "")

    @property
    def _known(self) -> str:
        return f"words of the training data ({', '.join(list(self.vocabulary)[len(TERRAIN) :][:NAMED])})"

    def source(self, split: Split, seed: int) -> BucketedBatches:
        walks = self.splits[split]
        counts = np.array([len(poses) for poses in walks.poses], dtype=np.int64)
        return BucketedBatches(
            Lengths(np.stack((np.zeros_like(counts), counts), axis=1)),
            lambda rows: self.collate(walks, rows),
            budget=self.config.batch_steps,
            seed=seed,
            micro_batches=self.config.micro_batches,
        )

    def collate(self, walks: Walks, rows: list[int]) -> FollowingBatch:
        steps, size = max(len(walks.poses[row]) for row in rows), self.config.model.view
        cells = np.zeros((len(rows), steps, size * size, len(self.vocabulary)), np.uint8)
        heading = np.zeros((len(rows), steps), np.int64)
        targets = np.full((len(rows), steps), -1, np.int64)
        for at, row in enumerate(rows):
            poses = walks.poses[row]
            cells[at, : len(poses)] = observe(walks.terrains[row], poses, size)
            heading[at, : len(poses)] = poses[:, 2]
            targets[at, : len(poses)] = walks.episodes.items[row].actions
        previous = np.concatenate((np.full((len(rows), 1), len(ACTIONS)), targets[:, :-1].clip(0)), axis=1)
        count = int((targets >= 0).sum())
        return FollowingBatch(
            rows=[walks.episodes.origins.describe(row) for row in rows],
            count=count,
            units=count,
            inputs=walks.texts.pad(rows),
            cells=torch.from_numpy(cells),
            heading=torch.from_numpy(heading),
            previous=torch.from_numpy(previous),
            targets=torch.from_numpy(targets),
        )

    # Training and inference

    def losses(self, batch: FollowingBatch, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        seen = Observations(batch.cells, batch.heading, batch.previous)
        yield "model", networks["model"](batch.inputs.ids, kept(batch.inputs), seen, batch.targets)

    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        """Evaluate whole episodes: the model acts until it stops, and must stop at the goal."""
        walks = self.splits[split]
        rows = list(range(0, len(walks), max(1, -(-len(walks) // QUICK_ROWS)) if quick else 1))
        items = [walks.episodes.items[row] for row in rows]
        walked = self.rollouts(
            [item.world for item in items],
            [walks.texts[row] for row in rows],
            progress,
            [walks.terrains[r] for r in rows],
        )
        reached = [walk.stopped and walk.end == item.goal for walk, item in zip(walked, items, strict=True)]
        exact = [walk.actions == item.actions for walk, item in zip(walked, items, strict=True)]
        values = {
            "success": 100 * float(np.mean(reached)),
            "exact": 100 * float(np.mean(exact)),
            "steps": float(np.mean([len(walk.actions) for walk in walked])),
            "expert_steps": float(np.mean([len(item.actions) for item in items])),
            "episodes": len(rows),
        }
        signatures = {"success": "stops at the goal", "exact": "the same actions as the expert"}
        tables = combination_table([item.held_out for item in items], reached)
        return Evaluation(values, signatures, tables, complete=len(rows) == len(walks))

    def rollouts(
        self,
        worlds: Sequence[GridWorld],
        texts: Sequence[EncodedText],
        progress: Progress = ignore_progress,
        terrains: Sequence[Terrain] | None = None,
    ) -> list[Walk]:
        """Return what the model does in each world, step by step."""
        cells = terrains or [terrain(world, self.vocabulary) for world in worlds]
        walked: dict[int, Walk] = {}

        def run(rows: list[int]) -> list[Walk]:
            starts = np.array([worlds[row].start for row in rows], np.int64)
            inputs = to_device(pad_texts([texts[row] for row in rows]), self.device())
            chosen = [cells[row] for row in rows]
            return follow(self.model, inputs.ids, kept(inputs), (chosen, starts), self.max_steps)

        batches = list(length_groups([len(text.ids) for text in texts], BATCH, BATCH * self.config.max_length))
        for number, (rows, results) in enumerate(zip(batches, parallel_map(run, batches), strict=True), 1):
            walked |= zip(rows, results, strict=True)
            progress(number / len(batches))
        return [walked[row] for row in range(len(worlds))]

    def predict(self, inputs: Sequence[Mapping[str, Any]], options: PredictOptions) -> Iterator[Prediction]:
        for first in range(0, len(inputs), BATCH):
            examples = inputs[first : first + BATCH]
            worlds = [parse_grid(example["map"]) for example in examples]
            for world in worlds:
                if word := self.unknown_word(world):
                    raise UsageError(f"map has the landmark word '{word}', expected {self._known}; rename the landmark")
            texts = self.reader.encode("instruction", [example["instruction"] for example in examples])
            walked = self.rollouts(worlds, texts)
            for example, world, text, steps in zip(examples, worlds, texts, walked, strict=True):
                yield self._prediction(example, world, text, steps, attention=options.attention)

    def _prediction(
        self, example: Mapping[str, Any], world: GridWorld, text: EncodedText, steps: Walk, *, attention: bool
    ) -> Prediction:
        goal = example["map"].get("goal")
        reward = None if goal is None else float(steps.stopped and list(steps.end) == list(goal))
        actions = tuple(ACTIONS[action] for action in steps.actions)
        scores = {"probability": float(np.mean(steps.probabilities)), "steps": float(len(actions))}
        notes = (*text.notes, *(() if steps.stopped else (f"it did not stop within {self.max_steps} actions",)))
        trace = (world, text, steps)
        maps = self.attention(world, text, steps) if attention else AttentionMaps()
        words = maps.get("words")
        alignment = None if words is None else mean_heads(words)
        output = core.ActionsOutput(actions, reward)
        return Prediction(example, output, scores, maps, alignment=alignment, trace=trace, notes=notes)

    def input_lengths(self, inputs: Mapping[str, Any], options: PredictOptions) -> list[InputLength]:
        return [self.reader.length("instruction", inputs["instruction"])]

    # Attention and explanations

    def retrace(self, world: GridWorld, text: EncodedText, steps: Walk) -> Iterator[list[Tensor]]:
        """Yield the logits (1, A) of each step of an episode after each hop, computed step by step."""
        device, poses = self.device(), np.array(steps.poses[:-1])
        cells = observe(terrain(world, self.vocabulary), poses, self.config.model.view)
        previous = [len(ACTIONS), *steps.actions[:-1]]
        seen = Observations(*(torch.as_tensor(value)[None].to(device) for value in (cells, poses[:, 2], previous)))
        ids = torch.tensor([text.ids], device=device)
        instruction, state = self.model.encode(ids, torch.ones_like(ids, dtype=torch.bool))
        for step in range(len(steps.actions)):
            logits, state = self.model.step(instruction, seen.at(step), state)
            yield logits

    @torch.no_grad()
    def attention(self, world: GridWorld, text: EncodedText, steps: Walk) -> AttentionMaps:
        """Return all attention maps of an episode: its actions over the words, and over the cells in sight."""
        views: dict[str, list[Tensor]] = {}
        with watch(self.model) as recorder:
            for _ in self.retrace(world, text, steps):
                for name, recorded in recorder.items():
                    if name.startswith("view"):  # other cells at every step
                        views.setdefault(name, []).append(recorded.rows()[0])
        size, words = self.config.model.view, self.reader.axis(text)
        labels = tuple(ACTIONS[action] for action in steps.actions)
        maps_of = tuple(to_image(draw_map(world, pose, steps.poses[:at])) for at, pose in enumerate(steps.poses[:-1]))
        seen = tuple(to_image(draw_view(world, pose, size)) for pose in steps.poses[:-1])
        maps = []
        for name, recorded in recorder.items():
            if name in views:
                queries, keys = StepAxis(Role.TARGET, labels, seen), GridAxis(Role.IMAGE, size, size, seen[0])
                maps.append(AttentionMap(name, torch.cat(views[name], dim=1).cpu(), queries, keys))
            elif name == "words":
                maps.append(AttentionMap(name, recorded.rows()[0].cpu(), StepAxis(Role.TARGET, labels, maps_of), words))
            else:
                maps.append(AttentionMap(name, recorded.rows()[0].cpu(), words, words))
        return AttentionMaps(maps)

    def rerun(self, prediction: Prediction, *, layers: bool = False) -> ForwardTrace:
        world, text, steps = prediction.trace
        hops = [torch.cat(parts) for parts in zip(*self.retrace(world, text, steps), strict=True)]
        named = tuple((f"view{number}", logits) for number, logits in enumerate(hops, 1)) if layers else ()
        positions = StepAxis(Role.TARGET, tuple(ACTIONS[action] for action in steps.actions))
        return ForwardTrace(hops[-1], steps.actions, positions, (self.reader.axis(text),), ACTIONS.__getitem__, named)

    def _shown(self) -> list[Mapping[str, Any]]:
        """Return the validation episodes that are shown during training."""
        items = self.splits[Split.VALID].episodes.items
        chosen = [items[row] for row in dict.fromkeys((0, len(items) // 2))]
        return [
            {"map": {**item.world.to_json(), "goal": list(item.goal)}, "instruction": item.instruction}
            for item in chosen
        ]

    def attention_snapshot(self) -> list[Prediction]:
        return list(self.predict(self._shown(), PredictOptions(attention=True)))

    def sample(self) -> str:
        lines = []
        for prediction in self.predict(self._shown(), PredictOptions()):
            assert isinstance(prediction.output, core.ActionsOutput)
            end = "reaches the goal" if prediction.output.reward else "misses the goal"
            lines.append(f"{prediction.inputs['instruction']} -> {prediction.text} ({end})")
        return "\n".join(lines)


def kept(inputs: EncoderInputs) -> Tensor:
    """Return which tokens of a batch are real (B, T)."""
    return torch.ones_like(inputs.ids, dtype=torch.bool) if inputs.keep is None else inputs.keep


def held_out_notes(train: Episodes, valid: Episodes) -> list[str]:
    """Return notes on what only the validation data have: combinations that the file names."""
    names = sorted({name for item in valid.items for name in item.held_out})
    if not names:
        return []
    listed = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
    seen = sorted({name for item in train.items for name in item.held_out})
    notes = [f"held-out combinations, only in validation: {listed}"]
    return [*notes, f"but training has these too: {', '.join(seen[:NAMED])}"] if seen else notes


def combination_table(names: Sequence[Sequence[str]], reached: Sequence[bool]) -> list[Table]:
    """Return the success by held-out combination, where there are any."""
    every = sorted({name for row in names for name in row})
    rows = []
    for name in every:
        results = [success for row, success in zip(names, reached, strict=True) if name in row]
        rows.append((name, f"{len(results):,}", f"{100 * float(np.mean(results)):.1f}"))
    return (
        [Table("success by held-out combination", ("combination", "episodes", "success"), tuple(rows))] if rows else []
    )
