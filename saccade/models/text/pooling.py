"""Pooling: one vector for each text from the vectors of its tokens, as sentence-transformers computes it.

Shapes: B rows, T tokens, D width, M modes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.models.text.bert import pool

PoolingMode = Literal["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
POOLING_MODES: tuple[PoolingMode, ...] = get_args(PoolingMode)


@dataclass(frozen=True)
class SentencePooling:
    """How the vectors of tokens become the vector of a text: one mode, or several concatenated."""

    modes: tuple[PoolingMode, ...] = ("mean",)
    normalize: bool = False
    """scale the vector to length 1"""
    skip: int = 0
    """leading tokens that are not pooled: those of a prompt"""

    def __call__(self, features: Tensor, keep: Tensor | None) -> Tensor:
        """Return one vector for each text: (B, T, D) -> (B, M D); `keep` (B, T) is the padding mask."""
        if self.skip:
            pooled = torch.arange(features.shape[1], device=features.device).expand(features.shape[:2]) >= self.skip
            keep = pooled if keep is None else keep & pooled
        vectors = torch.cat([_POOL[mode](features, keep) for mode in self.modes], dim=-1)
        return F.normalize(vectors, dim=-1) if self.normalize else vectors


def _first(features: Tensor, keep: Tensor | None) -> Tensor:
    return features[:, 0] if keep is None else _at(features, keep.int().argmax(1))


def _last(features: Tensor, keep: Tensor | None) -> Tensor:
    if keep is None:
        return features[:, -1]
    position = torch.arange(1, keep.shape[1] + 1, device=features.device)
    return _at(features * keep[..., None], (position * keep).argmax(1))


def _max(features: Tensor, keep: Tensor | None) -> Tensor:
    return (features if keep is None else features.masked_fill(~keep[..., None], -torch.inf)).amax(1)


def _mean(features: Tensor, keep: Tensor | None) -> Tensor:
    return pool(features, keep, "mean")


def _mean_sqrt(features: Tensor, keep: Tensor | None) -> Tensor:
    weights = _ones(features) if keep is None else keep.to(features.dtype)
    return _sum(features, weights) / weights.sum(1, keepdim=True).sqrt()


def _weighted_mean(features: Tensor, keep: Tensor | None) -> Tensor:
    """Return the mean weighted by position, from 1; tokens after those that are not pooled keep their position."""
    weights = _ones(features).cumsum(1)  # (B, T)
    weights = weights if keep is None else weights * keep
    return _sum(features, weights) / weights.sum(1, keepdim=True)


def _at(features: Tensor, positions: Tensor) -> Tensor:
    return features[torch.arange(len(features), device=features.device), positions]


def _ones(features: Tensor) -> Tensor:
    return features.new_ones(features.shape[:2])


def _sum(features: Tensor, weights: Tensor) -> Tensor:
    return (features * weights[..., None]).sum(1)


_POOL: Mapping[PoolingMode, Callable[[Tensor, Tensor | None], Tensor]] = {
    "cls": _first,
    "max": _max,
    "mean": _mean,
    "mean_sqrt_len_tokens": _mean_sqrt,
    "weightedmean": _weighted_mean,
    "lasttoken": _last,
}
