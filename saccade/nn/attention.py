"""Multi-head attention: the one layer in which tokens exchange information.

Shapes: B rows, H heads, G key/value heads, Q queries, K keys, T tokens, D width, E head width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.nn.ablation import apply_ablations
from saccade.nn.cache import LayerCache
from saccade.nn.edges import Edges, edge_dot, edge_softmax, edge_sum
from saccade.nn.kernels import dropout as drop
from saccade.nn.kernels import needs_second_derivative, rms_normalize
from saccade.nn.linear import Linear
from saccade.nn.listeners import emit
from saccade.nn.masks import CausalWindow, KernelMask, Mask, Padding, visible
from saccade.nn.onednn_attention import attends_by_onednn, onednn_attention
from saccade.nn.packed import Kernel
from saccade.nn.probe import notify

Rotate = Callable[[Tensor, int | Tensor], Tensor]


class Dot(nn.Module):
    """Dot-product score: q.k, times 1/sqrt(E) unless another scale is given (1.0: the plain dot product)."""

    def __init__(self, scale: float | None = None) -> None:
        super().__init__()
        self.scale = scale

    def prepare(self, x: Tensor, queries: int) -> Tensor:
        """Transform heads (B, T, H, E), the first `queries` of which are queries and the others keys."""
        return x

    def factor(self, width: int) -> float:
        return 1 / math.sqrt(width) if self.scale is None else self.scale

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return torch.matmul(q, k.transpose(-2, -1)) * self.factor(q.shape[-1])  # (B, H, Q, K)

    def along(self, q: Tensor, k: Tensor, edges: Edges) -> Tensor:
        """Return the score of each edge (B, H, M), from q and k of the nodes (B, H, N, E)."""
        return edge_dot(q * self.factor(q.shape[-1]), k, edges)


class Cosine(Dot):
    """Cosine score: ten times the cosine of query and key (QK-norm, https://arxiv.org/abs/2010.04245)."""

    def prepare(self, x: Tensor, queries: int) -> Tensor:
        return rms_normalize(x)  # norm sqrt(E)

    def factor(self, width: int) -> float:
        return 10 / width if self.scale is None else self.scale


class QKNorm(Dot):
    """Dot-product score of queries and keys with root mean square 1: sqrt(E) times their cosine.

    With `gain` each feature of the queries and of the keys has a learned factor.
    """

    def __init__(self, head_dim: int, *, gain: bool = False, epsilon: float = 1e-6, scale: float | None = None) -> None:
        super().__init__(scale)
        self.epsilon = epsilon
        self.q_gain = nn.Parameter(torch.ones(head_dim)) if gain else None
        self.k_gain = nn.Parameter(torch.ones(head_dim)) if gain else None

    def prepare(self, x: Tensor, queries: int) -> Tensor:
        x = rms_normalize(x, self.epsilon)
        if self.q_gain is None or self.k_gain is None:
            return x
        gains = (self.q_gain.expand(queries, -1), self.k_gain.expand(x.shape[-2] - queries, -1))
        return x * torch.cat(gains)  # (H, E)


class Additive(nn.Module):
    """Additive score: w.tanh(q + k) (Bahdanau et al., https://arxiv.org/abs/1409.0473)."""

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(head_dim).uniform_(-1, 1) / math.sqrt(head_dim))

    def prepare(self, x: Tensor, queries: int) -> Tensor:
        return x

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return torch.tanh(q[..., :, None, :] + k[..., None, :, :]) @ self.weight  # (B, H, Q, K)

    def along(self, q: Tensor, k: Tensor, edges: Edges) -> Tensor:
        return torch.tanh(q[:, :, edges.target] + k[:, :, edges.source]) @ self.weight  # (B, H, M)


class LeakyAdditive(nn.Module):
    """Additive score of graph attention networks: LeakyReLU(a.q + b.k), with a and b of each head.

    GAT, https://arxiv.org/abs/1710.10903. Queries and keys are multiplied by a and b when they are prepared.
    """

    def __init__(self, heads: int, head_dim: int, slope: float = 0.2) -> None:
        super().__init__()
        self.slope = slope
        limit = math.sqrt(6 / (heads + head_dim))
        self.q_weight = nn.Parameter(torch.empty(heads, head_dim).uniform_(-limit, limit))
        self.k_weight = nn.Parameter(torch.empty(heads, head_dim).uniform_(-limit, limit))

    def prepare(self, x: Tensor, queries: int) -> Tensor:
        return x * torch.cat((self.q_weight[:queries], self.k_weight[: x.shape[-2] - queries]))  # (B, T, H, E)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return F.leaky_relu(q.sum(-1)[..., :, None] + k.sum(-1)[..., None, :], self.slope)  # (B, H, Q, K)

    def along(self, q: Tensor, k: Tensor, edges: Edges) -> Tensor:
        sums = q.sum(-1)[..., edges.target] + k.sum(-1)[..., edges.source]
        return F.leaky_relu(sums, self.slope)  # (B, H, M)


class Bilinear(nn.Module):
    """Bilinear score: q.W.k / sqrt(E) (Luong et al., https://arxiv.org/abs/1508.04025)."""

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(head_dim))

    def prepare(self, x: Tensor, queries: int) -> Tensor:
        return x

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ self.weight @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, Q, K)

    def along(self, q: Tensor, k: Tensor, edges: Edges) -> Tensor:
        return edge_dot(q @ self.weight / math.sqrt(q.shape[-1]), k, edges)  # (B, H, M)


Score = Dot | Additive | LeakyAdditive | Bilinear


@dataclass(frozen=True)
class Heads:
    """Number and width of the heads of an attention layer."""

    count: int
    """query heads"""
    kv: int = 0
    """key/value heads, each shared by several query heads (grouped-query attention); 0: as many as query heads"""
    width: int = 0
    """features of a head; 0: the width of the layer divided by the number of heads"""


def softmax(scores: Tensor, allowed: Tensor | None) -> Tensor:
    """Softmax over the allowed keys: exactly 0 elsewhere, and all 0 where no key is allowed."""
    if allowed is None:
        return scores.softmax(-1)
    if allowed.dtype != torch.bool:  # with a bias
        bias, allowed = allowed, visible(allowed)
        scores = scores + bias.masked_fill(~allowed, 0.0)
    empty = ~allowed.any(-1, keepdim=True)
    return scores.masked_fill(~(allowed | empty), -math.inf).softmax(-1).masked_fill(empty, 0.0)


def repeat_heads(x: Tensor, heads: int) -> Tensor:
    """Repeat each key/value head for the query heads that share it: (B, G, K, E) -> (B, H, K, E)."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)


def join_beams(q: Tensor, beams: int) -> Tensor:
    """Fold rows that share one memory into the queries of one row: (B N, H, Q, E) -> (B, H, N Q, E)."""
    return q if beams == 1 else q.unflatten(0, (-1, beams)).transpose(1, 2).flatten(2, 3)


def split_beams(y: Tensor, beams: int) -> Tensor:
    """Undo `join_beams`: (B, H, N Q, E) -> (B N, H, Q, E)."""
    return y if beams == 1 else y.unflatten(2, (beams, -1)).transpose(1, 2).flatten(0, 1)


def fused_attention(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """Compute attention by the fused kernel; on a CPU in float32: half precision is several times slower there."""
    if q.device.type != "cpu" or q.dtype not in (torch.bfloat16, torch.float16):
        return F.scaled_dot_product_attention(q, k, v, **options)
    with torch.autocast("cpu", enabled=False):
        return F.scaled_dot_product_attention(q.float(), k.float(), v.float(), **options).to(q.dtype)


class Attention(nn.Module):
    """Multi-head attention: each query gets a mean of the values, weighted by its scores with the keys.

    y = softmax(score(q, k)) v. Which keys: `mask`. Position: `rotate`. Similarity: `score`. Past calls: `cache`.
    """

    kernel: Kernel | None = None  # of a packed copy (`nn/packed.py`)

    def __init__(
        self,
        dim: int,
        heads: int | Heads,
        *,
        memory_dim: int | None = None,
        score: Score | None = None,
        rotate: Rotate | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        shape = heads if isinstance(heads, Heads) else Heads(heads)
        self.heads, self.kv_heads = shape.count, shape.kv or shape.count
        if not shape.width and dim % self.heads:
            raise ValueError(f"dim must be a multiple of heads, but {dim} is not a multiple of {self.heads}")
        if self.heads % self.kv_heads:
            raise ValueError(
                f"heads must be a multiple of kv_heads, but {self.heads} is not a multiple of {self.kv_heads}"
            )
        self.head_dim, self.dropout = shape.width or dim // self.heads, dropout
        self.rotate: Rotate | None = rotate
        self.score: Score = score or Dot()
        q_dim, kv_dim = self.heads * self.head_dim, 2 * self.kv_heads * self.head_dim
        if memory_dim is None:  # q, k and v of one input: one product
            self.qkv = Linear(dim, q_dim + kv_dim, bias=bias)
        else:
            self.q = Linear(dim, q_dim, bias=bias)
            self.kv = Linear(memory_dim, kv_dim, bias=bias)
        self.cross = memory_dim is not None
        self.out: nn.Module = Linear(q_dim, dim, bias=bias)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Mask | KernelMask | None = None,
        cache: LayerCache | None = None,
        queries: int | None = None,
    ) -> Tensor:
        """Return the outputs (B, Q, D); with `queries` and without a mask those of the first tokens only."""
        if self.cross != (memory is not None):
            rule = "must be given" if self.cross else "must be None"
            raise ValueError(f"memory {rule} for a layer {'with' if self.cross else 'without'} memory_dim")
        emit(self, x, memory, mask)
        start = cache.owner.start if cache else 0
        if memory is None:
            q, k, v = self._project_self(x, start)
            if cache is not None:
                k, v = cache.extend(k, v)
            if queries is not None:
                q = q[:, :, :queries]
        else:
            q = self._project_queries(x, start)
            project = partial(self._project_memory, memory)
            k, v = project() if cache is None else cache.remember(project)
        lowered = mask.lower(q.shape[2], k.shape[2], start, x.device) if isinstance(mask, Mask) else mask
        return self._output(q, k, v, lowered, cache)

    @property
    def queries_per_kv_head(self) -> int:
        """Query heads that share a key/value head."""
        return self.heads // self.kv_heads

    def _project_self(self, x: Tensor, start: int | Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Project the input to q, k and v; q and k are prepared together.

        Heads are split before they are transposed: their gradients are then joined by one copy.
        """
        q_heads, kv_heads = self.heads, self.kv_heads
        joint = self.qkv(x).unflatten(-1, (q_heads + 2 * kv_heads, self.head_dim))  # (B, T, H + 2 G, E)
        if self.rotate is None and type(self.score) is Dot:  # nothing to prepare
            q, k, v = joint.split((q_heads, kv_heads, kv_heads), dim=2)
        else:
            qk, v = joint.split((q_heads + kv_heads, kv_heads), dim=2)
            q, k = self._prepare(qk, start, q_heads).split((q_heads, kv_heads), dim=2)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)  # (B, H, T, E), (B, G, T, E) twice

    def _project_memory(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Project a memory to keys and values."""
        k, v = self.kv(memory).chunk(2, dim=-1)
        v = v.unflatten(-1, (self.kv_heads, self.head_dim)).transpose(1, 2)
        return self._split_heads(k, 0, 0, self.kv_heads), v  # (B, G, K, E) each

    def _project_queries(self, x: Tensor, start: int | Tensor) -> Tensor:
        """Project the input of a layer with a memory to queries: (B, H, Q, E)."""
        return self._split_heads(self.q(x), start, self.heads, 0)

    def _split_heads(self, x: Tensor, start: int | Tensor, queries: int, keys: int) -> Tensor:
        """Split into query and key heads and prepare them: (B, T, H E) -> (B, H, T, E)."""
        return self._prepare(x.unflatten(-1, (queries + keys, self.head_dim)), start, queries).transpose(1, 2)

    def _prepare(self, x: Tensor, start: int | Tensor, queries: int) -> Tensor:
        """Prepare heads (B, T, H, E), the first `queries` of which are queries, for the score and rotate them."""
        x = self.score.prepare(x, queries)
        return x if self.rotate is None else self.rotate(x, start)

    def _output(self, q: Tensor, k: Tensor, v: Tensor, lowered: KernelMask | None, cache: LayerCache | None) -> Tensor:
        """Attend, notify the probe, apply ablations and project the concatenated heads: (B, Q, D)."""
        notify(self, q, k, lowered, cache)
        beams = q.shape[0] // k.shape[0]  # rows that share one memory
        y = split_beams(self._attend(join_beams(q, beams), k, v, lowered), beams)  # (B, H, Q, E)
        y = apply_ablations(self, q, k, v, lowered, y)
        result: Tensor = self.out(y.transpose(1, 2).flatten(2))  # (B, Q, D)
        return result

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, lowered: KernelMask | None) -> Tensor:
        """Compute softmax(score(q, k)) v, by the fused kernel where the score allows it."""
        if lowered is not None and lowered.block:
            return self._attend_blocks(q, k, v, lowered.block)
        dropout = self.dropout if self.training else 0.0
        if lowered is not None and lowered.edges is not None:
            return self._attend_edges(q, repeat_heads(k, self.heads), repeat_heads(v, self.heads), lowered.edges)
        if (kernel := self.kernel) is not None and isinstance(self.score, Dot) and not dropout:
            by_kernel = kernel(q, k, v, None if lowered is None else lowered.mask, self.score.factor(self.head_dim))
            if by_kernel is not None:
                return by_kernel
        tensor, causal = (None, False) if lowered is None else (lowered.tensor, lowered.causal)
        if isinstance(self.score, Dot) and tensor is None and not causal and not dropout and attends_by_onednn(q, k):
            y = onednn_attention(q, k, v, self.score.factor(self.head_dim))
        elif isinstance(self.score, Dot) and not needs_second_derivative():
            y = fused_attention(
                q,
                k,
                v,
                attn_mask=tensor,
                dropout_p=dropout,
                is_causal=causal,
                scale=self.score.factor(self.head_dim),
                enable_gqa=self.queries_per_kv_head > 1,
            )
        else:
            weights = self.weights(q, k, None if lowered is None else lowered.allowed(0, q.shape[2]))
            y = F.dropout(weights, dropout) @ repeat_heads(v, self.heads)
        if lowered is not None and lowered.empty is not None:
            y = y.masked_fill(lowered.empty, 0.0)
        return y

    def _attend_edges(self, q: Tensor, k: Tensor, v: Tensor, edges: Edges) -> Tensor:
        """Compute attention along the edges of a graph, in memory that is linear in them."""
        if len(q) != 1:
            raise ValueError(f"several graphs must be one row of unconnected graphs, but are {len(q)} rows")
        scores = self.score.along(q, k, edges)  # (1, H, M)
        if edges.bias is not None:
            scores = scores + edges.bias.t()
        weights = drop(edge_softmax(scores, edges), self.dropout, self.training)
        return edge_sum(weights, v, edges)  # (1, H, N, E)

    def _attend_blocks(self, q: Tensor, k: Tensor, v: Tensor, size: int) -> Tensor:
        """Compute attention under a `CausalWindow` block by block: each sees itself and the block before it."""
        rows, tokens = len(q), q.shape[2]
        q, k, v = (F.pad(x, (0, 0, 0, -tokens % size)).unflatten(2, (-1, size)) for x in (q, k, v))  # (B, H, N, C, E)
        k, v = (torch.cat((F.pad(x, (0, 0, 0, 0, 1, -1)), x), dim=3) for x in (k, v))  # (B, G, N, 2C, E)
        q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))  # (B N, H or G, C or 2C, E)
        real = torch.ones(len(q), 2 * size, dtype=torch.bool, device=q.device)
        real[:: len(q) // rows, :size] = False  # there is no block before the first of a row
        window = (CausalWindow(size) & Padding(real)).lower(size, 2 * size, size, q.device)
        y: Tensor = self._attend(q, k, v, window).unflatten(0, (rows, -1)).transpose(1, 2)  # (B, H, N, C, E)
        return y.flatten(2, 3)[:, :, :tokens]

    def weights(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        """Return the attention weights (B, H, Q, K), which the fused kernel never returns."""
        return softmax(self.score(q, repeat_heads(k, q.shape[1])), allowed)
