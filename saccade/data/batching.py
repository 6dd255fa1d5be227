"""Order of the data: a pure function of (seed, epoch, position), so that seeking is free and resuming exact."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.uint64]


def mix(values: Indices, key: int) -> Indices:
    """A well-stirred 64-bit hash of each value (the finaliser of SplitMix64)."""
    with np.errstate(over="ignore"):
        x = values + np.uint64(key * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def key(*parts: int) -> int:
    """One 63-bit number from several: (seed, epoch), (seed, step)."""
    state = np.zeros(1, dtype=np.uint64)
    for part in parts:
        state = mix(state ^ np.uint64(part & 0xFFFFFFFFFFFFFFFF), 1)
    return int(state[0] >> np.uint64(1))


def shuffle(positions: Indices, size: int, seed: int) -> Indices:
    """Where each position 0..size-1 goes in a random order of `size` things, without building that order.

    A Feistel network permutes the next power of four; a value that falls outside goes round again.
    """
    half = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
    low = np.uint64((1 << half) - 1)
    out, todo = positions.astype(np.uint64), np.arange(len(positions))
    while len(todo):
        left, right = out[todo] >> np.uint64(half), out[todo] & low
        for turn in range(4):
            left, right = right, left ^ (mix(right, seed + turn) & low)
        out[todo] = (left << np.uint64(half)) | right
        todo = todo[out[todo] >= size]
    return out


@dataclass(frozen=True)
class Windows:
    """Equal windows over a long row of tokens: every epoch cuts at another place and in another order."""

    tokens: int
    """length of the row"""
    width: int
    """tokens a window predicts; it reads one more"""
    seed: int

    @property
    def per_epoch(self) -> int:
        """Windows that fit whatever the place of the first cut."""
        return max(1, (self.tokens - self.width) // self.width)

    def starts(self, first: int, count: int) -> NDArray[np.int64]:
        """Where the windows at positions first, first + 1, ... of the endless stream begin."""
        positions = np.arange(first, first + count, dtype=np.uint64)
        epochs = positions // np.uint64(self.per_epoch)
        out = np.empty(count, dtype=np.int64)
        for epoch in np.unique(epochs):
            chosen = epochs == epoch
            stir = key(self.seed, int(epoch))
            spare = self.tokens - 1 - self.per_epoch * self.width
            phase = stir % (min(spare, self.width - 1) + 1)
            within = positions[chosen] - epoch * np.uint64(self.per_epoch)
            out[chosen] = shuffle(within, self.per_epoch, stir).astype(np.int64) * self.width + phase
        return out


def groups(lengths: Sequence[int], rows: int, positions: int) -> Iterator[list[int]]:
    """Rows of like length, the shortest first: at most so many, and so many positions with their padding."""
    group: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: lengths[row]):
        if group and (len(group) == rows or (len(group) + 1) * lengths[row] > positions):
            yield group
            group = []
        group.append(row)
    if group:
        yield group


class Buckets:
    """Rows of like length together, as many as a budget of positions holds; every epoch mixes and orders them anew.

    Rows are sorted by their lengths and cut into batches. Where the cuts fall depends on the lengths alone, so that
    every epoch has the same number of batches; which of the rows of equal length go where depends on (seed, epoch).
    """

    GRAIN = 4  # source lengths this near count as equal

    def __init__(self, source: NDArray[np.int64], target: NDArray[np.int64], budget: int, seed: int) -> None:
        self._budget, self._seed = budget, seed
        coarse = source // self.GRAIN
        # Up and down in turn, so that neighbours at the seam between two target lengths have like sources.
        self._keys = (np.where(target % 2 == 0, coarse, -coarse), target)
        order = np.lexsort(self._keys)
        self._cuts = self._cut((coarse[order] + 1) * self.GRAIN, target[order])
        self._epoch, self._order, self._turn = -1, order, order

    def _cut(self, source: NDArray[np.int64], target: NDArray[np.int64]) -> list[int]:
        """Where batches begin, such that rows x (max_length source + max_length target) stays within the budget."""
        cuts, wide, tall, first = [0], 0, 0, 0
        for row, (one, other) in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
            wide, tall = max(wide, one), max(tall, other)
            if row > first and (row + 1 - first) * (wide + tall) > self._budget:
                cuts.append(row)
                first, wide, tall = row, one, other
        return [*cuts, len(source)]

    @property
    def per_epoch(self) -> int:
        return len(self._cuts) - 1

    def rows(self, step: int) -> NDArray[np.int64]:
        """The rows of the batch of a step."""
        epoch, place = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            stir = key(self._seed, epoch)
            noise = mix(np.arange(len(self._keys[0]), dtype=np.uint64), stir)
            self._epoch, self._order = epoch, np.lexsort((noise, *self._keys))
            self._turn = shuffle(np.arange(self.per_epoch, dtype=np.uint64), self.per_epoch, stir).astype(np.int64)
        batch = int(self._turn[place])
        return self._order[self._cuts[batch] : self._cuts[batch + 1]]
