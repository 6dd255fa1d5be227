"""View: any rectangle of a map as it is shown, over pieces or whole words, computed when it comes into sight.

Shapes: H heads, Q queries, K keys; R rows and C columns in sight.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.core.task import AttentionMap, Axis
from saccade.errors import UsageError
from saccade.look.maps import word_axis

SAMPLED = 96  # queries that speak for a longer text
TOGETHER = 2**20  # weights computed at once, which stay in the cache of a processor
NEAR = 1e-12


@dataclass(frozen=True)
class View:
    """One attention, over the pieces the model sees or merged to words."""

    read: AttentionMap
    words: bool = True

    @cached_property
    def _queries(self) -> tuple[Axis, Tensor | None]:
        return word_axis(self.read.queries) if self.words else (self.read.queries, None)

    @cached_property
    def _keys(self) -> tuple[Axis, Tensor | None]:
        return word_axis(self.read.keys) if self.words else (self.read.keys, None)

    @property
    def queries(self) -> Axis:
        return self._queries[0]

    @property
    def keys(self) -> Axis:
        return self._keys[0]

    def cells(self, rows: range, columns: range, head: int | None = None) -> Tensor:
        """The weights (R, C) of a rectangle, of one head or of their mean.

        A step of the rows leaves out the queries between; a step of the columns shows the largest weight of each.
        """
        self._check(rows, columns, head)
        found = self._rows(rows, head)[:, columns.start : columns.stop]
        short = -found.shape[1] % columns.step
        return found if columns.step == 1 else F.pad(found, (0, short)).unflatten(1, (-1, columns.step)).amax(-1)

    def _rows(self, rows: range, head: int | None) -> Tensor:
        """Weights (R, K) of some queries, over the keys as they are shown."""
        groups, columns = self._queries[1], self._keys[1]
        if groups is None:
            found = self.read.rows(rows.start, rows.stop, step=rows.step, head=head).mean(0)
        else:
            found = self._word_rows(groups, rows, head)
        if columns is None:
            return found
        return found.new_zeros(len(found), len(self.keys.labels)).index_add_(1, columns, found)

    def _word_rows(self, groups: Tensor, rows: range, head: int | None) -> Tensor:
        """Weights (R, K) of some words over the pieces of keys: the mean of their own pieces, which stand together."""
        starts = torch.searchsorted(groups, torch.arange(rows.start, rows.stop + 1))  # the last: where the rest begins
        counts = starts.diff()
        first, last = (int(starts[at]) for at in (0, -1))
        heads, _, keys = self.read.shape
        several = 1 + TOGETHER // (1 + keys * (heads if head is None else 1))
        found = torch.zeros(len(counts), keys)
        for begin in range(first, last, several):
            end = min(begin + several, last)
            found.index_add_(0, groups[begin:end] - rows.start, self.read.rows(begin, end, head=head).float().mean(0))
        return (found / counts[:, None])[:: rows.step]

    def _check(self, rows: range, columns: range, head: int | None) -> None:
        for name, asked, most in (
            ("rows", rows, len(self.queries.labels)),
            ("columns", columns, len(self.keys.labels)),
        ):
            if not (0 <= asked.start <= asked.stop <= most and asked.step > 0):
                raise UsageError(f"{name} must be within 0 to {most}, but are {asked.start} to {asked.stop}")
        if head is not None and not 0 <= head < self.read.shape[0]:
            raise UsageError(f"head must be 0 to {self.read.shape[0] - 1} in '{self.read.name}', but is {head}")


def thumbnails(read: AttentionMap, size: int) -> Tensor:
    """Every head as a small picture (H, at most size, at most size), the largest weight of each row 1."""
    heads, queries, keys = read.shape
    if not queries or not keys:
        return torch.zeros(heads, 0, 0)
    step = -(-queries // size)
    found = read.rows(0, queries, step=step)
    wide = -(-keys // size)
    found = F.pad(found, (0, -keys % wide)).unflatten(2, (-1, wide)).amax(-1)
    small: Tensor = found / found.amax(-1, keepdim=True).clamp_min(NEAR)
    return small


@dataclass(frozen=True)
class Habits:
    """What a head does, in numbers from 0 to 1 but for the distance: means over its queries."""

    entropy: float
    """0: it looks at one key; 1: at all that it may see alike"""
    distance: float
    """tokens between the query and where it looks; across two texts it means nothing"""
    itself: float
    """share of the weight on the query's own place"""
    previous: float
    """share on the token before it"""
    first: float
    """share on the first key, where heads rest that have nothing to say"""

    @property
    def kind(self) -> str:
        """What the head mostly does, in a word or two; empty where nothing stands out."""
        named = {"itself": self.itself, "previous token": self.previous, "first token": self.first}
        best = max(named, key=lambda name: named[name])
        if named[best] > 0.5:
            return best
        return "broad" if self.entropy > 0.9 else "sharp" if self.entropy < 0.2 else ""


def habits(read: AttentionMap) -> list[Habits]:
    """The habits of every head; of a long text an even sample of its queries speaks."""
    heads, queries, keys = read.shape
    step = max(1, -(-queries // SAMPLED))
    weights = read.rows(0, queries, step=step).float()  # (H, R, K)
    row = torch.arange(weights.shape[1]) * step
    seen = (weights > 0).sum(-1).clamp_min(2).log()
    share = weights / weights.sum(-1, keepdim=True).clamp_min(NEAR)
    entropy = -torch.xlogy(share, share).sum(-1) / seen
    distance = (weights * (torch.arange(keys)[None, :] - row[:, None]).abs()).sum(-1)
    places = {"itself": row, "previous": row - 1, "first": torch.zeros_like(row)}
    means = {"entropy": entropy.mean(-1), "distance": distance.mean(-1)}
    for name, place in places.items():
        inside = (place >= 0) & (place < keys)
        at = place.clamp(0, max(0, keys - 1))
        value = weights.gather(2, at[None, :, None].expand(heads, -1, 1))[..., 0] * inside
        means[name] = value.sum(-1) / inside.sum().clamp_min(1)
    return [Habits(**{name: float(value[head]) for name, value in means.items()}) for head in range(heads)]
