"""Calculation: the steps of one attention head for one query, with the weights of the layer itself.

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
from saccade.nn.masks import KernelMask, Mask, of_heads, visible

Inputs = tuple[Tensor, Tensor | None, Mask | KernelMask | None]
"""x (B, Q, D), memory (B, K, its width) and mask of one call"""


@dataclass(frozen=True)
class Calculation:
    """All intermediate values from the input vector of a token to the output of the layer."""

    x: Tensor  # (D,) input vector of the query token
    matrix: Tensor  # (E, D) the rows of W_Q that belong to the head
    bias: Tensor | None  # (E,)
    projected: Tensor  # (E,) W_Q x + bias
    q: Tensor  # (E,) the same, with rotary position and normalization where the model has them
    k: Tensor  # (K, E)
    v: Tensor  # (K, E)
    dots: Tensor | None  # (K,) q.k; None where the score is not a dot product
    scale: float
    scores: Tensor  # (K,) input of the softmax
    allowed: Tensor  # (K,) visible keys
    weights: Tensor  # (K,)
    head_output: Tensor  # (E,) mean of the values by these weights
    concatenated: Tensor  # (D,) outputs of all heads
    output: Tensor  # (D,) W_O concatenated + bias


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
    width, group = attention.head_dim, head // attention.queries_per_kv_head
    rows = slice(head * width, (head + 1) * width)
    if memory is None:
        q, k, v = attention._project_self(x, 0)
        linear = attention.qkv
    else:
        q, (k, v) = attention._project_queries(x, 0), attention._project_memory(memory)
        linear = attention.q
    matrix, bias = linear.weight[rows], None if linear.bias is None else linear.bias[rows]
    projected = matrix @ x[0, query] if bias is None else matrix @ x[0, query] + bias
    lowered = mask.lower(q.shape[2], k.shape[2], 0, x.device) if isinstance(mask, Mask) else mask
    row = torch.ones(1, 1, 1, k.shape[2], dtype=torch.bool, device=x.device)
    if lowered is not None:
        given = lowered.allowed(query, query + 1)[:1]
        row = row & given if given.dtype == torch.bool else given
    weights = attention.weights(q[:1, :, query : query + 1], k[:1], row)  # (1, H, 1, K)
    own = of_heads(row, slice(head, head + 1))[0, 0, 0]
    allowed = visible(own)
    added = torch.zeros_like(own, dtype=q.dtype) if own.dtype == torch.bool else own.masked_fill(~allowed, 0.0)
    concatenated = (weights @ repeat_heads(v[:1], attention.heads)).flatten()
    head_q, head_k = q[0, head, query], k[0, group]
    dot = isinstance(attention.score, Dot)
    return Calculation(
        x=x[0, query],
        matrix=matrix,
        bias=bias,
        projected=projected,
        q=head_q,
        k=head_k,
        v=v[0, group],
        dots=head_k @ head_q if dot else None,
        scale=attention.score.factor(width) if isinstance(attention.score, Dot) else 1.0,
        scores=attention.score(head_q[None], head_k)[0] + added,
        allowed=allowed,
        weights=weights[0, head, 0],
        head_output=weights[0, head, 0] @ v[0, group],
        concatenated=concatenated,
        output=attention.out(concatenated),
    )
