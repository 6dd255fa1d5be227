"""Audio classification: which of several classes a recording is; scored in recordings that are classified correctly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from saccade.atomic_io import read_json, write_json
from saccade.core import (
    AttentionMap,
    AttentionMaps,
    Base,
    Evaluation,
    ForwardTrace,
    LabelOutput,
    Metric,
    Prediction,
    PredictOptions,
    Pretrained,
    Progress,
    Role,
    Source,
    Split,
    StepAxis,
    Table,
    ignore_progress,
)
from saccade.core import Task as CoreTask
from saccade.data.batching import BucketedBatches, length_groups, padded_budget
from saccade.data.formats.audio_layouts import SPEAKER
from saccade.data.formats.audio_rows import AudioRows
from saccade.data.formats.labelled import sort_labels
from saccade.errors import DataError, UsageError
from saccade.metrics import classification
from saccade.models.speech.encoders import (
    ConvolutionalConfig,
    SpeechClassifier,
    SpeechEncoderConfig,
    build_speech_encoder,
)
from saccade.nn.probe import RecordedRow, watch
from saccade.nn.transformer import TransformerConfig
from saccade.tasks._labels import confusion_table
from saccade.tasks._pretrained import cannot_run
from saccade.tasks._speech.task import AudioBatch, AudioConfig, AudioExamples, AudioFormat, AudioTask

LABELS = "labels.json"
LISTED = 8  # labels of a message
QUICK_ROWS = 1000  # of a quick evaluation
ROWS, POSITIONS = 128, 1 << 14  # recordings classified at once, and their positions
POOL = "cross"  # the attention of the query over the sound

METRICS = {
    metric.name: metric
    for metric in (
        Metric("accuracy", True, "%"),
        Metric("loss", False, "nats per recording"),
        Metric("recordings", None, "recordings"),
    )
}
"""every value that `evaluate` returns"""


@dataclass(frozen=True)
class SoundModel(SpeechEncoderConfig):
    """Encoder and its shape."""

    convolutional: ConvolutionalConfig = field(
        default_factory=lambda: ConvolutionalConfig(
            transformer=TransformerConfig(dim=128, depth=2, heads=4, hidden=256, position="sinusoidal", dropout=0.1)
        )
    )


@dataclass(frozen=True)
class SoundConfig(AudioConfig):
    """All settings of an audio classifier except those of the training loop."""

    model: SoundModel = field(default_factory=SoundModel)
    batch_size: int = 64
    """recordings per step, about: short ones are more"""
    label_smoothing: float = 0.1
    """label smoothing: probability mass that is distributed evenly over all classes"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must be at least 0 and below 1, but is {self.label_smoothing}")
        self.check_encoder(self.model)


@dataclass(frozen=True)
class SoundBatch(AudioBatch):
    """Sounds with their classes, padded."""

    targets: Tensor  # (B,)

    @property
    def count(self) -> int:
        return len(self.targets)


class Task(AudioTask):
    """An encoder of sound, and a learned query that attends to it."""

    Config: ClassVar[type[Any]] = SoundConfig
    loss_unit: ClassVar[str] = "nats"
    summary: ClassVar[str] = "sort recordings into classes: words, speakers, sounds"
    needs: ClassVar[str] = "a folder of recordings for each class, or a table of paths and labels"
    roles: ClassVar[tuple[str, ...]] = ("label",)
    metric = METRICS["accuracy"]

    model: SpeechClassifier
    splits: dict[Split, AudioExamples]

    def __init__(self, config: Any, format: AudioFormat, labels: Sequence[str], model: SpeechClassifier) -> None:
        self.config, self.format, self.labels, self.model = config, format, list(labels), model
        self.label_ids = {label: number for number, label in enumerate(labels)}
        self.splits = {}

    # Data

    @classmethod
    def train_defaults(cls, config: Any) -> list[str]:
        return ["train.precision=fastest"]

    @classmethod
    def prepare(
        cls, config: Any, data: Path, assets: Path, *, base: Base = None, progress: Progress = ignore_progress
    ) -> list[str]:
        if base is not None:
            raise UsageError("audio_classification cannot be fine-tuned from a pretrained model yet")
        train, valid, notes = cls.read(config, data, assets, progress)
        counts = Counter(train.texts["label"])
        labels = sort_labels({*counts, *valid.texts["label"]})
        if len(labels) < 2:
            raise DataError(f"{data}: every label is '{labels[0]}', expected at least two labels; add other recordings")
        write_json(assets / LABELS, {"labels": labels})
        return [*notes, f"labels: {len(labels)}"]

    @classmethod
    def open(cls, config: Any, assets: Path) -> Self:
        labels = read_json(assets / LABELS)["labels"]
        model = SpeechClassifier(build_speech_encoder(config.model, config.bands), len(labels))
        return cls(config, AudioFormat.load(config, assets), labels, model)

    def check_rows(self, rows: AudioRows) -> None:
        labels = rows.texts["label"]
        unknown = next((row for row, label in enumerate(labels) if label not in self.label_ids), None)
        if unknown is not None:
            listed = f"{', '.join(self.labels[:LISTED])}{', ...' if len(self.labels) > LISTED else ''}"
            message = f"{rows.origins.describe(unknown)}: label '{labels[unknown]}'"
            step = "correct it, or train a new run"
            raise DataError(f"{message}, expected one of the training recordings: {listed}; {step}")

    def source(self, split: Split, seed: int) -> Source:
        examples, config = self.splits[split], self.config
        return BucketedBatches(
            examples,
            lambda indices: self.collate(examples, indices),
            budget=padded_budget(examples.lengths, config.batch_size),
            seed=seed,
            micro_batches=config.micro_batches,
            augment=self.augmented if split == Split.TRAIN else None,
        )

    def collate(self, examples: AudioExamples, indices: list[int]) -> SoundBatch:
        """Return a batch of some rows."""
        labels = examples.rows.texts["label"]
        source, keep = self.stack([examples.source(row) for row in indices])
        frames = torch.from_numpy(examples.frames[np.asarray(indices)])
        targets = torch.tensor([self.label_ids[labels[row]] for row in indices])
        return SoundBatch(source, frames, keep, tuple(map(examples.rows.origins.describe, indices)), targets)

    # Training and inference

    def losses(self, batch: SoundBatch, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        yield "model", networks["model"](batch.source, batch.keep, batch.targets, self.config.label_smoothing)

    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        examples = self.splits[split]
        indices = list(range(0, len(examples), max(1, -(-len(examples) // QUICK_ROWS)) if quick else 1))
        names = [examples.rows.texts["label"][row] for row in indices]
        expected = [self.label_ids[name] for name in names]
        logits = self.classify([examples.source(row) for row in indices], progress)
        predicted = logits.argmax(-1).tolist()
        score = classification.accuracy(predicted, expected)
        loss = float(nn.functional.cross_entropy(logits, torch.tensor(expected)))
        outputs = [self.labels[number] for number in predicted]
        tables = [confusion_table(classification.confusion(outputs, names, self.labels))]
        if SPEAKER in examples.rows.texts:
            speakers = examples.rows.texts[SPEAKER]
            tables.append(_speaker_table([speakers[row] for row in indices], predicted, expected))
        return Evaluation(
            {"accuracy": score.value, "loss": loss, "recordings": len(indices)},
            {"accuracy": score.signature},
            tables,
            complete=len(indices) == len(examples),
        )

    @torch.no_grad()
    def classify(self, sounds: Sequence[Tensor], progress: Progress = ignore_progress) -> Tensor:
        """Return the logits (B, classes) of sounds (T, F); those of similar length are computed together."""
        logits = torch.zeros(len(sounds), len(self.labels))
        done = 0
        lengths = [-(-len(sound) // self.encoder.stride) for sound in sounds]
        for group in length_groups(lengths, ROWS, POSITIONS):
            source, keep = self.stack([sounds[at] for at in group])
            logits[group] = self.model(source.to(self.device()), keep.to(self.device())).float().cpu()
            done += len(group)
            progress(done / len(sounds))
        return logits

    def predict(self, inputs: Sequence[Mapping[str, Any]], options: PredictOptions) -> Iterator[Prediction]:
        for first in range(0, len(inputs), ROWS):
            examples = inputs[first : first + ROWS]
            sounds = [self.format.read(example["audio"]) for example in examples]
            yield from self._predictions(examples, sounds, attention=options.attention)

    def _predictions(
        self, examples: Sequence[Mapping[str, Any]], sounds: Sequence[Tensor], *, attention: bool
    ) -> Iterator[Prediction]:
        probabilities = self.classify(sounds).softmax(-1)
        for example, sound, row in zip(examples, sounds, probabilities.tolist(), strict=True):
            ranked = dict(sorted(zip(self.labels, row, strict=True), key=lambda pair: -pair[1]))
            maps = self.attention(sound) if attention else AttentionMaps()
            yield Prediction(example, LabelOutput((next(iter(ranked)),), ranked), ranked, maps, trace=sound)

    def _source(self, sound: Tensor) -> tuple[Tensor, Tensor]:
        source, keep = self.stack([sound])
        return source.to(self.device()), keep.to(self.device())

    @torch.no_grad()
    def attention(self, sound: Tensor) -> AttentionMaps:
        """Return all attention maps over one sound (T, F)."""
        with watch(self.model) as recorder:
            self.model(*self._source(sound))
        maps = []
        for name, recorded in recorder.items():
            time = self.source_axis(sound, recorded.shape[3])
            queries = StepAxis(Role.LABEL, ("label",)) if name == POOL else time
            maps.append(AttentionMap(name, RecordedRow(recorded, 0), queries, time))
        return AttentionMaps(maps)

    def rerun(self, prediction: Prediction, *, layers: bool = False) -> ForwardTrace:
        sound = prediction.trace
        source, keep = self._source(sound)
        logits = self.model(source, keep)
        states: list[Tensor] = []
        if layers:
            self.encoder(source, keep, states=states)
        by_layer = tuple((f"encoder.{at}", self.model.classify(state, keep)) for at, state in enumerate(states))
        axis = self.source_axis(sound, self.source_positions(sound))
        position = StepAxis(Role.LABEL, ("label",))
        return ForwardTrace(logits, (int(logits.argmax()),), position, (axis,), self.labels.__getitem__, by_layer)

    def attention_snapshot(self) -> list[Prediction]:
        examples = self.splits[Split.VALID]
        rows = list(dict.fromkeys((0, len(examples) // 2)))
        inputs = [{"audio": self.example_input(examples, row)} for row in rows]
        return list(self._predictions(inputs, [examples.source(row) for row in rows], attention=True))

    def sample(self) -> str:
        examples = self.splits[Split.VALID]
        rows = list(dict.fromkeys((0, len(examples) // 2)))
        predicted = self.classify([examples.source(row) for row in rows]).argmax(-1).tolist()
        names = examples.rows.texts["label"]
        lines = (f"{names[row]} -> {self.labels[label]}" for row, label in zip(rows, predicted, strict=True))
        return "\n".join(lines)

    # Exchange

    @classmethod
    def from_pretrained(cls, pretrained: Pretrained) -> CoreTask:
        raise cannot_run(pretrained, "audio_classification")


def _speaker_table(speakers: Sequence[str], predicted: Sequence[int], expected: Sequence[int]) -> Table:
    """Return the accuracy for each of the most frequent speakers."""
    rows = []
    for speaker, count in Counter(speakers).most_common(12):
        right = sum(a == b for who, a, b in zip(speakers, predicted, expected, strict=True) if who == speaker)
        rows.append((speaker, f"{count:,}", f"{100 * right / count:.1f}"))
    return Table("by speaker", ("speaker", "recordings", "accuracy"), tuple(rows))
