"""Labelled rows for an encoder: reading them, batches of like length, and one vector for each text or pair.

Shapes: B rows, T tokens, D width.
"""

from __future__ import annotations

import abc
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.atomic_io import read_json, write_json
from saccade.core.task import Prediction, Progress, Split, quiet
from saccade.data.batching import Buckets
from saccade.data.formats.labelled import Labelled, LabelledFiles, find_labelled, read_labelled
from saccade.data.settings import ValidationSplit
from saccade.data.splitting import SplitSettings
from saccade.data.tables.problems import Strays
from saccade.data.text.tokenizers import Tokenizer
from saccade.errors import DataError, UsageError
from saccade.models.text.bert import BertConfig, pool
from saccade.tasks._encoder.task import EncoderConfig, EncoderTask, Rows

LABELS = "labels.json"
QUICK = 1000  # rows of a quick evaluation


@dataclass(frozen=True)
class LabelledSettings(ValidationSplit):
    """Where texts and labels stand."""

    column: str = ""
    """column of the text; without it the usual names are tried, then the content decides"""
    second: str = ""
    """column of the second text of a pair"""
    label: str = ""
    """column of the label, the labels or the number"""
    encoding: str = ""
    """encoding of the files, where it is not UTF-8"""


@dataclass(frozen=True)
class RowConfig(EncoderConfig):
    """Settings of a task with labelled rows."""

    data: LabelledSettings = field(default_factory=LabelledSettings)
    pool: Literal["mean", "first"] = "mean"
    """what stands for a text: the mean of its tokens, or the first one"""


@dataclass(frozen=True)
class RowBatch:
    """Framed texts with their answers (B, ...)."""

    read: tuple[Rows, ...]
    answers: Tensor
    names: tuple[str, ...]

    @property
    def count(self) -> int:
        return len(self.names)

    @property
    def rows(self) -> list[str]:
        return list(self.names)

    def to(self, device: Any) -> RowBatch:
        return RowBatch(tuple(rows.to(device) for rows in self.read), self.answers.to(device), self.names)


@dataclass(frozen=True)
class RowBatches:
    """Rows of like length together; which ones depends on (seed, step) alone."""

    task: RowTask
    part: Labelled
    framed: Sequence[Sequence[tuple[list[int], int]]]
    buckets: Buckets

    @property
    def per_epoch(self) -> int:
        return self.buckets.per_epoch

    def at(self, step: int) -> list[RowBatch]:
        rows = self.buckets.rows(step)
        return [self.make(part) for part in np.array_split(rows, min(self.task.config.parts, len(rows)))]

    def make(self, rows: NDArray[np.int64]) -> RowBatch:
        """Some rows as a batch."""
        chosen = rows.tolist()
        read = tuple(Rows.of([side[row] for row in chosen]) for side in self.framed)
        return RowBatch(read, self.task.answers(self.part, chosen), tuple(self.part.place(row) for row in chosen))


class RowTask(EncoderTask):
    """A task that reads a table of texts, or pairs of texts, each with its answer."""

    numbers = False
    apart = False
    """whether the two texts of a pair are read one by one, not as one row"""

    def __init__(self, config: Any, tokenizer: Tokenizer, shape: BertConfig, known: dict[str, Any]) -> None:
        super().__init__(config, tokenizer, shape)
        self.known = known
        self.parts: dict[Split, Labelled] = {}

    @classmethod
    def prepare(cls, config: Any, data: Path, assets: Path, advance: Progress = quiet) -> list[str]:
        rows, notes = cls.read(config.data, data)
        train = rows if config.data.valid else rows.split(SplitSettings(fraction=config.data.fraction))[0]
        texts = [*train.texts, *train.seconds]
        write_json(assets / LABELS, cls.describe(train, rows))
        return [*notes, *cls.learn(config, texts, assets), *rows.strays.notes()]

    @classmethod
    def describe(cls, train: Labelled, rows: Labelled) -> dict[str, Any]:
        """What must be known of the answers to open the task."""
        return {"names": list(rows.names), "several": rows.several, "pairs": bool(rows.seconds)}

    @classmethod
    def open(cls, config: Any, assets: Path) -> RowTask:
        opened = cls(config, *cls.read_assets(assets), read_json(assets / LABELS))
        opened.begin(assets)
        return opened

    @classmethod
    def read(cls, settings: LabelledSettings, path: Path, like: Labelled | None = None) -> tuple[Labelled, list[str]]:
        """The rows of a path, and what was found there; with `like` their labels must be among its labels."""
        found = cls.find(settings, path)
        return read_labelled(found, like=like), found.notes()

    @classmethod
    def find(cls, settings: LabelledSettings, path: Path) -> LabelledFiles:
        """Where texts and answers stand."""
        return find_labelled(
            path,
            column=settings.column,
            second=settings.second,
            label=settings.label,
            numbers=cls.numbers,
            encoding=settings.encoding or None,
        )

    def load_data(self, data: Path, advance: Progress = quiet, *, whole: bool = False) -> list[str]:
        like = self._like()
        if whole:
            self._take({Split.VALID: self.read(self.config.data, data, like)[0]}, data)
            return [f"rows: {len(self.parts[Split.VALID]):,}"]
        train, _ = self.read(self.config.data, data, like)
        if self.config.data.valid:
            valid, _ = self.read(self.config.data, Path(self.config.data.valid), like)
        else:
            train, valid = train.split(SplitSettings(fraction=self.config.data.fraction))
        self._take({Split.TRAIN: train, Split.VALID: valid}, data)
        self.fingerprint = _fingerprint(train)
        return [f"rows: {len(train):,} to train on, {len(valid):,} held back"]

    def _take(self, parts: dict[Split, Labelled], data: Path) -> None:
        """Keep the rows, if they are such that they can be scored."""
        for part in parts.values():
            if bool(part.seconds) != self.known["pairs"]:
                texts = ("one text", "two texts")
                there, wanted = texts[bool(part.seconds)], texts[self.known["pairs"]]
                message = f"{part.files[0]}: {there} in a row, expected {wanted} as in the training rows"
                raise DataError(f"{message}; name the columns with --column and --second")
        numbers = set(parts[Split.VALID].numbers)
        if len(numbers) == 1:
            message = f"{data}: every number of the valid part is {numbers.pop():g}, expected different ones"
            raise DataError(f"{message}; give more rows, or --valid FILE")
        if not self.numbers and not any(parts[Split.VALID].labels):
            message = f"{data}: no row of the valid part has a label, expected one at least"
            raise DataError(f"{message}; give more rows, or --valid FILE")
        self.parts = parts

    def _like(self) -> Labelled | None:
        """The labels that rows must have, as the training rows had them."""
        if self.numbers:
            return None
        names, several = tuple(self.known["names"]), bool(self.known["several"])
        return Labelled((), (), (), (), names, several, (), (), Strays())

    def batches(self, split: Split, seed: int) -> RowBatches:
        part = self.parts[split]
        framed = self._framed(part, range(len(part)))
        lengths = np.array([[len(row) for row, _ in side] for side in framed], dtype=np.int64)
        other = lengths[1] if len(framed) > 1 else np.zeros_like(lengths[0])
        return RowBatches(self, part, framed, Buckets(lengths[0], other, self.config.tokens, seed))

    def _framed(self, part: Labelled, rows: Sequence[int]) -> list[list[tuple[list[int], int]]]:
        """The rows as tokens: once, or each of the two texts by itself."""
        first = self.tokenizer.encode_batch([part.texts[row] for row in rows])
        if not part.seconds:
            return [[self.frame.build(ids) for ids in first]]
        second = self.tokenizer.encode_batch([part.seconds[row] for row in rows])
        if self.apart:
            return [[self.frame.build(ids) for ids in side] for side in (first, second)]
        return [[self.frame.build(one, other) for one, other in zip(first, second, strict=True)]]

    def given(self, first: str, second: str) -> tuple[list[int], int]:
        """The row of one text, or of two where the training rows had two; a tab may stand between them."""
        if self.known["pairs"] and not second:
            first, _, second = first.partition("\t")
        if self.known["pairs"] and not second:
            raise UsageError("a pair needs a second text, but none was given; add second=TEXT, or a tab and the text")
        if second and not self.known["pairs"]:
            raise UsageError("the training rows had one text each, but two were given; leave out second=TEXT")
        return self.framed(first, second or None)

    @abc.abstractmethod
    def answers(self, part: Labelled, rows: Sequence[int]) -> Tensor:
        """The true answers of some rows, as the loss needs them."""

    def pooled(self, rows: Rows) -> Tensor:
        """One vector for each row: (B, D)."""
        return pool(self.model.bert(rows.ids, rows.keep, rows.segments), rows.keep, self.config.pool)

    @torch.no_grad()
    def vectors(self, framed: Sequence[tuple[Sequence[int], int]], advance: Progress = quiet) -> Tensor:
        """One vector for each framed row, in the order given: (N, D)."""
        found: dict[int, Tensor] = {}
        for at, features in self.features(framed):
            found[at] = pool(features[None], None, self.config.pool)[0]
            if len(found) % 100 == 0:
                advance(len(found) / len(framed))
        return torch.stack([found[at] for at in range(len(framed))])

    def attention_snapshot(self) -> list[Prediction]:
        part = self.parts[Split.VALID]
        rows = list(dict.fromkeys((0, len(part) // 2)))
        return [
            self.snapshot_of(part.texts[row], one) for row, one in zip(rows, self._framed(part, rows)[0], strict=True)
        ]

    def sampled(self, split: Split, quick: bool) -> list[int]:
        """The rows that are scored; quick: an even sample of them."""
        count = len(self.parts[split])
        return list(range(0, count, max(1, -(-count // QUICK)) if quick else 1))


def _fingerprint(part: Labelled) -> str:
    """What the rows are, in a few letters."""
    content = json.dumps([part.texts, part.seconds, part.labels, part.numbers]).encode()
    return hashlib.sha256(content).hexdigest()[:16]
