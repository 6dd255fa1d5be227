"""Labelled task: base class of tasks on a table of texts, or pairs of texts, with labels or numbers.

Shapes: B rows, D width.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor, nn

from saccade.atomic_io import read_json, write_json
from saccade.core import Base, Prediction, Progress, Split, Text
from saccade.core.callback import ignore_progress
from saccade.core.task import even_sample
from saccade.data.batching import BucketedBatches
from saccade.data.fingerprints import fingerprint
from saccade.data.formats.labelled import Labelled, LabelSet, read_labelled
from saccade.data.formats.labelled_files import LabelledFiles, find_labelled
from saccade.data.settings import HEADERS, Header, ValidationSplit
from saccade.data.splitting import SplitSettings
from saccade.data.text.tokenizers import Tokenizer
from saccade.data.tokenization import tokenize
from saccade.errors import DataError
from saccade.models.text.bert import BertConfig, EncoderInputs
from saccade.tasks._encoder.inputs import (
    EncodedText,
    EncodedTexts,
    EncoderBatch,
    Lengths,
    count_tokens,
    encode_texts,
    pad_texts,
)
from saccade.tasks._encoder.task import EncoderConfig, EncoderTask

LABELS = "labels.json"
QUICK_ROWS = 1000  # of a quick evaluation
# By whether rows have two texts; None: a pretrained network, which does not say.
INPUTS: Mapping[bool | None, tuple[Text, ...]] = {
    False: (Text("text"),),
    True: (Text("first"), Text("second")),
    None: (Text("text"), Text("second", optional=True, help="the second text, for a model of pairs")),
}


@dataclass(frozen=True)
class LabelledSettings(ValidationSplit):
    """Which columns hold texts and labels."""

    text_column: str = ""
    """column of the text; default: a column with a common name, or chosen by content"""
    second_column: str = ""
    """column of the second text of a pair"""
    label_column: str = ""
    """column of the label, the labels or the number"""
    encoding: str = ""
    """encoding of the files, if not UTF-8"""
    header: Header = "auto"
    """whether the first row of a table names its columns; auto: decided by the rows"""


@dataclass(frozen=True)
class LabelledConfig(EncoderConfig):
    """Settings of a task with labelled rows."""

    data: LabelledSettings = field(default_factory=LabelledSettings)
    pool: Literal["mean", "first", "tanh", "relu"] = "mean"
    """pooling of token vectors: the mean, the first token, or the first token through a dense layer with tanh (as
    published for BERT and RoBERTa, whose classes in transformers need it) or with relu (DistilBERT)"""


@dataclass(frozen=True)
class LabelledBatch(EncoderBatch):
    """Encoded texts with their targets (B, ...)."""

    inputs: tuple[EncoderInputs, ...]
    targets: Tensor | None


class LabelledTask(EncoderTask):
    """A task that reads a table of texts, or pairs of texts, each with its label or number."""

    numeric = False
    """whether labels are numbers"""
    separate = False
    """whether the two texts of a pair are encoded separately, not as one sequence"""

    def __init__(self, config: Any, tokenizer: Tokenizer, shape: BertConfig, label_info: Mapping[str, Any]) -> None:
        super().__init__(config, tokenizer, shape)
        self.label_info = label_info
        self.inputs = INPUTS[label_info["pairs"]]
        self.splits: dict[Split, Labelled] = {}

    # Data

    @classmethod
    def prepare(
        cls, config: Any, data: Path, assets: Path, *, base: Base = None, progress: Progress = ignore_progress
    ) -> list[str]:
        rows, notes = cls.read(config.data, data, progress=progress)
        train = rows if config.data.valid else rows.split(SplitSettings(fraction=config.data.valid_fraction))[0]
        write_json(assets / LABELS, cls.describe_labels(train, rows))
        return [
            *notes,
            *cls.write_encoder(config, chain(train.texts, train.seconds), assets, base),
            *rows.notes(),
        ]

    @classmethod
    def describe_labels(cls, train: Labelled, rows: Labelled) -> dict[str, Any]:
        """Return the information on the labels that is needed to open the task, as JSON."""
        return {
            "labels": list(rows.label_set.names),
            "multi_label": rows.label_set.multi_label,
            "pairs": len(rows.seconds) > 0,
        }

    @classmethod
    def read_labels(cls, assets: Path) -> tuple[Any, ...]:
        return (read_json(assets / LABELS),)

    @classmethod
    def read(
        cls,
        settings: LabelledSettings,
        path: Path,
        labels: LabelSet | None = None,
        progress: Progress = ignore_progress,
    ) -> tuple[Labelled, list[str]]:
        """Return the rows of a path, with notes on the files; every label must be in `labels`, if given."""
        files = cls.find(settings, path)
        return read_labelled(files, label_set=labels, progress=progress), files.notes()

    @classmethod
    def find(cls, settings: LabelledSettings, path: Path) -> LabelledFiles:
        """Return the files of a path and the columns of texts and labels."""
        return find_labelled(
            path,
            text_column=settings.text_column,
            second_column=settings.second_column,
            label_column=settings.label_column,
            numbers=cls.numeric,
            encoding=settings.encoding or None,
            header=HEADERS[settings.header],
        )

    def load_data(self, data: Path, *, eval_only: bool = False, progress: Progress = ignore_progress) -> list[str]:
        settings = self.config.data
        rows, _ = self.read(settings, data, self._label_set(), progress)
        if eval_only:
            self._set_splits({Split.VALID: rows}, data)
            return [f"rows: {len(rows):,}"]
        if settings.valid:
            train, (valid, _) = rows, self.read(settings, Path(settings.valid), self._label_set())
        else:
            train, valid = rows.split(SplitSettings(fraction=settings.valid_fraction))
        self._set_splits({Split.TRAIN: train, Split.VALID: valid}, data)
        notes = [f"rows: {len(train):,} for training, {len(valid):,} for validation"]
        truncated = sum(side.truncated for side in self.encoded(Split.TRAIN))
        if truncated:
            notes.append(f"{truncated:,} texts have more than {self.template.max_length} tokens and are truncated")
        return notes

    def _set_splits(self, splits: dict[Split, Labelled], data: Path) -> None:
        """Store the splits, after checking that they can be evaluated."""
        for rows in splits.values():
            if self.label_info["pairs"] is not None and (len(rows.seconds) > 0) != self.label_info["pairs"]:
                names = ("one text", "two texts")
                actual, expected = names[len(rows.seconds) > 0], names[self.label_info["pairs"]]
                message = f"{rows.origins.file(0)}: {actual} in a row, expected {expected} as in the training rows"
                raise DataError(f"{message}; name the columns with data.text_column and data.second_column")
        numbers = set(splits[Split.VALID].numbers)
        if len(numbers) == 1:
            message = f"{data}: every number of the validation rows is {numbers.pop():g}, expected different ones"
            raise DataError(f"{message}; give more rows, or data.valid=FILE")
        if not self.numeric and not any(splits[Split.VALID].labels):
            message = f"{data}: no validation row has a label, expected one at least"
            raise DataError(f"{message}; give more rows, or data.valid=FILE")
        self.splits = splits
        self.fingerprint = fingerprint(splits.values())

    def _label_set(self) -> LabelSet | None:
        """Return the labels that rows may have: those of the training rows."""
        if self.numeric:
            return None
        return LabelSet(tuple(self.label_info["labels"]), bool(self.label_info["multi_label"]))

    def encoded(self, split: Split) -> tuple[EncodedTexts, ...]:
        """Return the rows of a split as tokens: one sequence each, or with `separate` two."""
        rows = self.splits[split]
        first = tokenize(rows.texts, self.tokenizer)
        if not len(rows.seconds):
            return (EncodedTexts(self.template, first),)
        second = tokenize(rows.seconds, self.tokenizer)
        if self.separate:
            return EncodedTexts(self.template, first), EncodedTexts(self.template, second)
        return (EncodedTexts(self.template, first, second),)

    def encode_inputs(self, inputs: Sequence[Mapping[str, Any]]) -> list[EncodedText]:
        """Encode validated examples, each as one sequence; an optional text may be missing."""
        fields = self.inputs
        rows = [
            {field.name: row[field.name] for field in fields if row.get(field.name) or not field.optional}
            for row in inputs
        ]
        ids = iter(self.tokenizer.encode_batch([text for row in rows for text in row.values()]))
        return [encode_texts(self.template, row, [next(ids) for _ in row]) for row in rows]

    def source(self, split: Split, seed: int) -> BucketedBatches:
        rows, encoded = self.splits[split], self.encoded(split)

        def collate(indices: list[int]) -> LabelledBatch:
            inputs = tuple(pad_texts([side[row] for row in indices]) for side in encoded)
            return LabelledBatch(
                rows=[rows.origins.describe(row) for row in indices],
                count=len(indices),
                units=sum(map(count_tokens, inputs)),
                inputs=inputs,
                targets=self.targets(rows, indices),
            )

        config, sides = self.config, [side.lengths for side in encoded]
        lengths = Lengths(sides[0] if len(sides) == 1 else np.stack(sides, axis=1))
        return BucketedBatches(
            lengths, collate, budget=config.batch_tokens, seed=seed, micro_batches=config.micro_batches
        )

    @abc.abstractmethod
    def targets(self, rows: Labelled, indices: Sequence[int]) -> Tensor | None:
        """Return the targets of some rows, as the loss needs them."""

    # Training and inference

    def losses(self, batch: LabelledBatch, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        yield "model", networks["model"](*batch.inputs, batch.targets)

    def evaluated_rows(self, split: Split, quick: bool) -> list[int]:
        """Return the indices of the evaluated rows; quick: every n-th, about `QUICK_ROWS`."""
        count = len(self.splits[split])
        return list(range(0, count, max(1, -(-count // QUICK_ROWS)) if quick else 1))

    def validation_inputs(self, limit: int) -> list[dict[str, Any]]:
        rows = self.splits[Split.VALID]
        return [self._row_inputs(rows, row) for row in even_sample(len(rows), limit)]

    def attention_snapshot(self) -> list[Prediction]:
        rows, texts = self.splits[Split.VALID], self.encoded(Split.VALID)[0]
        indices = dict.fromkeys((0, len(rows) // 2))
        return [self.snapshot(self._row_inputs(rows, row), texts[row]) for row in indices]

    def _row_inputs(self, rows: Labelled, row: int) -> dict[str, Any]:
        texts = [rows.texts[row], *([rows.seconds[row]] if len(rows.seconds) and not self.separate else [])]
        return {field.name: text for field, text in zip(self.inputs, texts, strict=False)}
