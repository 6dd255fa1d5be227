"""Minimal pairs: what changes in the attention between two predictions, of one model or of two.

Shapes: Q and K positions of the aligned queries and keys; R and C rows and columns of a rectangle of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from saccade.core import AttentionMap, Prediction, Progress, ignore_progress
from saccade.errors import UsageError
from saccade.look.search import is_word
from saccade.look.view import MapView

LONGEST = 40  # labels of a word, such as its letters
SKIPPED = 6  # labels between two spans that are spelled alike, such as special tokens
TOGETHER = 2**20  # weights that are compared at once
Pair = tuple[range | None, range | None]
"""positions of the first and of the second sequence that stand for each other, mostly one of each; None: a gap"""


def align_labels(first: Sequence[str], second: Sequence[str]) -> tuple[Pair, ...]:
    """Return every position of two sequences in order, side by side where they stand for each other, else by a gap.

    Equal labels do, whatever their case, and as many other ones in their place: of `it was tired` and `it was wide` all
    three, of `it was tired` and `it was not tired` all but `not`. So do several that spell the same: `didn ' t` and
    `didn't`.
    """
    return _align(tuple(first), tuple(second))


@lru_cache(maxsize=16)  # the layers of a model share their labels
def _align(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[Pair, ...]:
    one, two = ([label.strip().casefold() for label in labels] for labels in (first, second))
    pairs: list[Pair] = []
    for kind, begin, end, other, stop in SequenceMatcher(None, one, two, autojunk=False).get_opcodes():
        spelled = _spelled_alike(one[:end], two[:stop], begin, other) if kind == "replace" else []
        for span, partner in spelled:
            pairs += [*_in_place(begin, span.start, other, partner.start), (span, partner)]
            begin, other = span.stop, partner.stop
        pairs += _in_place(begin, end, other, stop)
    return tuple(pairs)


def _in_place(begin: int, end: int, other: int, stop: int) -> list[Pair]:
    """Return positions of two sequences side by side if they are as many, else each by a gap."""
    first, second = ([range(at, at + 1) for at in range(*span)] for span in ((begin, end), (other, stop)))
    if len(first) == len(second):
        return [*zip(first, second, strict=True)]
    return [*((at, None) for at in first), *((None, at) for at in second)]


def _spelled_alike(first: Sequence[str], second: Sequence[str], i: int, j: int) -> list[tuple[range, range]]:
    """Return the spans of two sequences, from i and j on, whose labels together are the same text; few are skipped."""
    spans = list[tuple[range, range]]()
    while True:
        skips = ((skip, total - skip) for total in range(SKIPPED + 1) for skip in range(total + 1))
        found = (_same_text(first, second, i + one, j + two) for one, two in skips)
        pair = next((pair for pair in found if pair is not None), None)
        if pair is None:
            return spans
        spans.append(pair)
        i, j = pair[0].stop, pair[1].stop


def _same_text(first: Sequence[str], second: Sequence[str], i: int, j: int) -> tuple[range, range] | None:
    """Return the shortest spans from two positions whose labels together are the same text; None: there are none."""
    if i >= len(first) or j >= len(second):
        return None
    (a, b), (one, two) = (i + 1, j + 1), (first[i], second[j])
    while one != two or not one:
        if len(one) <= len(two) and a < len(first) and two.startswith(one):
            one, a = one + first[a], a + 1
        elif b < len(second) and one.startswith(two):
            two, b = two + second[b], b + 1
        else:
            return None
        if a - i > LONGEST or b - j > LONGEST:
            return None
    return range(i, a), range(j, b)


@dataclass(frozen=True)
class Change:
    """One weight of one head that differs between two predictions."""

    maps: tuple[str, str]
    head: int
    query: int
    """position of the aligned queries"""
    key: int
    before: float
    after: float

    @property
    def difference(self) -> float:
        return self.after - self.before


@dataclass(frozen=True)
class MapDifference:
    """A map of the first prediction and one of the second, over the aligned positions of both."""

    first: MapView
    second: MapView
    queries: tuple[Pair, ...]
    keys: tuple[Pair, ...]

    @property
    def maps(self) -> tuple[str, str]:
        return self.first.attention.name, self.second.attention.name

    @property
    def heads(self) -> int:
        """Number of heads that both have."""
        return min(self.first.attention.shape[0], self.second.attention.shape[0])

    def query_labels(self, at: int) -> tuple[str | None, str | None]:
        """Return the labels of an aligned query in the first and in the second prediction; None is a gap."""
        return _labels(self.first.queries.labels, self.second.queries.labels, self.queries[at])

    def key_labels(self, at: int) -> tuple[str | None, str | None]:
        """Return the labels of an aligned key in the first and in the second prediction; None is a gap."""
        return _labels(self.first.keys.labels, self.second.keys.labels, self.keys[at])

    def weights(
        self, rows: range, columns: range, head: int | None = None, other: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the weights (R, C) of a head of the first map and of a head of the second, None for the mean.

        A gap has the weight 0.
        """
        for name, span, size in (("rows", rows, len(self.queries)), ("columns", columns, len(self.keys))):
            if not 0 <= span.start <= span.stop <= size:
                raise UsageError(f"{name} must be within 0 to {size}, but are {span.start} to {span.stop}")
        parts = self.queries[rows.start : rows.stop], self.keys[columns.start : columns.stop]
        return _side(self.first, 0, *parts, head), _side(self.second, 1, *parts, other)

    def changed(self, count: int, *, words: bool = False) -> tuple[list[float | None], list[Change]]:
        """Return how much of the attention of each head changed, 0 to 1, and the largest changes of all heads.

        The first is the mean over the queries that both predictions have of half the sum of the differences; a key that
        only one of them has counts as 0 in the other. None: there is no such query. The changes are those of weights
        that both have; `words` leaves out special tokens and punctuation.
        """
        sums = [0.0] * self.heads
        changes: list[Change] = []
        for rows in self._parts():
            for head in range(self.heads):
                before, after = self.weights(rows, range(len(self.keys)), head, head)
                difference = (after - before).abs() * self._aligned[0][rows.start : rows.stop, None]
                sums[head] += float(difference.sum()) / 2
                changes += self._largest(before, after, rows, head, count, words=words)
            changes = heapq.nlargest(count, changes, key=_size)
        queries = int(self._aligned[0].sum())
        return [value / queries if queries else None for value in sums], changes

    def _parts(self) -> Iterator[range]:
        """Yield the rows in parts whose weights are compared at once."""
        several = 1 + TOGETHER // (1 + len(self.keys))
        for start in range(0, len(self.queries), several):
            yield range(start, min(start + several, len(self.queries)))

    def _largest(
        self, before: Tensor, after: Tensor, rows: range, head: int, count: int, *, words: bool
    ) -> Iterator[Change]:
        queries, keys = self._words if words else self._aligned
        difference = (after - before).abs() * (queries[rows.start : rows.stop, None] & keys)
        largest = difference.flatten().topk(min(count, difference.numel()))
        for value, index in zip(largest.values.tolist(), largest.indices.tolist(), strict=True):
            query, key = divmod(index, len(self.keys))
            if value > 0:
                weights = float(before[query, key]), float(after[query, key])
                yield Change(self.maps, head, rows.start + query, key, *weights)

    @cached_property
    def _aligned(self) -> tuple[Tensor, Tensor]:
        """Whether a query or a key is in both predictions: (Q,), (K,)."""
        queries, keys = (torch.tensor([None not in pair for pair in pairs]) for pairs in (self.queries, self.keys))
        return queries.bool(), keys.bool()

    @cached_property
    def _words(self) -> tuple[Tensor, Tensor]:
        """Whether a query or a key is a word of both texts: (Q,), (K,)."""
        queries = [_are_words(self.query_labels(at)) for at in range(len(self.queries))]
        keys = [_are_words(self.key_labels(at)) for at in range(len(self.keys))]
        return torch.tensor(queries).bool(), torch.tensor(keys).bool()


def _side(view: MapView, side: int, queries: Sequence[Pair], keys: Sequence[Pair], head: int | None) -> Tensor:
    """Return the weights of one prediction, with zeros in its gaps; of several queries the mean, of keys the sum."""
    rows, columns = (
        [(at, span) for at, pair in enumerate(pairs) if (span := pair[side]) is not None] for pairs in (queries, keys)
    )
    if not rows or not columns:
        view.cells(range(0), range(0), head)  # which checks the head
        return torch.zeros(len(queries), len(keys))
    # A sequence is complete and in order: its positions are adjacent.
    down, across = (range(part[0][1].start, part[-1][1].stop) for part in (rows, columns))
    cells = view.cells(down, across, head).float().cpu()
    line, column = (torch.tensor([at for at, span in part for _ in span]) for part in (rows, columns))
    weights = torch.zeros(len(queries), len(across)).index_add_(0, line, cells)
    weights /= torch.bincount(line, minlength=len(queries)).clamp_min(1)[:, None]
    return torch.zeros(len(queries), len(keys)).index_add_(1, column, weights)


def _labels(first: Sequence[str], second: Sequence[str], pair: Pair) -> tuple[str | None, str | None]:
    return _text(first, pair[0]), _text(second, pair[1])


def _text(labels: Sequence[str], span: range | None) -> str | None:
    """Return the label of a span; None is a gap."""
    if span is None:
        return None
    return labels[span.start] if len(span) == 1 else "".join(labels[at] for at in span).strip()


def _are_words(labels: tuple[str | None, str | None]) -> bool:
    return all(label is not None and is_word(label) for label in labels)


def _size(change: Change) -> float:
    return abs(change.difference)


def difference_of(first: AttentionMap, second: AttentionMap, *, words: bool = True) -> MapDifference:
    """Align two maps, over words or over the tokens of the models."""
    views = MapView(first, words), MapView(second, words)
    queries = align_labels(views[0].queries.labels, views[1].queries.labels)
    if all(view.queries.labels == view.keys.labels for view in views):
        return MapDifference(*views, queries, queries)
    return MapDifference(*views, queries, align_labels(views[0].keys.labels, views[1].keys.labels))


def paired_maps(first: Mapping[str, AttentionMap], second: Mapping[str, AttentionMap]) -> list[tuple[str, str]]:
    """Return the maps of two predictions that are compared: those of the same name, else those of the same roles.

    The maps of the same roles, such as those of self-attention on the text, are compared in their order.
    """
    shared = [(name, name) for name in first if name in second]
    if shared:
        return shared
    pairs, remaining = [], list(second)
    for name, attention in first.items():
        partner = next((other for other in remaining if _roles(second[other]) == _roles(attention)), None)
        if partner is not None:
            pairs.append((name, partner))
            remaining.remove(partner)
    return pairs


def _roles(attention: AttentionMap) -> tuple[object, ...]:
    return type(attention.queries), attention.queries.role, type(attention.keys), attention.keys.role


def compare_predictions(first: Prediction, second: Prediction, *, words: bool = True) -> list[MapDifference]:
    """Return the differences of the maps of two predictions, over words or over the tokens of the models."""
    pairs = paired_maps(first.attention, second.attention)
    if not pairs:
        rule = "the predictions must have attention over the same kind of input, but have none in common"
        raise UsageError(f"{rule}; compare models of the same task")
    return [difference_of(first.attention[one], second.attention[other], words=words) for one, other in pairs]


def largest_changes(
    differences: Sequence[MapDifference],
    count: int = 20,
    *,
    words: bool = False,
    progress: Progress = ignore_progress,
) -> tuple[list[list[float | None]], list[Change]]:
    """Return how much of each head of each map changed, and the weights that change most over all of them."""
    heads, changes = [], list[Change]()
    for number, difference in enumerate(differences, 1):
        changed, largest = difference.changed(count, words=words)
        heads.append(changed)
        changes += largest
        progress(number / len(differences))
    return heads, heapq.nlargest(count, changes, key=_size)
