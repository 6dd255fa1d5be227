"""Masks: values that define which query may see which key; combined with `&`, lowered once for the kernel.

Shapes: B rows, Q queries, K keys. Positions count from the start of the row, cached tokens included.
"""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor


class Mask(abc.ABC):
    """Which query may see which key; True always means visible."""

    def __and__(self, other: Mask) -> Mask:
        return Intersection(self, other)

    @abc.abstractmethod
    def allow(self, query: Tensor, key: Tensor) -> Tensor:
        """Return which positions (B or 1, Q) see which positions (K,): bool, broadcastable to (B, Q, K)."""

    def score_bias(self, query: Tensor, key: Tensor) -> Tensor | None:
        """Return what is added to the scores of these positions, (B, H, Q, K); None: nothing."""
        return None

    def lower(self, queries: int, keys: int, start: int | Tensor, device: torch.device) -> KernelMask:
        """Return the form that is fastest for the kernel: no mask, its own causal mode, or a tensor."""
        return KernelMask(self, positions(start, queries, device), torch.arange(keys, device=device))


class Full(Mask):
    """No restriction."""

    def allow(self, query: Tensor, key: Tensor) -> Tensor:
        return torch.ones(1, 1, 1, dtype=torch.bool, device=key.device)

    def lower(self, queries: int, keys: int, start: int | Tensor, device: torch.device) -> KernelMask:
        return KernelMask(self, positions(start, queries, device), torch.arange(keys, device=device), kernel="none")


class Causal(Mask):
    """No look-ahead: a query sees itself and earlier positions."""

    def allow(self, query: Tensor, key: Tensor) -> Tensor:
        return key <= query[..., None]  # (B, Q, K)

    def lower(self, queries: int, keys: int, start: int | Tensor, device: torch.device) -> KernelMask:
        kernel = "tensor"
        if isinstance(start, int) and keys == start + queries:
            kernel = "causal" if start == 0 else "none" if queries == 1 else "tensor"
        return KernelMask(self, positions(start, queries, device), torch.arange(keys, device=device), kernel=kernel)


@dataclass(frozen=True)
class Window(Mask):
    """A query sees only keys less than `size` positions away, on both sides; with `& Causal()` only past ones."""

    size: int

    def allow(self, query: Tensor, key: Tensor) -> Tensor:
        return (query[..., None] - key).abs() < self.size  # (B, Q, K)


@dataclass(frozen=True)
class CausalWindow(Mask):
    """A query sees itself and the `size` - 1 tokens before it; a long row is computed in blocks, in linear memory."""

    size: int

    def allow(self, query: Tensor, key: Tensor) -> Tensor:
        return (key <= query[..., None]) & (query[..., None] - key < self.size)  # (B, Q, K)

    def lower(self, queries: int, keys: int, start: int | Tensor, device: torch.device) -> KernelMask:
        query, key = positions(start, queries, device), torch.arange(keys, device=device)
        if not isinstance(start, int) or start or queries != keys:
            return KernelMask(self, query, key)
        if queries <= self.size:
            return KernelMask(self, query, key, kernel="causal")
        return KernelMask(self, query, key, kernel="none", block=self.size)


@dataclass(frozen=True, eq=False)
class Padding(Mask):
    """No query sees a padding key; `keep` is (B, K), True for a real token."""

    keep: Tensor

    def allow(self, query: Tensor, key: Tensor) -> Tensor:
        return self.keep[:, None, key]  # (B, 1, K)


@dataclass(frozen=True, eq=False)
class Prefix(Mask):
    """Prefix-LM mask: the first `length` (B,) keys of a row are visible to all its queries, the others causally."""

    length: Tensor

    def allow(self, query: Tensor, key: Tensor) -> Tensor:
        return (key <= query[..., None]) | (key < self.length[:, None, None])  # (B, Q, K)


@dataclass(frozen=True, eq=False)
class Segments(Mask):
    """Only tokens of the same segment see each other; `segment` is (B, T), for packed rows."""

    segment: Tensor

    @classmethod
    def of(cls, lengths: Tensor) -> Segments:
        """Return the mask of one row that holds segments of these lengths (S,) one after the other."""
        return cls(torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)[None])

    def positions(self) -> Tensor:
        """Return the position of each token in its segment, of rows whose segments are in order: (B, T)."""
        return torch.arange(self.segment.shape[1], device=self.segment.device) - torch.searchsorted(
            self.segment, self.segment
        )

    def allow(self, query: Tensor, key: Tensor) -> Tensor:
        rows = self.segment.shape[0]
        of_query = self.segment.gather(1, query.expand(rows, -1))  # (B, Q)
        return of_query[..., None] == self.segment[:, None, key]  # (B, Q, K)


@dataclass(frozen=True, eq=False)
class Graph(Mask):
    """Node i sees node j where `adjacency` (N, N) or (B, N, N) is True."""

    adjacency: Tensor

    def allow(self, query: Tensor, key: Tensor) -> Tensor:
        adjacency = self.adjacency if self.adjacency.dim() == 3 else self.adjacency[None]  # (B, N, N)
        rows = torch.arange(adjacency.shape[0], device=key.device)[:, None]
        return adjacency[rows, query][..., key]  # (B, Q, K)


@dataclass(frozen=True, eq=False)
class Intersection(Mask):
    """Allow what two masks both allow."""

    first: Mask
    second: Mask

    def allow(self, query: Tensor, key: Tensor) -> Tensor:
        return self.first.allow(query, key) & self.second.allow(query, key)

    def score_bias(self, query: Tensor, key: Tensor) -> Tensor | None:
        biases = [mask.score_bias(query, key) for mask in (self.first, self.second)]
        present = [bias for bias in biases if bias is not None]
        return sum(present[1:], present[0]) if present else None


class KernelMask:
    """A mask lowered for one kernel call, or for all layers of a stack."""

    def __init__(
        self, mask: Mask, query: Tensor, key: Tensor, *, kernel: str = "tensor", block: int = 0, edges: Any = None
    ) -> None:
        self.mask = mask
        self.block = block  # tokens of a block, where the row is split into blocks
        self.edges = edges  # `Edges`, where attention is computed along the edges of a graph
        self.query = query  # (B or 1, Q)
        self.key = key  # (K,)
        self.causal = kernel == "causal"
        self.dense = kernel == "tensor"
        self._tensors: tuple[Tensor, Tensor] | None = None

    @property
    def hides(self) -> bool:
        """Whether a key may be invisible."""
        return self.dense or self.causal or bool(self.block) or self.edges is not None

    @property
    def tensor(self) -> Tensor | None:
        """The mask as a tensor (B, 1 or H, Q, K); None: the kernel does without it."""
        return self._lower()[0] if self.dense else None

    @property
    def empty(self) -> Tensor | None:
        """The queries that see no key (B, 1, Q, 1): the kernel gets no mask for them, their outputs are set to zero."""
        return self._lower()[1] if self.dense else None

    def _lower(self) -> tuple[Tensor, Tensor]:
        """Return mask and empty queries, computed when a kernel first asks: one that knows the mask needs no tensor."""
        if self._tensors is None:
            allowed = self.mask.allow(self.query, self.key)[:, None]  # (B, 1, Q, K)
            empty = ~allowed.any(-1, keepdim=True)
            self._tensors = with_bias(allowed | empty, self.mask.score_bias(self.query, self.key)), empty
        return self._tensors

    def allowed(self, first: int, last: int, step: int = 1) -> Tensor:
        """Return every `step`-th row first..last of the mask, computed from positions: bool (B, 1, rows, K).

        Of a mask with a bias: what is added to the scores (B, H, rows, K), -inf for a key that is not visible.
        """
        return self.allowed_at(slice(first, last, step))

    def allowed_at(self, rows: slice | Tensor) -> Tensor:
        """Return some rows of the mask, as `allowed` does."""
        query = self.query[:, rows]
        return with_bias(self.mask.allow(query, self.key)[:, None], self.mask.score_bias(query, self.key))


def with_bias(allowed: Tensor, bias: Tensor | None) -> Tensor:
    """Return a mask with a bias as what is added to the scores, -inf where it is False."""
    return allowed if bias is None else bias.masked_fill(~allowed, -math.inf)


def visible(allowed: Tensor) -> Tensor:
    """Return which keys are visible, as bool, for a mask with or without a bias."""
    return allowed if allowed.dtype == torch.bool else allowed > -math.inf


def of_heads(allowed: Tensor, heads: slice | list[int]) -> Tensor:
    """Return the mask of some heads; one without a bias is the same for all."""
    return allowed if allowed.shape[1] == 1 else allowed[:, heads]


def positions(start: int | Tensor, count: int, device: torch.device) -> Tensor:
    """Return the positions of `count` tokens after `start` earlier ones: (1, T), or (B, T) with a start per row."""
    steps = torch.arange(count, device=device)
    return (steps + start)[None] if isinstance(start, int) else start[:, None] + steps


def combine(*masks: Mask | None) -> Mask | None:
    """Return the intersection of all masks that are not None."""
    present = [mask for mask in masks if mask is not None]
    return reduce(Intersection, present) if present else None
