"""Patterns of attention heads: what each head attends to, by the mean weight of each kind of key over its queries.

Shapes: H heads, R sampled queries, K keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.core import AttentionMap, Axis, TokenAxis
from saccade.look.maps import is_self_attention
from saccade.look.search import SPECIAL, is_word
from saccade.look.view import SAMPLED, head_statistics

DOMINANT = 0.5  # of the weight: a pattern with more of it names the head
UNIFORM, PEAKED = 0.9, 0.2  # normalized entropy of a head without a pattern


@dataclass(frozen=True)
class HeadPattern:
    """What a head attends to; scores are mean weights from 0 to 1, over the queries that have such a key."""

    entropy: float
    """normalized: 0 one key, 1 uniform over all keys it may see"""
    distance: float
    """positions between query and key, weighted; meaningless between two sequences"""
    scores: dict[str, float]

    @property
    def name(self) -> str:
        """The pattern with most of the weight; without one, whether the head is broad or peaked."""
        if self.scores:
            best = max(self.scores, key=lambda name: self.scores[name])
            if self.scores[best] > DOMINANT:
                return best
        return "broad" if self.entropy > UNIFORM else "peaked" if self.entropy < PEAKED else "mixed"


def head_patterns(attention: AttentionMap) -> list[HeadPattern]:
    """Return the pattern of every head of a map, of a long text over an even sample of its queries."""
    queries = attention.shape[1]
    step = max(1, -(-queries // SAMPLED))
    weights = attention.rows(0, queries, step=step).float().cpu()  # (H, R, K)
    rows = list(range(0, queries, step))
    kinds = _self_kinds(attention.queries, rows) if is_self_attention(attention) else {}
    kinds |= _key_kinds(attention.keys, len(rows))
    means = {name: _mean_weight(weights, kind) for name, kind in kinds.items() if bool(kind.any())}
    return [
        HeadPattern(one.entropy, one.distance, {name: float(mean[head]) for name, mean in means.items()})
        for head, one in enumerate(head_statistics(attention))
    ]


def head_pictures(attention: AttentionMap, size: int) -> Tensor:
    """Return every head in small (H, at most size, at most size): even rows, the largest of adjacent keys.

    The weights keep their size, so that heads can be compared.
    """
    heads, queries, keys = attention.shape
    if not queries or not keys:
        return torch.zeros(heads, 0, 0)
    weights = attention.rows(0, queries, step=-(-queries // size)).float().cpu()
    wide = -(-keys // size)
    pooled: Tensor = F.pad(weights, (0, -keys % wide)).unflatten(2, (-1, wide)).amax(-1)
    return pooled


def _mean_weight(weights: Tensor, kind: Tensor) -> Tensor:
    """Return the weight of a kind of key (R, K), averaged over the queries that have one: (H,)."""
    has = kind.any(-1)
    return (weights[:, has] * kind[has]).sum(-1).mean(-1)


def _self_kinds(axis: Axis, rows: Sequence[int]) -> dict[str, Tensor]:
    """Return which keys (R, K) stand in a certain relation to each query of the same sequence."""
    keys, at = torch.arange(len(axis))[None], torch.tensor(rows)[:, None]
    kinds = {"same token": keys == at, "previous token": keys == at - 1, "next token": keys == at + 1}
    if not isinstance(axis, TokenAxis):
        return kinds
    number = {label: index for index, label in enumerate(dict.fromkeys(axis.labels))}
    labels = torch.tensor([number[label] for label in axis.labels])
    if axis.words:
        words = torch.tensor(axis.words)
        kinds["same word"] = (words[None] == words[rows][:, None]) & (keys != at)
    repeated = (labels[None] == labels[rows][:, None]) & (keys != at)
    kinds["repeated token"] = repeated
    after = torch.zeros_like(repeated)
    after[:, 1:] = repeated[:, :-1]
    kinds["induction"] = after & (keys <= at)  # the token after an earlier occurrence of the query
    return kinds


def _key_kinds(axis: Axis, rows: int) -> dict[str, Tensor]:
    """Return which keys (R, K) are of a certain kind, whatever the query."""
    keys = torch.arange(len(axis))
    kinds = {"first token": keys == 0}
    if isinstance(axis, TokenAxis):
        special = torch.tensor([bool(SPECIAL.fullmatch(label.strip())) for label in axis.labels], dtype=torch.bool)
        words = torch.tensor([is_word(label) for label in axis.labels], dtype=torch.bool)
        kinds |= {"special token": special, "punctuation": ~special & ~words}
    return {name: kind[None].expand(rows, -1) for name, kind in kinds.items()}
