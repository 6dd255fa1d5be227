"""Batches of pairs: rectangles of source and target tokens for any sequence-to-sequence model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from saccade.data.batching import Buckets
from saccade.data.formats.bitext import Bitext


@dataclass(frozen=True)
class PairBatch:
    """Pairs as rectangles; `labels` are the inputs moved by one, -1 where there is nothing to predict."""

    source: Tensor  # (B, S)
    keep: Tensor  # (B, S)
    inputs: Tensor  # (B, T)
    labels: Tensor  # (B, T)
    lines: tuple[int, ...]
    count: int

    @property
    def rows(self) -> list[str]:
        return [f"line {line}" for line in self.lines]

    def to(self, device: Any) -> PairBatch:
        source, keep, inputs, labels = (x.to(device) for x in (self.source, self.keep, self.inputs, self.labels))
        return PairBatch(source, keep, inputs, labels, self.lines, self.count)

    def twice(self) -> PairBatch:
        """All pairs, then all of them again."""
        source, keep, inputs, labels = (x.repeat(2, 1) for x in (self.source, self.keep, self.inputs, self.labels))
        return PairBatch(source, keep, inputs, labels, 2 * self.lines, 2 * self.count)


@dataclass(frozen=True)
class PairBatches:
    """Pairs of like length together; which ones depends on (seed, step) alone."""

    pairs: Bitext
    buckets: Buckets
    marks: tuple[int, int, int]
    parts: int

    @property
    def per_epoch(self) -> int:
        return self.buckets.per_epoch

    def at(self, step: int) -> list[PairBatch]:
        rows = self.buckets.rows(step)
        parts = np.array_split(rows, min(self.parts, len(rows)))
        return [make_batch(self.pairs, part, self.marks) for part in parts]


def make_batch(pairs: Bitext, rows: Any, marks: tuple[int, int, int]) -> PairBatch:
    """Some pairs as rectangles, with the end of a source, the beginning and the end of a target."""
    stop, begin, end = marks
    source = torch.from_numpy(pairs.source.rectangle(rows, after=[stop]))
    target = torch.from_numpy(pairs.target.rectangle(rows, before=[begin], after=[end]))
    inputs, labels = target[:, :-1].clamp_min(0), target[:, 1:]
    lines = tuple(int(line) for line in pairs.lines[rows])
    return PairBatch(source.clamp_min(0), source >= 0, inputs, labels, lines, int((labels >= 0).sum()))
