"""Attention over several layers: axes, means and entropy.

Shapes: H heads, Q queries, K keys.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from saccade.core import AttentionMap, Axis
from saccade.errors import UsageError
from saccade.look.labels import visible
from saccade.metrics.alignment import align, mean_heads, merge_words, row_entropy, word_axis


def same_axis(first: Axis, second: Axis) -> bool:
    """Whether two axes show the same positions."""
    return first is second or (
        type(first) is type(second) and first.role == second.role and first.labels == second.labels
    )


def is_self_attention(attention: AttentionMap) -> bool:
    """Whether a sequence attends to itself."""
    return same_axis(attention.queries, attention.keys)


def word_labels(axis: Axis) -> list[str]:
    """Return the words of an axis as they are displayed, its tokens merged."""
    return [visible(label) for label in word_axis(axis)[0].labels]


def word_alignment(attention: AttentionMap) -> list[tuple[int, int]]:
    """Return the alignment (source word, target word) of a map with one head."""
    return align(merge_words(attention))


def mean(maps: Sequence[AttentionMap]) -> AttentionMap:
    """Return the mean over all heads of all layers: (1, Q, K)."""
    check_axes(maps)
    return mean_heads(replace(maps[0], name="mean", source=torch.cat([attention.weights for attention in maps])))


def check_axes(maps: Sequence[AttentionMap]) -> None:
    """Refuse maps of different sequences, and none at all."""
    if not maps:
        raise UsageError("maps must be at least one, but there is none; choose a layer that the model has")
    first = maps[0]
    for attention in maps:
        if not (same_axis(attention.queries, first.queries) and same_axis(attention.keys, first.keys)):
            raise UsageError(
                f"maps must have the same axes, but '{first.name}' is {_size(first)} and '{attention.name}' is "
                f"{_size(attention)} of other tokens; choose maps of the same sequences"
            )


def _size(attention: AttentionMap) -> str:
    return f"{len(attention.queries)} x {len(attention.keys)}"


def entropy(attention: AttentionMap) -> list[float]:
    """Return the normalized entropy of each head: 0 one key, 1 uniform; the mean over its queries (nan without any)."""
    weights = attention.weights.double()
    scale = math.log(max(weights.shape[-1], 2))  # a single key has no entropy
    return [float(row_entropy(head[head.sum(-1) > 0]).mean()) / scale for head in weights]
