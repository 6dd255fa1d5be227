"""Batching: the order of the data is a pure function of (seed, step), so that seeking is free and resuming exact."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from saccade.core.source import Batch, Source

Indices = NDArray[np.uint64]


def mix(values: Indices, key: int) -> Indices:
    """Return a 64-bit hash of each value (the finalizer of SplitMix64)."""
    with np.errstate(over="ignore"):
        x = values + np.uint64(key * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def key(*parts: int) -> int:
    """Return one 63-bit number for several: (seed, epoch), (seed, step)."""
    state = np.zeros(1, dtype=np.uint64)
    for part in parts:
        state = mix(state ^ np.uint64(part & 0xFFFFFFFFFFFFFFFF), 1)
    return int(state[0] >> np.uint64(1))


def shuffle(positions: Indices, size: int, seed: int) -> Indices:
    """Return where positions of 0..size-1 go in a random permutation of `size`, without building the permutation.

    A Feistel network permutes the next power of four; a value that falls outside is permuted again, until it is back
    inside: it always comes back, since it started there.
    """
    if len(positions) and int(positions.max()) >= size:
        raise ValueError(f"positions must be below the size {size}, but the largest is {int(positions.max())}")
    half = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
    low = np.uint64((1 << half) - 1)
    out, pending = positions.astype(np.uint64), np.arange(len(positions))
    while len(pending):
        left, right = out[pending] >> np.uint64(half), out[pending] & low
        for feistel_round in range(4):
            left, right = right, left ^ (mix(right, seed + feistel_round) & low)
        out[pending] = (left << np.uint64(half)) | right
        pending = pending[out[pending] >= size]
    return out


def length_groups(lengths: Sequence[int], rows: int, positions: int) -> Iterator[list[int]]:
    """Yield groups of rows of similar length, the shortest first: at most `rows`, and `positions` with padding."""
    group: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: lengths[row]):
        if group and (len(group) == rows or (len(group) + 1) * lengths[row] > positions):
            yield group
            group = []
        group.append(row)
    if group:
        yield group


class Dataset(Protocol):
    """Examples that are batched by their length."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Positions of each example in a batch, special tokens included: (N,), or (N, 2) for source and target."""


class Buckets:
    """Batches of rows of similar length, as many as a budget of positions holds; every epoch reorders rows and batches.

    Rows are sorted by their lengths and cut into batches. Where the cuts fall depends on the lengths alone, so that
    every epoch has the same number of batches; which of the rows of equal length go where depends on (seed, epoch).
    """

    GRAIN = 4  # source lengths that differ by less count as equal

    def __init__(self, source: NDArray[np.int64], target: NDArray[np.int64], budget: int, seed: int) -> None:
        self._budget, self._seed = budget, seed
        coarse = source // self.GRAIN
        # Alternately ascending and descending: neighbours at the border of two target lengths have similar sources.
        self._keys = (np.where(target % 2 == 0, coarse, -coarse), target)
        order = np.lexsort(self._keys)
        no_lengths = bool((source <= 1).all())  # images are no sequences
        bounds = source if no_lengths else (coarse + 1) * self.GRAIN
        self._cuts = self._cut(bounds[order], target[order])
        self._epoch = (-1, order, order)  # number, order of the rows, order of the batches; replaced in one assignment

    def _cut(self, source: NDArray[np.int64], target: NDArray[np.int64]) -> list[int]:
        """Return where batches start, such that rows x (longest source + longest target) stays within the budget."""
        cuts, source_max, target_max, first = [0], 0, 0, 0
        for row, (source_length, target_length) in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
            source_max, target_max = max(source_max, source_length), max(target_max, target_length)
            if row > first and (row + 1 - first) * (source_max + target_max) > self._budget:
                cuts.append(row)
                first, source_max, target_max = row, source_length, target_length
        return [*cuts, len(source)]

    @property
    def per_epoch(self) -> int:
        return len(self._cuts) - 1

    def rows(self, step: int) -> NDArray[np.int64]:
        """Return the rows of the batch of a step."""
        epoch, position = divmod(step, self.per_epoch)
        current = self._epoch
        if current[0] != epoch:
            current = self._epoch = self._ordered(epoch)
        _, rows, batches = current
        batch = int(batches[position])
        return rows[self._cuts[batch] : self._cuts[batch + 1]]

    def _ordered(self, epoch: int) -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:
        """Return an epoch with the order of its rows and of its batches."""
        epoch_key = key(self._seed, epoch)
        noise = mix(np.arange(len(self._keys[0]), dtype=np.uint64), epoch_key)
        batches = shuffle(np.arange(self.per_epoch, dtype=np.uint64), self.per_epoch, epoch_key).astype(np.int64)
        return epoch, np.lexsort((noise, *self._keys)), batches


def padded_budget(lengths: NDArray[np.int64], rows: int) -> int:
    """Return the positions of a batch of about this many rows, padding included."""
    return math.ceil(rows * float(((lengths // Buckets.GRAIN + 1) * Buckets.GRAIN).mean()))


class BucketedBatches(Source):
    """Batches of examples of similar length within a budget of positions, padding included."""

    def __init__(
        self,
        dataset: Dataset,
        collate: Callable[[list[int]], Batch],
        *,
        budget: int,
        seed: int,
        micro_batches: int = 1,
        augment: Callable[[Any, int], Batch] | None = None,
    ) -> None:
        """`collate` turns the numbers of some examples into a batch, `augment` changes it at random, by a seed."""
        lengths = np.asarray(dataset.lengths, dtype=np.int64)
        source, target = (lengths, np.zeros_like(lengths)) if lengths.ndim == 1 else (lengths[:, 0], lengths[:, 1])
        self._buckets = Buckets(source, target, budget, seed)
        self._collate, self._micro_batches = collate, micro_batches
        self._augment, self._seed = augment, seed

    @property
    def per_epoch(self) -> int:
        return self._buckets.per_epoch

    def at(self, step: int) -> list[Batch]:
        rows = self._buckets.rows(step)
        parts = np.array_split(rows, min(self._micro_batches, len(rows)))
        batches = [self._collate(part.tolist()) for part in parts]
        if self._augment is None:
            return batches
        return [self._augment(batch, key(self._seed, step, number)) for number, batch in enumerate(batches)]


@dataclass(frozen=True)
class Windows:
    """Equal windows over a long sequence of tokens; every epoch shifts the cuts and reorders the windows."""

    tokens: int
    """length of the sequence"""
    width: int
    """tokens a window predicts; it reads one more"""
    seed: int

    @property
    def per_epoch(self) -> int:
        """Windows that fit wherever the first cut is."""
        return max(1, (self.tokens - self.width) // self.width)

    def starts(self, first: int, count: int) -> NDArray[np.int64]:
        """Return where the windows at positions first, first + 1, ... of the endless stream start."""
        positions = np.arange(first, first + count, dtype=np.uint64)
        epochs = positions // np.uint64(self.per_epoch)
        out = np.empty(count, dtype=np.int64)
        for epoch in np.unique(epochs):
            chosen = epochs == epoch
            epoch_key = key(self.seed, int(epoch))
            spare = self.tokens - 1 - self.per_epoch * self.width
            phase = epoch_key % (min(spare, self.width - 1) + 1)
            within = positions[chosen] - epoch * np.uint64(self.per_epoch)
            out[chosen] = shuffle(within, self.per_epoch, epoch_key).astype(np.int64) * self.width + phase
        return out


class WindowBatches(Source):
    """Batches of windows over running text."""

    STEPS = 64  # whose windows are computed together

    def __init__(
        self, windows: Windows, collate: Callable[[list[int]], Batch], *, batch_size: int, micro_batches: int = 1
    ) -> None:
        """`collate` turns the first positions of some windows into a batch."""
        self._windows, self._collate = windows, collate
        self._batch_size, self._micro_batches = batch_size, micro_batches
        self._block: tuple[int, NDArray[np.int64]] = -1, np.empty((0, 0), dtype=np.int64)

    @property
    def per_epoch(self) -> int:
        return max(1, self._windows.per_epoch // self._batch_size)

    def at(self, step: int) -> list[Batch]:
        block, within = divmod(step, self.STEPS)
        if self._block[0] != block:  # the starts of many steps take hardly longer than those of one
            size = self.STEPS * self._batch_size
            self._block = block, self._windows.starts(block * size, size).reshape(self.STEPS, -1)
        return [self._collate(part.tolist()) for part in np.split(self._block[1][within], self._micro_batches)]
