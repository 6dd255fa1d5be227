"""Word alignment from attention: maps over words, of one head or a mean, and the head that aligns words best.

Shapes: H heads, Q queries, K keys.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from saccade.core import AttentionMap, Axis, TokenAxis
from saccade.errors import DataError, UsageError

CONTINUATION = "##"  # before WordPiece tokens that continue a word
PAIR = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")


def merge_words(attention: AttentionMap) -> AttentionMap:
    """Return the map over words: the tokens of a key word are added, those of a query word averaged."""
    weights = attention.weights
    queries, rows = word_axis(attention.queries)
    keys, columns = word_axis(attention.keys)
    if rows is not None:
        summed = weights.new_zeros(weights.shape[0], len(queries), weights.shape[2])
        summed.index_add_(1, rows.to(weights.device), weights)
        weights = summed / torch.bincount(rows).to(weights)[:, None]  # (H, words, K)
    if columns is not None:
        summed = weights.new_zeros(*weights.shape[:2], len(keys))
        weights = summed.index_add_(2, columns.to(weights.device), weights)  # (H, Q, words)
    return replace(attention, source=weights, queries=queries, keys=keys)


def word_axis(axis: Axis) -> tuple[Axis, Tensor | None]:
    """Return the axis of words and the word each token belongs to; None where every position is a word already."""
    if not isinstance(axis, TokenAxis) or not axis.words:
        return axis, None
    if len(axis.words) != len(axis):
        raise ValueError(f"words must name a word for each of {len(axis)} tokens, but has {len(axis.words)}")
    index = {word: number for number, word in enumerate(dict.fromkeys(axis.words))}
    continued = [word == before for before, word in zip((None, *axis.words), axis.words, strict=False)]
    marked = _is_wordpiece(axis.tokens, continued)
    texts = [""] * len(index)
    for token, continues, word in zip(axis.tokens, continued, axis.words, strict=True):
        texts[index[word]] += token.removeprefix(CONTINUATION) if continues and marked else token
    words = TokenAxis(axis.role, tuple(text.strip() or text for text in texts))
    return words, torch.tensor([index[word] for word in axis.words])


def _is_wordpiece(tokens: Sequence[str], continued: Sequence[bool]) -> bool:
    """Whether the pieces inside words are those of WordPiece: `##` before each, except at punctuation (didn ' t)."""
    before = ""
    for token, continues in zip(tokens, continued, strict=True):
        marked = token.startswith(CONTINUATION) and token != CONTINUATION
        if continues and not marked and not _is_punctuation(token) and not _is_punctuation(before):
            return False
        before = token
    return True


def _is_punctuation(token: str) -> bool:
    """Whether a token is one character that is no letter or digit, which WordPiece separates from the letters."""
    return len(token) == 1 and not token.isalnum()


def mean_heads(attention: AttentionMap) -> AttentionMap:
    """Return the mean over the heads: (1, Q, K)."""
    return replace(attention, source=attention.weights.mean(0, keepdim=True))


def one_head(attention: AttentionMap, head: int) -> AttentionMap:
    """Return one head, counted from 0: (1, Q, K)."""
    heads = attention.shape[0]
    if not 0 <= head < heads:
        raise UsageError(f"head must be 0 to {heads - 1} in '{attention.name}', but is {head}")
    return replace(attention, source=attention.rows(0, attention.shape[1], head=head))


def head_weights(attention: AttentionMap) -> Tensor:
    """Return the weights (Q, K) of a map with one head."""
    if attention.shape[0] != 1:
        raise ValueError(
            f"'{attention.name}' must have one head, but has {attention.shape[0]}; use mean_heads or one_head"
        )
    return attention.weights[0]


def cross_attention(maps: Iterable[AttentionMap] | Mapping[str, AttentionMap]) -> list[AttentionMap]:
    """Return the maps from one sequence to another: those whose queries and keys have different roles."""
    values = maps.values() if isinstance(maps, Mapping) else maps
    return [attention for attention in values if attention.queries.role != attention.keys.role]


def strip_ends(attention: AttentionMap) -> AttentionMap:
    """Return the map without the last token of each axis of tokens: end-of-sequence tokens align with nothing."""
    queries, keys = _without_end(attention.queries), _without_end(attention.keys)
    return AttentionMap(attention.name, attention.weights[:, : len(queries), : len(keys)], queries, keys)


def _without_end(axis: Axis) -> Axis:
    return TokenAxis(axis.role, axis.tokens[:-1], axis.words[:-1]) if isinstance(axis, TokenAxis) else axis


def align(attention: AttentionMap, *, threshold: float = 0.0) -> list[tuple[int, int]]:
    """Return the alignment (source, target) of a map with one head: the strongest key of each query.

    Weights below `threshold` align nothing.
    """
    return _strongest(head_weights(attention), threshold)


def _strongest(weights: Tensor, threshold: float = 0.0) -> list[tuple[int, int]]:
    top, keys = weights.max(-1)  # (Q,)
    pairs = zip(keys.tolist(), top.tolist(), strict=True)
    return sorted((key, query) for query, (key, weight) in enumerate(pairs) if weight > 0 and weight >= threshold)


def format_alignment(pairs: Iterable[tuple[int, int]]) -> str:
    """Return an alignment as text in the Pharaoh format, source-target from 0: '0-0 1-2'."""
    return " ".join(f"{source}-{target}" for source, target in sorted(pairs))


def parse_alignment(text: str) -> set[tuple[int, int]]:
    """Return the pairs of an alignment in the Pharaoh format; an empty line has none."""
    pairs = set()
    for number, part in enumerate(text.split(), 1):
        match = PAIR.fullmatch(part)
        if not match:
            raise DataError(
                f"an alignment must be source-target numbers from 0, such as '0-0 1-2', but pair {number} is '{part}'"
            )
        pairs.add((int(match[1]), int(match[2])))
    return pairs


@dataclass(frozen=True)
class AlignmentHead:
    """The attention head that aligns words best; head None: the mean over the heads of the layer."""

    name: str
    head: int | None
    score: float
    criterion: str
    """information or alignment error"""

    def select(self, maps: Iterable[AttentionMap] | Mapping[str, AttentionMap]) -> AttentionMap:
        """Return the map of this head over words: (1, target words, source words)."""
        values = maps.values() if isinstance(maps, Mapping) else maps
        for attention in values:
            if attention.name == self.name:
                return merge_words(mean_heads(attention) if self.head is None else one_head(attention, self.head))
        raise UsageError(f"the maps must include '{self.name}', which was chosen to align words, but do not")


def information(weights: Tensor) -> float | None:
    """Mutual information of target and source position under the weights (Q, K), normalized: 0 none, 1 all.

    I = H(mean row) - mean H(row), over log min(Q, K): coverage of the source minus the entropy of the rows. Uniform
    attention has 0, and so has a sharp head that always attends to the same key; a one-to-one alignment in any order
    has 1. None where an axis has fewer than two positions.
    """
    rows = weights[weights.sum(-1) > 0].double()
    if min(rows.shape) < 2:
        return None
    rows = rows / rows.sum(-1, keepdim=True)
    return float(row_entropy(rows.mean(0)) - row_entropy(rows).mean()) / math.log(min(rows.shape))


def row_entropy(weights: Tensor) -> Tensor:
    """Return the entropy over the last axis in nats, whatever its sum; 0 for a row of zeros."""
    probs = weights / weights.sum(-1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
    return -torch.xlogy(probs, probs).sum(-1)


def choose_alignment_head(
    sentences: Sequence[Sequence[AttentionMap]], gold: Sequence[set[tuple[int, int]]] | None = None
) -> AlignmentHead:
    """Choose the head, or the mean of a layer, to align words by, from the cross-attention of several sentences.

    With gold alignments: the lowest alignment error rate 1 - 2 hits / (predicted + gold) (Och & Ney 2003). Otherwise:
    the most `information`, which needs no gold but cannot detect a head that attends to the word next to the right one.
    """
    if not sentences or not sentences[0]:
        raise DataError("a head can be chosen only from cross-attention, but there is none")
    if gold is not None and len(gold) != len(sentences):
        raise DataError(f"alignments must be one per sentence, but are {len(gold)} for {len(sentences)} sentences")
    if gold is not None and not any(gold):
        raise DataError("alignments must have at least one pair, but all are empty")
    layout = [(attention.name, attention.shape[0]) for attention in sentences[0]]
    if any([(attention.name, attention.shape[0]) for attention in maps] != layout for maps in sentences):
        raise ValueError(f"every sentence must have the same layers and heads {layout}")
    merged = [[merge_words(attention).weights for attention in maps] for maps in sentences]
    best: AlignmentHead | None = None
    for layer, (name, heads) in enumerate(layout):
        for head in [*range(heads), None]:
            weights = [maps[layer].mean(0) if head is None else maps[layer][head] for maps in merged]
            score = _mean_information(weights) if gold is None else -_error_rate(weights, gold)
            if best is None or score > best.score:
                best = AlignmentHead(name, head, score, "information" if gold is None else "alignment error")
    assert best is not None
    return best if gold is None else replace(best, score=-best.score)


def _mean_information(maps: Sequence[Tensor]) -> float:
    """Return the mean information of the maps (Q, K) large enough to have any."""
    values = [value for weights in maps if (value := information(weights)) is not None]
    return sum(values) / len(values) if values else 0.0


def _error_rate(maps: Sequence[Tensor], gold: Sequence[set[tuple[int, int]]]) -> float:
    """Return the alignment error rate of maps (Q, K) over all sentences together."""
    hits = total = 0
    for weights, links in zip(maps, gold, strict=True):
        predicted = set(_strongest(weights))
        hits += len(predicted & links)
        total += len(predicted) + len(links)
    return 1 - 2 * hits / total
