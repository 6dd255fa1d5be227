"""Calculation: one head for one query, number by number, with the weights of the layer itself.

Shapes: D width, E head width, K keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from saccade.nn.attention import Attention, Dot, repeat_heads
from saccade.nn.listeners import listening
from saccade.nn.masks import KernelMask, Mask

Inputs = tuple[Tensor, Tensor | None, Mask | KernelMask | None]
"""x (B, Q, D), memory (B, K, its width) and mask of one call"""


@dataclass(frozen=True)
class Calculation:
    """From the vector of a token to what the layer adds to it."""

    x: Tensor  # (D,) the token as it comes in
    matrix: Tensor  # (E, D) the part of W_Q that belongs to the head
    bias: Tensor | None  # (E,)
    plain: Tensor  # (E,) W_Q x + bias
    q: Tensor  # (E,) the same, turned by its place and brought to one length where the model does that
    k: Tensor  # (K, E)
    v: Tensor  # (K, E)
    fits: Tensor | None  # (K,) q.k; None where the fit is no dot product
    scale: float
    scores: Tensor  # (K,) what goes into the softmax
    allowed: Tensor  # (K,) which keys may be seen
    weights: Tensor  # (K,)
    mixed: Tensor  # (E,) the mean of the values by these weights
    joined: Tensor  # (D,) what all heads say, side by side
    output: Tensor  # (D,) W_O joined + bias


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
    """The steps of one head for one query of the first row, over inputs (B, Q, D) and a memory (B, K, its width)."""
    width, group = attention.head_dim, head // attention.queries_per_kv_head
    rows = slice(head * width, (head + 1) * width)
    if memory is None:
        q, k, v = attention._self(x, 0)
        linear = attention.qkv
    else:
        q, (k, v) = attention._place(attention.q(x), attention.heads, 0), attention._memory(memory)
        linear = attention.q
    matrix, bias = linear.weight[rows], None if linear.bias is None else linear.bias[rows]
    plain = matrix @ x[0, query] if bias is None else matrix @ x[0, query] + bias
    lowered = mask.lower(q.shape[2], k.shape[2], 0, x.device) if isinstance(mask, Mask) else mask
    allowed = torch.ones(1, 1, 1, k.shape[2], dtype=torch.bool, device=x.device)
    if lowered is not None:
        allowed = allowed & lowered.allowed(query, query + 1)[:1]
    weights = attention.weights(q[:1, :, query : query + 1], k[:1], allowed)  # (1, H, 1, K)
    joined = (weights @ repeat_heads(v[:1], attention.heads)).flatten()
    mine, keys = q[0, head, query], k[0, group]
    dot = isinstance(attention.score, Dot)
    return Calculation(
        x=x[0, query],
        matrix=matrix,
        bias=bias,
        plain=plain,
        q=mine,
        k=keys,
        v=v[0, group],
        fits=keys @ mine if dot else None,
        scale=attention.score.factor(width) if isinstance(attention.score, Dot) else 1.0,
        scores=attention.score(mine[None], keys)[0],
        allowed=allowed[0, 0, 0],
        weights=weights[0, head, 0],
        mixed=weights[0, head, 0] @ v[0, group],
        joined=joined,
        output=attention.out(joined),
    )
