"""Attention rollout: how much each input reaches each position through all layers (Abnar & Zuidema 2020).

Shapes: H heads, Q queries, K keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from saccade.core import AttentionMap, NodeAxis, Prediction
from saccade.errors import UsageError
from saccade.look.maps import check_axes, is_self_attention, same_axis

NAME = "rollout"
POSITIONS = 1024  # most of a sequence whose layers are multiplied


def rollout(maps: Sequence[AttentionMap]) -> AttentionMap:
    """Return the product of layers over one sequence, lowest layer first: (1, Q, K).

    Each layer is 0.5 A + 0.5 I, A the mean of its heads and I the residual connection, with rows that sum to 1.
    """
    check_axes(maps)
    first = maps[0]
    if first.queries.labels != first.keys.labels:
        raise UsageError(f"rollout must have self-attention, but '{first.name}' is cross-attention")
    through = eye = torch.eye(len(first.keys))
    for attention in maps:
        layer = 0.5 * attention.weights.mean(0).cpu() + 0.5 * eye
        through = layer / layer.sum(-1, keepdim=True) @ through  # (Q, K)
    return replace(first, name=NAME, source=through[None])


def rollout_layers(prediction: Prediction) -> list[AttentionMap]:
    """Return the layers to multiply: the self-attention of the first sequence; none if it has one layer or is long.

    A part of a graph has none either: what reaches a node through nodes outside it is not known.
    """
    maps = [attention for attention in prediction.attention.values() if is_self_attention(attention)]
    maps = [
        attention for attention in maps if not (isinstance(attention.queries, NodeAxis) and attention.queries.part_of)
    ]
    layers = [attention for attention in maps if same_axis(attention.queries, maps[0].queries)]
    return layers if len(layers) > 1 and len(layers[0].queries) <= POSITIONS else []
