"""Edges: a graph as a mask: each node sees the nodes that it has an edge from.

Two products over edges, each of which is the gradient of the other, keep only a number per edge and head in memory.
On a CPU they run on torch's kernels for sparse matrices, which read the rows of nodes in place.

Shapes: N nodes, M edges, H heads, E head width, Q queries, K keys.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.nn.masks import KernelMask, Mask, positions

FAST = (torch.float32, torch.float64)  # types that the sparse kernels compute


@dataclass(frozen=True, eq=False)
class Edges(Mask):
    """Node target[e] sees node source[e]; edges are in the order of their targets, and none is there twice.

    Several graphs are one graph whose parts have no edge between them.
    """

    source: Tensor  # (M,)
    target: Tensor  # (M,), ascending
    offsets: Tensor  # (N + 1,): first edge to each node, and the number of edges
    by_source: Tensor  # (M,): the edges in the order of their sources
    source_offsets: Tensor  # (N + 1,): first edge from each node, in that order
    bias: Tensor | None = None
    """(M, H) added to the scores of each edge, such as a function of its features"""

    @classmethod
    def of(cls, source: Tensor, target: Tensor, nodes: int) -> tuple[Edges, Tensor]:
        """Return the edges in the order of their targets, and where each of them was: (M,)."""
        order = torch.argsort(target, stable=True)
        source, target = source[order], target[order]
        edges = cls(
            source, target, _offsets(target, nodes), torch.argsort(source, stable=True), _offsets(source, nodes)
        )
        return edges, order

    @property
    def nodes(self) -> int:
        return len(self.offsets) - 1

    def with_bias(self, bias: Tensor) -> Edges:
        """Return the same edges with a bias (M, H)."""
        return replace(self, bias=bias)

    def to(self, device: Any) -> Edges:
        parts = [self.source, self.target, self.offsets, self.by_source, self.source_offsets]
        source, target, offsets, by_source, source_offsets = (part.to(device) for part in parts)
        bias = None if self.bias is None else self.bias.to(device)
        return Edges(source, target, offsets, by_source, source_offsets, bias)

    def allow(self, query: Tensor, key: Tensor) -> Tensor:
        rows, edges = self._incoming(query[0])
        table = torch.zeros(len(query[0]), self.nodes, dtype=torch.bool, device=key.device)
        table[rows, self.source[edges]] = True
        return table[None, :, key]  # (1, Q, K)

    def score_bias(self, query: Tensor, key: Tensor) -> Tensor | None:
        if self.bias is None:
            return None
        rows, edges = self._incoming(query[0])
        table = self.bias.new_zeros(self.bias.shape[1], len(query[0]), self.nodes)
        at = (rows, self.source[edges])
        return table.index_put((torch.arange(len(table), device=key.device)[:, None], *at), self.bias[edges].t())[
            None, ..., key
        ]  # (1, H, Q, K)

    def lower(self, queries: int, keys: int, start: int | Tensor, device: torch.device) -> KernelMask:
        if not isinstance(start, int) or start or queries != self.nodes or keys != self.nodes:
            shape = f"{queries} queries and {keys} keys from position {start}"
            raise ValueError(f"a graph of {self.nodes} nodes must mask as many queries and keys, but masks {shape}")
        at = positions(0, queries, device)
        return KernelMask(self, at, at[0], kernel="none", edges=self)

    def _incoming(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the edges to some nodes, and for each the position of its node among these."""
        counts = self.offsets[nodes + 1] - self.offsets[nodes]
        rows = torch.repeat_interleave(counts)
        before = counts.cumsum(0) - counts
        edges = torch.arange(len(rows), device=nodes.device) + (self.offsets[nodes] - before)[rows]
        return rows, edges


def _offsets(sorted_or_not: Tensor, nodes: int) -> Tensor:
    """Return where the edges of each node start, if they are in the order of their nodes: (N + 1,)."""
    counts = torch.bincount(sorted_or_not, minlength=nodes)
    return F.pad(counts.cumsum(0), (1, 0))


def _dots(q: Tensor, k: Tensor, edges: Edges) -> Tensor:
    """Return q[target].k[source] of each edge: (H, N, E) twice -> (H, M)."""
    if not _sparse(q):
        return (q[:, edges.target] * k[:, edges.source]).sum(-1)
    pattern = _matrix(edges.offsets, edges.source, q.new_zeros(len(edges.source)))
    heads = [torch.sparse.sampled_addmm(pattern, a, b.t(), beta=0.0).values() for a, b in zip(q, k, strict=True)]
    return torch.stack(heads)


def _matrix(offsets: Tensor, columns: Tensor, values: Tensor) -> Tensor:
    """Return a square sparse matrix of compressed rows."""
    _warn_of_sparse_tensors()
    size = (len(offsets) - 1,) * 2
    return torch.sparse_csr_tensor(offsets, columns, values, size=size, check_invariants=False)


@cache
def _warn_of_sparse_tensors() -> None:
    """Let torch say once, unheard, that sparse matrices are new: it says so for the first one of a process."""
    empty = torch.zeros(1, dtype=torch.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.sparse_csr_tensor(empty, empty[:0], torch.zeros(0), size=(0, 0))


def _sums(weights: Tensor, v: Tensor, index: Tensor, target: Tensor, offsets: Tensor) -> Tensor:
    """Return for each node the sum of weights (H, M) times v[index] over its edges: (H, N, E)."""
    if not _sparse(v):
        return torch.zeros_like(v).index_add_(1, target, weights[..., None] * v[:, index])
    heads = [
        F.embedding_bag(index, b, offsets, mode="sum", per_sample_weights=a, include_last_offset=True)
        for a, b in zip(weights, v, strict=True)
    ]
    return torch.stack(heads)


def _sparse(x: Tensor) -> bool:
    """Whether the kernels for sparse matrices are used: on a CPU, in full precision, not compiled."""
    return x.device.type == "cpu" and x.dtype in FAST and not torch.compiler.is_compiling()


class _EdgeDot(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, edges: Edges) -> Tensor:
        ctx.save_for_backward(q, k)
        ctx.edges = edges
        return _dots(q.contiguous(), k.contiguous(), edges)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        q, k = ctx.saved_tensors
        for_q, for_k, _ = ctx.needs_input_grad
        q_grad = _edge_sum(grads[0], k, ctx.edges, False) if for_q else None
        return q_grad, _edge_sum(grads[0], q, ctx.edges, True) if for_k else None, None


class _EdgeSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, v: Tensor, edges: Edges, reverse: bool) -> Tensor:
        ctx.save_for_backward(weights, v)
        ctx.edges, ctx.reverse = edges, reverse
        if not reverse:
            return _sums(weights.contiguous(), v.contiguous(), edges.source, edges.target, edges.offsets)
        order = edges.by_source  # from the source of an edge to its target
        index, target = edges.target[order], edges.source[order]
        return _sums(weights[:, order], v.contiguous(), index, target, edges.source_offsets)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        weights, v = ctx.saved_tensors
        for_weights, for_v, _, _ = ctx.needs_input_grad
        sides = (v, grads[0]) if ctx.reverse else (grads[0], v)
        weights_grad = _edge_dot(*sides, ctx.edges) if for_weights else None
        return weights_grad, _edge_sum(weights, grads[0], ctx.edges, not ctx.reverse) if for_v else None, None, None


_edge_dot: Callable[..., Tensor] = _EdgeDot.apply
_edge_sum: Callable[..., Tensor] = _EdgeSum.apply


def edge_dot(q: Tensor, k: Tensor, edges: Edges) -> Tensor:
    """Return the dot product of query and key of each edge: (1, H, N, E) twice -> (1, H, M)."""
    return _edge_dot(q[0], k[0], edges)[None]


def edge_sum(weights: Tensor, v: Tensor, edges: Edges) -> Tensor:
    """Return the values that each node sees, summed by weights (1, H, M): (1, H, N, E)."""
    dtype = torch.promote_types(weights.dtype, v.dtype)  # under autocast they differ
    return _edge_sum(weights[0].to(dtype), v[0].to(dtype), edges, False)[None].to(v.dtype)


class _EdgeSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, edges: Edges) -> Tensor:
        largest = _reduce(scores, edges, "max")
        weights = (scores - largest[:, edges.target]).exp_()
        weights /= _reduce(weights, edges, "sum")[:, edges.target]
        ctx.save_for_backward(weights)
        ctx.edges = edges
        return weights

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (weights,) = ctx.saved_tensors
        weighted = weights * grads[0]
        total = _reduce(weighted, ctx.edges, "sum")[:, ctx.edges.target]
        return weighted - weights * total, None


_edge_softmax: Callable[..., Tensor] = _EdgeSoftmax.apply


def edge_softmax(scores: Tensor, edges: Edges) -> Tensor:
    """Softmax over the edges to each node: (1, H, M)."""
    return _edge_softmax(scores[0], edges)[None]


def _reduce(values: Tensor, edges: Edges, kind: str) -> Tensor:
    """Return the sum or the maximum of values (H, M) over the edges to each node: (H, N)."""
    if _sparse(values) and len(edges.source):
        heads = [torch.segment_reduce(head.contiguous(), kind, offsets=edges.offsets) for head in values]
        return torch.stack(heads)
    index = edges.target.expand(len(values), -1)
    out = values.new_zeros(len(values), edges.nodes)
    return out.scatter_reduce(1, index, values, "amax" if kind == "max" else "sum", include_self=False)
