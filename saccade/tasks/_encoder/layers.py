"""Layers: which of an encoder's layers stand for a token, as in section 5.3 of the BERT paper.

Shapes: T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

LAYERS = {
    "first": "the embeddings, before any layer",
    "last": "the last layer",
    "second_to_last": "the layer before the last",
    "sum": "the sum of all layers, without the embeddings",
    "sum_last_4": "the sum of the last four layers",
    "concat_last_4": "the last four layers side by side",
}


def combine(states: Sequence[Tensor], layers: str) -> Tensor:
    """The embeddings and what came out of each layer, (..., T, D) each -> (..., T, D or 4 D)."""
    inner = list(states[1:])
    last = inner[-4:]
    if layers == "first":
        return states[0]
    if layers == "last":
        return states[-1]
    if layers == "second_to_last":
        return states[-2]
    if layers == "sum":
        return torch.stack(inner).sum(0)
    if layers == "sum_last_4":
        return torch.stack(last).sum(0)
    return torch.cat(last, dim=-1)
