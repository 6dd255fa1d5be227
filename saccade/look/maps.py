"""Maps: from the attention of a prediction to words, means, rollout and word alignments."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from saccade.core.task import AttentionMap, Axis
from saccade.errors import DataError, UsageError

# Shapes: H heads, Q queries, K keys.

PAIR = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")


def merge(read: AttentionMap) -> AttentionMap:
    """The map over words instead of pieces: the pieces of a key word are added, those of a query word averaged."""
    weights = read.weights
    queries, rows = word_axis(read.queries)
    keys, columns = word_axis(read.keys)
    if rows is not None:
        summed = weights.new_zeros(weights.shape[0], len(queries.labels), weights.shape[2])
        summed.index_add_(1, rows.to(weights.device), weights)
        weights = summed / torch.bincount(rows).to(weights)[:, None]  # (H, words, K)
    if columns is not None:
        summed = weights.new_zeros(*weights.shape[:2], len(keys.labels))
        weights = summed.index_add_(2, columns.to(weights.device), weights)  # (H, Q, words)
    return replace(read, source=weights, queries=queries, keys=keys)


def word_axis(axis: Axis) -> tuple[Axis, Tensor | None]:
    """The axis of words, and which of them each piece belongs to; None where every label is a word already."""
    if not axis.words:
        return axis, None
    if len(axis.words) != len(axis.labels):
        raise ValueError(f"words must name a word for each of {len(axis.labels)} labels, but has {len(axis.words)}")
    place = {word: number for number, word in enumerate(dict.fromkeys(axis.words))}
    labels = [""] * len(place)
    for label, word in zip(axis.labels, axis.words, strict=True):
        labels[place[word]] += label
    return Axis(axis.kind, tuple(label.strip() for label in labels)), torch.tensor([place[word] for word in axis.words])


def mean_heads(read: AttentionMap) -> AttentionMap:
    """One map (1, Q, K): the mean over the heads."""
    return replace(read, source=read.weights.mean(0, keepdim=True))


def one_head(read: AttentionMap, head: int) -> AttentionMap:
    """One map (1, Q, K): that of a head, counted from 0."""
    heads = read.shape[0]
    if not 0 <= head < heads:
        raise UsageError(f"head must be 0 to {heads - 1} in '{read.name}', but is {head}")
    return replace(read, source=read.weights[head : head + 1])


def mean(reads: Sequence[AttentionMap]) -> AttentionMap:
    """One map (1, Q, K): the mean over all heads of all layers."""
    _check_axes(reads)
    return mean_heads(replace(reads[0], name="mean", source=torch.cat([read.weights for read in reads])))


def rollout(reads: Sequence[AttentionMap]) -> AttentionMap:
    """How much each input reaches each position through all layers, lowest layer first.

    Each layer is 0.5 A + 0.5 I, A the mean of its heads and I the residual way round it (Abnar & Zuidema 2020).
    """
    _check_axes(reads)
    first = reads[0]
    if first.queries.labels != first.keys.labels:
        raise UsageError(f"rollout must have self-attention, but '{first.name}' looks from one text at another")
    through = eye = torch.eye(len(first.keys.labels))
    for read in reads:
        layer = 0.5 * read.weights.mean(0).cpu() + 0.5 * eye
        through = layer / layer.sum(-1, keepdim=True) @ through  # (Q, K)
    return replace(first, name="rollout", source=through[None])


def _check_axes(reads: Sequence[AttentionMap]) -> None:
    if not reads:
        raise UsageError("maps must be at least one, but there is none; choose a layer that the model has")
    first = reads[0]
    for read in reads:
        if (read.queries, read.keys) != (first.queries, first.keys):
            raise UsageError(
                f"maps must have the same axes, but '{first.name}' is {_size(first)} and '{read.name}' is "
                f"{_size(read)} of other words; choose maps of one kind"
            )


def _size(read: AttentionMap) -> str:
    return f"{len(read.queries.labels)} x {len(read.keys.labels)}"


def _bits(weights: Tensor) -> Tensor:
    """Entropy of the last axis, whatever its sum; 0 for a row of zeros."""
    share = weights / weights.sum(-1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
    return -torch.xlogy(share, share).sum(-1)


def entropy(read: AttentionMap) -> list[float]:
    """How flat each head looks: 0 at one key, 1 at all alike; the mean over its queries (nan if it has none)."""
    weights = read.weights.double()
    scale = math.log(max(weights.shape[-1], 2))  # a single key is always sharp
    return [float(_bits(head[head.sum(-1) > 0]).mean()) / scale for head in weights]


def align(read: AttentionMap, *, threshold: float = 0.0) -> list[tuple[int, int]]:
    """Word alignment (source, target) of one map: the key each query looks at most, if at least by `threshold`."""
    top, keys = only(read).max(-1)  # (Q,)
    pairs = zip(keys.tolist(), top.tolist(), strict=True)
    return sorted((key, query) for query, (key, weight) in enumerate(pairs) if weight > 0 and weight >= threshold)


def only(read: AttentionMap) -> Tensor:
    """The weights (Q, K) of a map that has one head."""
    if read.shape[0] != 1:
        raise ValueError(f"'{read.name}' must be one map, but has {read.shape[0]} heads; mean_heads or one_head")
    return read.weights[0]


def written(pairs: Iterable[tuple[int, int]]) -> str:
    """An alignment as text, source-target from 0: '0-0 1-2'."""
    return " ".join(f"{source}-{target}" for source, target in sorted(pairs))


def parse(text: str) -> set[tuple[int, int]]:
    """The pairs of an alignment written as text; an empty line has none."""
    pairs = set()
    for number, word in enumerate(text.split(), 1):
        match = PAIR.fullmatch(word)
        if not match:
            raise DataError(
                f"an alignment must be source-target numbers from 0, such as '0-0 1-2', but pair {number} is '{word}'"
            )
        pairs.add((int(match[1]), int(match[2])))
    return pairs


@dataclass(frozen=True)
class Choice:
    """The attention that shows the word alignment best; head None is the mean over the heads of the layer."""

    name: str
    head: int | None
    score: float
    by: str

    def of(self, reads: Iterable[AttentionMap]) -> AttentionMap:
        """The chosen map of one prediction, over words: (1, target words, source words)."""
        for read in reads:
            if read.name == self.name:
                return merge(mean_heads(read) if self.head is None else one_head(read, self.head))
        raise UsageError(f"the maps must include '{self.name}', which was chosen to align words, but do not")


def information(weights: Tensor) -> float | None:
    """How much the target word tells which source word is looked at: 0 nothing, 1 everything.

    I = H(mean row) - mean H(row), over log min(Q, K): the coverage of the source minus the flatness of the rows, which
    is the mutual information of target and source. A flat head has 0, and so has a sharp one that always looks at the
    same place; one word for each word, in any order, has 1. None where there are fewer than two words on a side.
    """
    rows = weights[weights.sum(-1) > 0].double()
    if min(rows.shape) < 2:
        return None
    rows = rows / rows.sum(-1, keepdim=True)
    return float(_bits(rows.mean(0)) - _bits(rows).mean()) / math.log(min(rows.shape))


def choose(many: Sequence[Sequence[AttentionMap]], gold: Sequence[set[tuple[int, int]]] | None = None) -> Choice:
    """The head, or the mean of a layer, to align words by, from the cross-attention of several sentences.

    With gold alignments the one with the lowest alignment error 1 - 2 hits / (found + gold) (Och & Ney 2003), else the
    one with the most `information`, which needs no gold, but cannot tell a head that looks one word beside the right.
    """
    if not many or not many[0]:
        raise DataError("sentences must be at least one with cross-attention, but there is none to choose a head from")
    if gold is not None and len(gold) != len(many):
        raise DataError(f"alignments must be one for each sentence, but are {len(gold)} for {len(many)} sentences")
    if gold is not None and not any(gold):
        raise DataError("alignments must have at least one pair, but all are empty")
    layout = [(read.name, read.shape[0]) for read in many[0]]
    if any([(read.name, read.shape[0]) for read in reads] != layout for reads in many):
        raise ValueError(f"every sentence must have the same layers and heads {layout}")
    merged = [[merge(read) for read in reads] for reads in many]
    best: Choice | None = None
    for layer, (name, heads) in enumerate(layout):
        for head in [*range(heads), None]:
            maps = [reads[layer].weights for reads in merged]
            picked = [weights.mean(0) if head is None else weights[head] for weights in maps]
            score = _informed(picked) if gold is None else -_error(picked, gold)
            if best is None or score > best.score:
                best = Choice(name, head, score, "information" if gold is None else "alignment error")
    assert best is not None
    return best if gold is None else replace(best, score=-best.score)


def _informed(maps: Sequence[Tensor]) -> float:
    """The mean information of maps (Q, K) that have any."""
    known = [value for weights in maps if (value := information(weights)) is not None]
    return sum(known) / len(known) if known else 0.0


def _error(maps: Sequence[Tensor], gold: Sequence[set[tuple[int, int]]]) -> float:
    """The alignment error of maps (Q, K), all sentences counted together."""
    hits = both = 0
    for weights, right in zip(maps, gold, strict=True):
        found = set(align(AttentionMap("", weights[None], Axis("words", ()), Axis("words", ()))))
        hits += len(found & right)
        both += len(found) + len(right)
    return 1 - 2 * hits / both


def crossing(reads: Sequence[AttentionMap]) -> list[AttentionMap]:
    """How one text looks at another, among all maps."""
    return [read for read in reads if read.queries.kind != read.keys.kind]


def inside(read: AttentionMap) -> AttentionMap:
    """A map without the marks at the ends of both texts, which align with nothing."""
    queries, keys = (Axis(axis.kind, axis.labels[:-1], axis.words[:-1]) for axis in (read.queries, read.keys))
    return AttentionMap(read.name, read.weights[:, :-1, :-1], queries, keys)
