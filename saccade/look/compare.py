"""Minimal pairs: what changes in the attention between two predictions, of one model or of two.

Shapes: Q and K aligned queries and keys.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import torch
from torch import Tensor

from saccade.core import Axis, Prediction
from saccade.errors import UsageError
from saccade.look.view import MapView

Pairs = tuple[tuple[int, int], ...]
"""positions of the first and of the second sequence that stand for each other"""


@dataclass(frozen=True)
class Change:
    """One weight of one head that differs between two predictions."""

    name: str
    """of the map"""
    head: int
    query: tuple[str, str]
    """labels in the first and in the second prediction"""
    key: tuple[str, str]
    before: float
    after: float

    @property
    def difference(self) -> float:
        return self.after - self.before


@dataclass(frozen=True)
class MapComparison:
    """One map of two predictions, over the positions that both have."""

    first: MapView
    second: MapView
    queries: Pairs
    keys: Pairs

    @property
    def name(self) -> str:
        return self.first.attention.name

    @property
    def heads(self) -> int:
        return self.first.attention.shape[0]

    def weights(self, head: int | None = None) -> tuple[Tensor, Tensor]:
        """Return the weights (Q, K) of a head, or of the mean over heads, in the first and the second prediction."""
        sides = []
        for side, view in enumerate((self.first, self.second)):
            rows, columns = (torch.tensor([pair[side] for pair in pairs]) for pairs in (self.queries, self.keys))
            whole = view.cells(range(len(view.queries)), range(len(view.keys)), head)
            sides.append(whole[rows][:, columns])
        return sides[0], sides[1]

    def difference(self, head: int | None = None) -> Tensor:
        """Return what the second prediction has more, -1 to 1: (Q, K)."""
        before, after = self.weights(head)
        return after - before

    def changed(self) -> list[float]:
        """Return the changed weight of each head: the mean over queries of half the sum of the differences, 0 to 1."""
        return [float(self.difference(head).abs().sum(-1).mean()) / 2 for head in range(self.heads)]

    def changes(self, count: int) -> Iterator[Change]:
        """Yield the largest changes of each head."""
        for head in range(self.heads):
            before, after = self.weights(head)
            largest = (after - before).abs().flatten().topk(min(count, before.numel())).indices.tolist()
            for query, key in (divmod(index, before.shape[1]) for index in largest):
                labels = self._labels(self.first.queries, self.second.queries, self.queries[query])
                yield Change(
                    self.name,
                    head,
                    labels,
                    self._labels(self.first.keys, self.second.keys, self.keys[key]),
                    float(before[query, key]),
                    float(after[query, key]),
                )

    @staticmethod
    def _labels(first: Axis, second: Axis, pair: tuple[int, int]) -> tuple[str, str]:
        return first.labels[pair[0]], second.labels[pair[1]]


def compare(first: Prediction, second: Prediction, *, words: bool = True) -> list[MapComparison]:
    """Return the maps that two predictions share, over words or over the tokens of the models.

    The predictions are of one model for two inputs, or of two models for inputs whose tokens are comparable.
    """
    shared = [name for name in first.attention if name in second.attention]
    shared = [name for name in shared if first.attention[name].shape[0] == second.attention[name].shape[0]]
    if not shared:
        rule = "the predictions must share a map with the same number of heads, but share none"
        raise UsageError(f"{rule}; predict with attention=True, with models of the same shape")
    comparisons = []
    for name in shared:
        views = MapView(first.attention[name], words), MapView(second.attention[name], words)
        queries = align(views[0].queries.labels, views[1].queries.labels)
        keys = align(views[0].keys.labels, views[1].keys.labels)
        if not queries or not keys:
            raise UsageError(
                f"the predictions must have tokens in common, but have none in '{name}'; compare inputs that differ in "
                "a few words, with models of the same tokenizer"
            )
        comparisons.append(MapComparison(*views, queries, keys))
    return comparisons


def largest_changes(comparisons: Sequence[MapComparison], count: int = 20) -> list[Change]:
    """Return the weights that change most, over all maps and heads, the largest first."""
    changes = (change for comparison in comparisons for change in comparison.changes(count))
    return heapq.nlargest(count, changes, key=lambda change: abs(change.difference))


def align(first: Sequence[str], second: Sequence[str]) -> Pairs:
    """Return the positions that stand for each other: equal labels, and as many other ones in the same place.

    In `it was tired` and `it was very wide`, `it` and `was` do; in `it was tired` and `it was wide` all three.
    """
    pairs: list[tuple[int, int]] = []
    for kind, begin, end, other, stop in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        if kind == "equal" or (kind == "replace" and end - begin == stop - other):
            pairs += zip(range(begin, end), range(other, stop), strict=True)
    return tuple(pairs)
