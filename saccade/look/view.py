"""Views of a map: any rectangle of it, thumbnails and statistics of its heads, computed on demand.

Shapes: H heads, Q queries, K keys; R rows and C columns of a rectangle.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.core import AttentionMap, Axis, GridAxis
from saccade.errors import UsageError
from saccade.look.panels import grid_of
from saccade.metrics.alignment import word_axis

SAMPLED = 96  # queries that represent a longer text
TOGETHER = 2**20  # weights computed at once, which stay in the cache of a processor
MOST_AT_ONCE = 2**24  # weights of all heads that are in memory at once
TINY = 1e-12


@dataclass(frozen=True)
class MapView:
    """One attention, over the tokens of the model or merged to words."""

    attention: AttentionMap
    words: bool = True

    @cached_property
    def _queries(self) -> tuple[Axis, Tensor | None]:
        return word_axis(self.attention.queries) if self.words else (self.attention.queries, None)

    @cached_property
    def _keys(self) -> tuple[Axis, Tensor | None]:
        return word_axis(self.attention.keys) if self.words else (self.attention.keys, None)

    @property
    def nbytes(self) -> int:
        """Bytes of what the view keeps beside the map: the word of each token."""
        kept = [self.__dict__[name][1] for name in ("_queries", "_keys") if name in self.__dict__]
        return sum(words.nbytes for words in kept if words is not None)

    @property
    def queries(self) -> Axis:
        return self._queries[0]

    @property
    def keys(self) -> Axis:
        return self._keys[0]

    def cells(self, rows: range, columns: range, head: int | None = None) -> Tensor:
        """Return the weights (R, C) of a rectangle, of one head or of the mean over heads.

        A step of the rows skips queries; a step of the columns gives the maximum of each group of keys.
        """
        self._check(rows, columns, head)
        weights = self._rows(rows, head)[:, columns.start : columns.stop]
        padding = -weights.shape[1] % columns.step
        if columns.step == 1 or not weights.shape[1]:
            return weights
        thinned: Tensor = F.pad(weights, (0, padding)).unflatten(1, (-1, columns.step)).amax(-1)
        return thinned

    def _rows(self, rows: range, head: int | None) -> Tensor:
        """Return the weights (R, K) of some queries, over the keys of the view."""
        groups, columns = self._queries[1], self._keys[1]
        if groups is None:
            heads, _, keys = self.attention.shape
            several = rows.step * (1 + MOST_AT_ONCE // (1 + keys * (heads if head is None else 1)))
            starts = range(rows.start, rows.stop, several) or (rows.start,)
            stops = (min(start + several, rows.stop) for start in starts)
            parts = zip(starts, stops, strict=True)
            weights = torch.cat([self.attention.rows(*part, step=rows.step, head=head).mean(0) for part in parts])
        else:
            weights = self._word_rows(groups, rows, head)
        if columns is None:
            return weights
        return weights.new_zeros(len(weights), len(self.keys)).index_add_(1, columns, weights)

    def _word_rows(self, groups: Tensor, rows: range, head: int | None) -> Tensor:
        """Return the weights (R, K) of some words over key tokens: the mean of their own tokens, which are adjacent."""
        words = torch.arange(rows.start, rows.stop, rows.step)
        starts, stops = torch.searchsorted(groups, words), torch.searchsorted(groups, words, right=True)
        counts = stops - starts
        owners = torch.arange(len(words)).repeat_interleave(counts)
        before = counts.cumsum(0) - counts  # tokens of the words before, of those that are shown
        tokens = torch.arange(len(owners)) + (starts - before)[owners]
        heads, _, keys = self.attention.shape
        several = 1 + TOGETHER // (1 + keys * (heads if head is None else 1))
        weights = torch.zeros(len(words), keys)
        for part, owner in zip(tokens.split(several), owners.split(several), strict=True):
            weights.index_add_(0, owner, self.attention.select(part, head=head).float().mean(0))
        return weights / counts[:, None]

    def _check(self, rows: range, columns: range, head: int | None) -> None:
        for name, span, size in (("rows", rows, len(self.queries)), ("columns", columns, len(self.keys))):
            if not (0 <= span.start <= span.stop <= size and span.step > 0):
                raise UsageError(f"{name} must be within 0 to {size}, but are {span.start} to {span.stop}")
        heads = self.attention.shape[0]
        if head is not None and not 0 <= head < heads:
            raise UsageError(f"head must be 0 to {heads - 1} in '{self.attention.name}', but is {head}")


def thumbnails(attention: AttentionMap, size: int) -> Tensor:
    """Return every head as a small picture (H, at most size, at most size), scaled so that each row's maximum is 1."""
    heads, queries, keys = attention.shape
    if not queries or not keys:
        return torch.zeros(heads, 0, 0)
    weights = attention.rows(0, queries, step=-(-queries // size))
    wide = -(-keys // size)
    weights = F.pad(weights, (0, -keys % wide)).unflatten(2, (-1, wide)).amax(-1)
    small: Tensor = weights / weights.amax(-1, keepdim=True).clamp_min(TINY)
    return small


def grid_thumbnails(attention: AttentionMap) -> Tensor:
    """Return the mean of the queries of every head over the grid of an image (H, R, C), the maximum of each being 1.

    Where there is a position before a grid of queries, such as a class token, it stands for all of them.
    """
    keys, queries = grid_of(attention), attention.queries
    if not keys.rows * keys.columns:
        return torch.zeros(attention.shape[0], 0, 0)
    last = len(queries.extra) or len(queries) if isinstance(queries, GridAxis) else len(queries)
    weights = attention.rows(0, last, step=max(1, -(-last // SAMPLED)))
    cells = weights[:, :, len(keys.extra) :].sum(1)
    small: Tensor = (cells / cells.amax(-1, keepdim=True).clamp_min(TINY)).unflatten(-1, (keys.rows, keys.columns))
    return small


@dataclass(frozen=True)
class HeadStatistics:
    """What a head attends to: means over its queries, from 0 to 1 but for the distance."""

    entropy: float
    """normalized: 0 one key, 1 uniform over all keys it may see"""
    distance: float
    """positions between query and key, weighted; meaningless between two sequences"""
    same: float
    """weight of the query's own position"""
    previous: float
    """weight of the position before it"""
    first: float
    """weight of the first key, where heads put weight they have no use for (attention sink)"""

    @property
    def pattern(self) -> str:
        """The dominant pattern; empty where none stands out."""
        named = {"same token": self.same, "previous token": self.previous, "first token": self.first}
        best = max(named, key=lambda name: named[name])
        if named[best] > 0.5:
            return best
        return "uniform" if self.entropy > 0.9 else "peaked" if self.entropy < 0.2 else ""


def head_statistics(attention: AttentionMap) -> list[HeadStatistics]:
    """Return the statistics of every head, of a long text over an even sample of its queries."""
    heads, queries, keys = attention.shape
    step = max(1, -(-queries // SAMPLED))
    weights = attention.rows(0, queries, step=step).float()  # (H, R, K)
    row = torch.arange(weights.shape[1]) * step
    largest = (weights > 0).sum(-1).clamp_min(2).log()
    probs = weights / weights.sum(-1, keepdim=True).clamp_min(TINY)
    entropy = -torch.xlogy(probs, probs).sum(-1) / largest
    distance = (weights * (torch.arange(keys)[None, :] - row[:, None]).abs()).sum(-1)
    means = {"entropy": entropy.mean(-1), "distance": distance.mean(-1)}
    for name, position in {"same": row, "previous": row - 1, "first": torch.zeros_like(row)}.items():
        inside = (position >= 0) & (position < keys)
        at = position.clamp(0, max(0, keys - 1))
        value = weights.gather(2, at[None, :, None].expand(heads, -1, 1))[..., 0] * inside
        means[name] = value.sum(-1) / inside.sum().clamp_min(1)
    return [HeadStatistics(**{name: float(value[head]) for name, value in means.items()}) for head in range(heads)]
