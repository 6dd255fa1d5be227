"""Location-aware attention: where a token attends depends on where the tokens before it attended.

Chorowski et al., https://arxiv.org/abs/1506.07503. Shapes: B rows, K keys, D width, C filters.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from saccade.nn.ablation import apply_ablations
from saccade.nn.attention import Additive, Attention
from saccade.nn.cache import LayerCache
from saccade.nn.linear import Linear
from saccade.nn.listeners import emit
from saccade.nn.masks import KernelMask, Mask, Padding
from saccade.nn.probe import notify

FILTERS, REACH = 16, 25  # a filter sees the weights of this many keys on each side


@dataclass(frozen=True, eq=False)
class LocationBias(Padding):
    """No query sees a padding key; `bias` (B, 1, 1, K) is added to the scores of the only query."""

    bias: Tensor

    def score_bias(self, query: Tensor, key: Tensor) -> Tensor:
        return self.bias[..., key]


class LocationAttention(Attention):
    """Attention of one token after the other over a memory, which knows the weights of the tokens before.

    score(q, k_j) + g(q).(F * a)_j: a are the weights of the token before, and the sum of those of all tokens before; F
    are filters over the keys, g is linear. (Chorowski et al. have F * a of the token before inside of the tanh.)
    """

    def __init__(self, dim: int, memory_dim: int) -> None:
        super().__init__(dim, 1, memory_dim=memory_dim, score=Additive(dim))
        self.filters = nn.Conv1d(2, FILTERS, 2 * REACH + 1, padding=REACH, bias=False)
        self.gate = Linear(dim, FILTERS)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Mask | KernelMask | None = None,
        cache: LayerCache | None = None,
        queries: int | None = None,
    ) -> Tensor:
        """Return the outputs (B, 1, D) of one token (B, 1, D) of each row; the cache keeps the weights so far."""
        assert memory is not None and isinstance(mask, KernelMask) and cache is not None and queries is None
        beams = len(x) // len(memory)  # rows that share one memory
        q = self._project_queries(x, 0)  # (B, 1, 1, D)
        k, v = (part.repeat_interleave(beams, 0) for part in cache.remember(lambda: self._project_memory(memory)))
        before = cache.state[0] if cache.state else _first_weights(k)
        filtered = self.filters(before.to(self.filters.weight.dtype))  # (B, C, K)
        bias = self.gate(x).to(filtered.dtype) @ filtered  # (B, 1, K)
        located = LocationBias(mask.allowed(0, 1)[:, 0, 0].repeat_interleave(beams, 0), bias[:, None])
        lowered = located.lower(1, k.shape[2], 0, x.device)
        emit(self, x, memory, lowered)
        notify(self, q, k, lowered, cache)
        weights = self.weights(q, k, lowered.allowed(0, 1))  # (B, 1, 1, K)
        y = apply_ablations(self, q, k, v, lowered, weights.to(v.dtype) @ v)
        last = weights[:, 0].to(before.dtype)  # (B, 1, K)
        cache.state = (torch.cat((last, before[:, 1:] + last), dim=1),)
        result: Tensor = self.out(y[:, 0])
        return result


def _first_weights(k: Tensor) -> Tensor:
    """Return the weights (B, 2, K) before the first token: all on the first key."""
    before = k.new_zeros(len(k), 2, k.shape[2], dtype=torch.promote_types(k.dtype, torch.float32))
    before[:, :, 0] = 1.0
    return before
