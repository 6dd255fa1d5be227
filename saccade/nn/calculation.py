"""Calculation: the steps of one attention head for one query, with the weights of the layer itself.

Shapes: D width, E head width, H heads, G key/value heads, K keys, O outputs, I inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.nn.attention import Attention, Dot, repeat_heads
from saccade.nn.layers import ResidualStep
from saccade.nn.linear import is_plain
from saccade.nn.listeners import listening
from saccade.nn.masks import KernelMask, Mask, of_heads, visible

Inputs = tuple[Tensor, Tensor | None, Mask | KernelMask | None]
"""x (B, Q, D), memory (B, K, its width) and mask of one call"""


class Projection(NamedTuple):
    """An affine map: y = W x + b."""

    matrix: Tensor  # (O, I)
    bias: Tensor | None  # (O,)

    def rows(self, first: int, last: int) -> Projection:
        """Return the part that gives some of the outputs."""
        return Projection(self.matrix[first:last], None if self.bias is None else self.bias[first:last])

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.matrix, self.bias)

    @classmethod
    def of(cls, module: nn.Module, inputs: int, like: Tensor) -> Projection:
        """Return the map of a linear layer, which may be quantized, have an adapter, or only add a vector."""
        if is_plain(module):
            return cls(module.weight, module.bias)
        bias = module(like.new_zeros(inputs))
        columns: Tensor = module(torch.eye(inputs, dtype=like.dtype, device=like.device)) - bias  # (I, O)
        return cls(columns.t(), bias if bool(bias.any()) else None)


@dataclass(frozen=True)
class Calculation:
    """All intermediate values of one head for one query, from the inputs of the layer to its output."""

    x: Tensor  # (D,) input vector of the query token
    inputs: Tensor  # (K, D or the width of the memory) input vectors of the keys
    w_q: Projection  # (E, D) the rows of W_Q, W_K and W_V that belong to the head
    w_k: Projection
    w_v: Projection
    w_o: Projection  # (D, H E)
    projected: Tensor  # (E,) W_Q x + bias
    projected_k: Tensor  # (K, E)
    q: Tensor  # (E,) the same, with rotary position and normalization where the model has them
    k: Tensor  # (K, E)
    v: Tensor  # (K, E)
    dots: Tensor | None  # (K,) q.k; None where the score is not a dot product
    scale: float
    scores: Tensor  # (K,) input of the softmax
    allowed: Tensor  # (K,) visible keys
    weights: Tensor  # (K,)
    heads: Tensor  # (H, E) the mean of the values by the weights of each head
    head_output: Tensor  # (E,) that of the head
    concatenated: Tensor  # (H E,) outputs of all heads
    output: Tensor  # (D,) W_O concatenated + bias
    residual: ResidualStep | None = None  # (D,) each: the residual connection around the layer, where it has one


@contextmanager
def record_inputs(attention: Attention) -> Iterator[list[Inputs]]:
    """Collect the inputs of every call of an attention layer in this context while the block runs."""
    calls: list[Inputs] = []
    with listening([attention], lambda *inputs: calls.append(inputs)):
        yield calls


@torch.no_grad()
def calculate(
    attention: Attention, x: Tensor, memory: Tensor | None, mask: Mask | KernelMask | None, head: int, query: int
) -> Calculation:
    """Compute the steps of one head for one query of the first row; x (B, Q, D), memory (B, K, its width)."""
    q, k, v = project(attention, x, memory)
    row = visible_keys(mask, q.shape[2], k.shape[2], query, x.device)
    weights = attention.weights(q[:1, :, query : query + 1], k[:1], row)  # (1, H, 1, K)
    own = of_heads(row, slice(head, head + 1))[0, 0, 0]
    allowed = visible(own)
    added = torch.zeros_like(own, dtype=q.dtype) if own.dtype == torch.bool else own.masked_fill(~allowed, 0.0)
    heads = (weights @ repeat_heads(v[:1], attention.heads))[0, :, 0]  # (H, E)
    group = head // attention.queries_per_kv_head
    head_q, head_k = q[0, head, query], k[0, group]
    inputs = (x if memory is None else memory)[0]
    w_q, w_k, w_v = _projections(attention, x, memory, head)
    dot = isinstance(attention.score, Dot)
    return Calculation(
        x=x[0, query],
        inputs=inputs,
        w_q=w_q,
        w_k=w_k,
        w_v=w_v,
        w_o=Projection.of(attention.out, heads.numel(), x),
        projected=w_q(x[0, query]),
        projected_k=w_k(inputs),
        q=head_q,
        k=head_k,
        v=v[0, group],
        dots=head_k @ head_q if dot else None,
        scale=attention.score.factor(attention.head_dim) if isinstance(attention.score, Dot) else 1.0,
        scores=attention.score(head_q[None], head_k)[0] + added,
        allowed=allowed,
        weights=weights[0, head, 0],
        heads=heads,
        head_output=heads[head],
        concatenated=heads.flatten(),
        output=attention.out(heads.flatten()),
    )


def project(attention: Attention, x: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return q (B, H, Q, E), k and v (B, G, K, E) of one call, as the layer computes them."""
    if memory is None:
        return attention._project_self(x, 0)
    return attention._project_queries(x, 0), *attention._project_memory(memory)


def visible_keys(mask: Mask | KernelMask | None, queries: int, keys: int, query: int, device: torch.device) -> Tensor:
    """Return the row of a mask that belongs to a query of the first row, as `KernelMask.allowed`: (1, 1 or H, 1, K)."""
    lowered = mask.lower(queries, keys, 0, device) if isinstance(mask, Mask) else mask
    row = torch.ones(1, 1, 1, keys, dtype=torch.bool, device=device)
    if lowered is None:
        return row
    given = lowered.allowed(query, query + 1)[:1]
    return row & given if given.dtype == torch.bool else given


def _projections(attention: Attention, x: Tensor, memory: Tensor | None, head: int) -> list[Projection]:
    """Return the parts of W_Q, W_K and W_V that belong to a head."""
    width, group = attention.head_dim, head // attention.queries_per_kv_head
    q_width, kv_width = attention.heads * width, attention.kv_heads * width
    if memory is not None:
        to_q, to_kv = (Projection.of(attention.q, x.shape[-1], x), Projection.of(attention.kv, memory.shape[-1], x))
        starts = ((to_q, head * width), (to_kv, group * width), (to_kv, kv_width + group * width))
    else:
        joint = Projection.of(attention.qkv, x.shape[-1], x)
        shared = len(joint.matrix) == q_width  # one projection as q, k and v
        first_k, first_v = (0, 0) if shared else (q_width, q_width + kv_width)
        starts = ((joint, head * width), (joint, first_k + group * width), (joint, first_v + group * width))
    return [projection.rows(start, start + width) for projection, start in starts]
