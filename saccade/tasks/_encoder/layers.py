"""Layers: token representations from one or several layers of an encoder, as in section 5.3 of the BERT paper.

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
    "concat_last_4": "the last four layers, concatenated",
}


def combine(states: Sequence[Tensor], layers: str) -> Tensor:
    """Combine the embeddings and the output of each layer, (..., T, D) each -> (..., T, D or 4 D)."""
    outputs = list(states[1:])
    if layers == "first":
        return states[0]
    if layers == "last":
        return states[-1]
    if layers == "second_to_last":
        return states[-2]
    if layers == "sum":
        return torch.stack(outputs).sum(0)
    if layers == "sum_last_4":
        return torch.stack(outputs[-4:]).sum(0)
    return torch.cat(outputs[-4:], dim=-1)
