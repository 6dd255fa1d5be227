"""Image policy: the action that an expert would take at the sight of a frame (behaviour cloning from pictures).

With a world or an environment, whole episodes are evaluated: the model acts, and sees what comes of it.
Shapes: B frames, T steps, A actions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from saccade.atomic_io import read_json, write_json
from saccade.core import (
    ActionsOutput,
    AttentionMap,
    AttentionMaps,
    Base,
    Evaluation,
    ForwardTrace,
    GridAxis,
    Image,
    Metric,
    Prediction,
    PredictOptions,
    Progress,
    Role,
    Split,
    StepAxis,
    World,
)
from saccade.core.callback import ignore_progress
from saccade.data.environments import Environments
from saccade.data.formats.image_rows import ImageRows, ImageSettings, read_image_rows
from saccade.data.images.augment import Augment
from saccade.data.images.decoded import decode_pictures
from saccade.data.images.pictures import Pictures
from saccade.data.splitting import SplitSettings, hold_out
from saccade.errors import DataError, UsageError
from saccade.metrics import classification
from saccade.metrics.returns import summarise
from saccade.models.policy.looking import ImagePolicy, ImagePolicyConfig
from saccade.models.vision.architectures import VisionConfig
from saccade.models.vision.resnet import ResNetConfig
from saccade.nn.probe import RecordedRow, watch
from saccade.tasks._encoder.inputs import EncoderBatch, check_outputs
from saccade.tasks._parallel import parallel_map
from saccade.tasks._vision.encoders import read_encoder, write_encoder
from saccade.tasks._vision.image_format import ImageFormat
from saccade.tasks._vision.task import ImageConfig, ImageExamples, ImageTask
from saccade.tasks._worlds.playing import Play, check_playable, evaluate_play, open_environments, parse_seed, play
from saccade.tasks._worlds.reaching import Reach, evaluate_reach, evaluation_scenes, rollout
from saccade.worlds.arm import ACTIONS, parse_scene

ASSET = "actions.json"
BATCH = 128  # frames of a batch at inference
QUICK = 4  # a quick evaluation has one episode of so many


@dataclass(frozen=True)
class PolicyConfig(ImageConfig):
    """All settings of an image policy except those of the training loop."""

    encoder: VisionConfig = field(default_factory=lambda: VisionConfig("cnn", ResNetConfig(widths=(48, 64), stride=1)))
    """image encoder that is trained from scratch"""
    model: ImagePolicyConfig = field(default_factory=ImagePolicyConfig)
    augment: Augment = field(default_factory=lambda: Augment(flip=False))
    """random changes of the training frames; a mirrored one would change what is left and right"""
    world: Literal["", "reach"] = ""
    """world in which whole episodes are evaluated; reach: an arm that touches a target; empty: frames alone"""
    environment: str = ""
    """environment of gymnasium in which whole episodes are evaluated, with discrete actions; its frames are its
    observations where these are pictures, else what it renders"""
    episodes: int = 200
    """episodes of an evaluation in the world or environment; a quick one has a quarter of them"""
    batch_size: int = 128
    """frames per step"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.episodes < 1:
            raise ValueError(f"episodes must be at least 1, but is {self.episodes}")
        if self.world and self.environment:
            raise ValueError(f"world must be empty with an environment, but is {self.world}")


@dataclass(frozen=True)
class FrameBatch(EncoderBatch):
    """Frames with the actions of the expert."""

    pixels: Tensor  # (B, 3, H, W)
    targets: Tensor  # (B,)


class Task(ImageTask):
    """A query that attends to the grid of an image encoder, and an output for each action."""

    Config: ClassVar[type[Any]] = PolicyConfig
    loss_unit: ClassVar[str] = "nats"
    summary: ClassVar[str] = "choose an action at the sight of an image"
    needs: ClassVar[str] = "images with actions and episodes"
    roles: ClassVar[tuple[str, ...]] = ("action", "episode")
    unit: ClassVar[str] = "frames"
    inputs = (
        Image("image", optional=True, help="a frame"),
        World("scene", optional=True, check=parse_scene, help="where an episode starts, in the world of the run"),
    )

    metric = Metric("success", True, "%")

    model: ImagePolicy

    def __init__(self, config: PolicyConfig, format: ImageFormat, actions: Sequence[str], model: ImagePolicy) -> None:
        super().__init__(config, format)
        self.actions, self.model = tuple(actions), model
        self.action_ids = {action: number for number, action in enumerate(actions)}
        if not config.world:
            self.metric = Metric("return", True) if config.environment else Metric("accuracy", True, "%")
        if config.environment:
            help = 'the seed of an episode in the environment of the run: {"seed": 3}'
            self.inputs = (self.inputs[0], World("scene", optional=True, check=parse_seed, help=help))
        self._environments: dict[int, Environments] = {}

    # Data

    @classmethod
    def train_defaults(cls, config: Any) -> list[str]:
        return ["train.precision=fastest"]

    @classmethod
    def read_rows(cls, data: Path, settings: ImageSettings, progress: Progress = ignore_progress) -> ImageRows:
        roles = (*cls.roles, "reward") if settings.reward_column else cls.roles
        return read_image_rows(data, roles, settings, progress)

    @classmethod
    def read(
        cls, settings: ImageSettings, data: Path, progress: Progress = ignore_progress
    ) -> tuple[ImageRows, ImageRows, list[str]]:
        """Return the frames for training and for validation; all frames of an episode are in one of them."""
        rows = cls.read_rows(data, settings, progress)
        if settings.valid or rows.parts is not None:
            return super().read(settings, data, progress)
        keys = list(rows.texts["episode"])
        split = SplitSettings(settings.valid_fraction)
        held_out = np.array(hold_out(keys, [""] * len(keys), split, rows.path, unit="episode"))
        train, valid = (rows.take(np.flatnonzero(chosen)) for chosen in (~held_out, held_out))
        return train, valid, train.notes()

    @classmethod
    def choose_format(cls, config: Any, pictures: Pictures, base: Base) -> ImageFormat:
        """Return how frames are read: all of each, since what is at the edge may matter."""
        chosen = super().choose_format(config, pictures, base)
        return ImageFormat(chosen.size, chosen.size, chosen.interpolation, "exact")

    @classmethod
    def prepare(
        cls, config: Any, data: Path, assets: Path, *, base: Base = None, progress: Progress = ignore_progress
    ) -> list[str]:
        train, valid, notes = cls.read(config.data, data, progress)
        counts = Counter([*train.texts["action"], *valid.texts["action"]])
        actions = list(ACTIONS) if config.world == "reach" else sorted(counts)
        owner = f"the world {config.world}" if config.world else "the training data"
        if config.environment:
            actions, owner = list(check_playable(config.environment)), config.environment
        if len(counts) < 2:
            raise DataError(f"{data}: every action is '{next(iter(counts))}', expected at least two; add other frames")
        for rows in (train, valid):
            check_actions(rows, actions, owner)
            if config.data.reward_column:
                recorded_returns(rows)
        format = cls.choose_format(config, train.pictures, base)
        write_json(assets / ASSET, {"actions": actions, "format": vars(format)})
        images = decode_pictures(train.pictures, format.resize, progress)
        notes += write_encoder(config, config.encoder, format.size, images, assets, base)
        episodes = [len(set(rows.texts["episode"])) for rows in (train, valid)]
        counted = f"episodes: {episodes[0]:,} for training, {episodes[1]:,} for validation"
        return [*notes, f"{counted}; {len(actions)} actions; frames are read as {format.size} x {format.size} pixels"]

    @classmethod
    def open(cls, config: Any, assets: Path) -> Self:
        described = read_json(assets / ASSET)
        model = ImagePolicy(read_encoder(config, assets), config.model, len(described["actions"]))
        return cls(config, ImageFormat(**described["format"]), described["actions"], model)

    def check_rows(self, rows: ImageRows) -> None:
        check_actions(rows, self.actions, "the training data")

    def collate(self, examples: ImageExamples, indices: list[int]) -> FrameBatch:
        actions = examples.rows.texts["action"]
        return FrameBatch(
            rows=[examples.rows.origins.describe(row) for row in indices],
            count=len(indices),
            units=len(indices),
            pixels=examples.pixels(indices),
            targets=torch.tensor([self.action_ids[actions[row]] for row in indices]),
        )

    # Training and inference

    def losses(self, batch: FrameBatch, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        yield "model", networks["model"](batch.pixels, batch.targets)

    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        examples, indices = self.splits[split], self.quick_rows(split, quick)
        logits = self.run(self.centred(examples.pixels(indices)))
        expected = [self.action_ids[examples.rows.texts["action"][row]] for row in indices]
        score = classification.accuracy(logits.argmax(-1).tolist(), expected)
        loss = float(nn.functional.cross_entropy(logits, torch.tensor(expected)))
        values: dict[str, float] = {"accuracy": score.value, "loss": loss, "frames": len(indices)}
        signatures, notes = {"accuracy": score.signature}, list[str]()
        if self.config.world:
            episodes = -(-self.config.episodes // QUICK) if quick else self.config.episodes
            reached = evaluate_reach(self.act, episodes, progress, quick=quick)
            values = {**reached.values, **values}
            signatures["success"] = f"touches the target in new scenes; expert and random act in the same {episodes}"
            notes.append(reached.note)
        if self.config.environment:
            played, notes = evaluate_play(self.act, self._copies(quick), quick=quick, progress=progress)
            values, notes = {**played, **values}, [*notes, *([] if quick else self._recorded_notes(examples.rows))]
        complete = len(indices) == len(examples) and not (quick and (self.config.world or self.config.environment))
        return Evaluation(values, signatures, notes=notes, complete=complete)

    def _copies(self, quick: bool) -> Environments:
        """Return the copies of the environment in which an evaluation plays, an episode each."""
        count = -(-self.config.episodes // QUICK) if quick else self.config.episodes
        if count not in self._environments:
            self._environments[count] = open_environments(self.config.environment, range(count))
        return self._environments[count]

    def _recorded_notes(self, rows: ImageRows) -> list[str]:
        """Return the return of the held-out episodes for the user, where their rewards are read."""
        if not self.config.data.reward_column:
            return ["of recorded episodes: unknown; data.reward_column=NAME says which column has the rewards"]
        totals = recorded_returns(rows)
        return [f"of held-out recorded episodes: {summarise(totals).describe()}"]

    def run(self, pixels: Tensor) -> Tensor:
        """Return the logits (B, A) of frames (B, 3, H, W), in batches on all cores."""

        def infer(batch: Tensor) -> Tensor:
            with torch.no_grad():
                return check_outputs(self.model(batch.to(self.device())).float().cpu())

        return torch.cat(list(parallel_map(infer, pixels.split(BATCH))))

    def act(self, frames: Sequence[np.ndarray[Any, np.dtype[np.uint8]]]) -> Tensor:
        """Return the probabilities (B, A) of the actions at the sight of frames (H, W, 3)."""
        return self.run(torch.stack([self.read_frame(frame) for frame in frames])).softmax(-1)

    def read_frame(self, frame: np.ndarray[Any, np.dtype[np.uint8]]) -> Tensor:
        """Return a frame (H, W, 3) as the model reads it: (3, size, size)."""
        return self.format.read(torch.from_numpy(frame).permute(2, 0, 1))

    def predict(self, inputs: Sequence[Mapping[str, Any]], options: PredictOptions) -> Iterator[Prediction]:
        for first in range(0, len(inputs), BATCH):
            examples = inputs[first : first + BATCH]
            for example in examples:
                self._check(example)
            images = [self.format.read(example["image"]) for example in examples if "image" in example]
            rows = iter(self.run(torch.stack(images)).softmax(-1) if images else ())
            frames = iter(images)
            for example in examples:
                if "image" in example:
                    yield self._predict_frame(example, next(frames), next(rows), options)
                elif self.config.environment:
                    played = play(self.act, self.config.environment, parse_seed(example["scene"]))
                    yield self._predict_episode(example, played, options)
                else:
                    episode = rollout(self.act, [parse_scene(example["scene"])])[0]
                    yield self._predict_episode(example, episode, options)

    def _check(self, example: Mapping[str, Any]) -> None:
        if ("image" in example) == ("scene" in example):
            given = "both are" if "image" in example else "neither is"
            raise UsageError(f"image or scene must be given, but {given}; give a frame, or a scene to act in")
        if "scene" in example and not (self.config.world or self.config.environment):
            raise UsageError(
                "scene must be left out for a model without a world (settings world, environment); give an image"
            )

    def _predict_frame(
        self, example: Mapping[str, Any], pixels: Tensor, probabilities: Tensor, options: PredictOptions
    ) -> Prediction:
        pairs = zip(self.actions, probabilities.tolist(), strict=True)
        ranked = dict(sorted(pairs, key=lambda pair: -pair[1]))
        best = next(iter(ranked))
        maps = self.attention([pixels], (best,)) if options.attention else AttentionMaps()
        return Prediction(example, ActionsOutput((best,)), ranked, maps, trace=[pixels])

    def _predict_episode(
        self, example: Mapping[str, Any], episode: Reach | Play, options: PredictOptions
    ) -> Prediction:
        pixels = [self.read_frame(frame) for frame in episode.frames]
        labels = tuple(self.actions[action] for action in episode.actions)
        scores = {"probability": float(np.mean(episode.probabilities)), "steps": float(len(labels))}
        maps = self.attention(pixels, labels) if options.attention else AttentionMaps()
        if isinstance(episode, Play):
            reward, notes = episode.total, () if episode.end else (f"the first {len(labels)} steps of the episode",)
        else:
            reward = float(episode.success)
            notes = () if episode.gripped else (f"it did not grip within {len(labels)} actions",)
        return Prediction(example, ActionsOutput(labels, reward), scores, maps, trace=pixels, notes=notes)

    # Attention and explanations

    @torch.no_grad()
    def attention(self, frames: Sequence[Tensor], actions: Sequence[str]) -> AttentionMaps:
        """Return the attention of each action to its frame (3, H, W); for a single frame that of the encoder too."""
        hops: dict[str, list[Tensor]] = {}
        for frame in frames:
            with watch(self.model) as recorder:
                self.model(frame[None].to(self.device()))
            for name, recorded in recorder.items():
                if name.startswith("hop"):
                    hops.setdefault(name, []).append(recorded.rows()[0].cpu())  # (H, 1, N)
        maps = []
        queries = StepAxis(Role.TARGET, tuple(actions), tuple(frames))
        for name, recorded in recorder.items():
            if name in hops:
                keys = self.image_axis(frames[0], recorded.shape[3])
                assert isinstance(keys, GridAxis)
                maps.append(AttentionMap(name, torch.cat(hops[name], dim=1), queries, keys))
            elif len(frames) == 1:
                axes = (self.image_axis(frames[0], count) for count in recorded.shape[2:])
                maps.append(AttentionMap(name, RecordedRow(recorded, 0), *axes))
        return AttentionMaps(maps)

    def rerun(self, prediction: Prediction, *, layers: bool = False) -> ForwardTrace:
        assert isinstance(prediction.output, ActionsOutput)
        logits, hops, axes = [], list[list[Tensor]](), []
        for pixels in prediction.trace:
            states: list[Tensor] = []
            logits.append(self.model(pixels[None].to(self.device()), states=states))
            hops.append([self.model.logits(state) for state in states])
            rows, columns = self.encoder.grid(*pixels.shape[1:])
            axes.append(self.image_axis(pixels, len(self.encoder.extra) + rows * columns))
        named = [(f"hop{number}", torch.cat(parts)) for number, parts in enumerate(zip(*hops, strict=True), 1)]
        actions = prediction.output.actions
        chosen = tuple(self.action_ids[action] for action in actions)
        positions = StepAxis(Role.TARGET, actions)
        layered = tuple(named) if layers else ()
        return ForwardTrace(torch.cat(logits), chosen, positions, tuple(axes), self.actions.__getitem__, layered)

    def _shown(self) -> list[int]:
        return list(dict.fromkeys((0, len(self.splits[Split.VALID]) // 2)))

    def attention_snapshot(self) -> list[Prediction]:
        if self.config.world:
            scenes = [{"scene": scene.to_json()} for scene in evaluation_scenes(2)]
            return list(self.predict(scenes, PredictOptions(attention=True)))
        images = self.centred(self.splits[Split.VALID].pixels(self._shown()))
        return list(self.predict([{"image": image} for image in images], PredictOptions(attention=True)))

    def sample(self) -> str:
        examples, rows = self.splits[Split.VALID], self._shown()
        predicted = self.run(self.centred(examples.pixels(rows))).argmax(-1).tolist()
        names = examples.rows.texts["action"]
        return "\n".join(f"{names[row]} -> {self.actions[n]}" for row, n in zip(rows, predicted, strict=True))


def recorded_returns(rows: ImageRows) -> list[float]:
    """Return the sum of rewards of each recorded episode."""
    totals: dict[str, float] = {}
    for row, (episode, text) in enumerate(zip(rows.texts["episode"], rows.texts["reward"], strict=True)):
        try:
            reward = float(text)
        except ValueError:
            reward = math.nan
        if not math.isfinite(reward):
            raise DataError(f"{rows.origins.describe(row)}: reward '{text}', expected a finite number; correct it")
        totals[episode] = totals.get(episode, 0.0) + reward
    return list(totals.values())


def check_actions(rows: ImageRows, actions: Sequence[str], owner: str) -> None:
    """Refuse an action that is not one of those of a world or of the training data."""
    given = rows.texts["action"]
    unknown = next((row for row, action in enumerate(given) if action not in actions), None)
    if unknown is not None:
        message = f"{rows.origins.describe(unknown)}: action '{given[unknown]}'"
        raise DataError(f"{message}, expected one of {owner}: {', '.join(actions)}; correct it")
