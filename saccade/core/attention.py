"""Attention maps: the weights of one attention layer for one example, computed on demand.

Shapes: H heads, Q queries, K keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from saccade.core.axes import Axis


class Weights(Protocol):
    """Attention weights that are computed on demand."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """(H, Q, K)"""

    def rows(self, first: int, last: int, *, step: int = 1, head: int | None = None) -> Tensor:
        """Return the weights of every `step`-th query from first to last, of all heads or one: (H, queries, K)."""

    def select(self, queries: Tensor, *, head: int | None = None) -> Tensor:
        """Return the weights of some queries (int64, ascending), of all heads or one: (H, queries, K)."""

    @property
    def nbytes(self) -> int:
        """Bytes of what the weights are computed from."""


@dataclass(frozen=True)
class AttentionMap:
    """One attention layer for one example: weights (H, Q, K) with typed axes."""

    name: str
    source: Tensor | Weights
    """the weights, or an object that computes rows of them: a long text has too many to keep"""
    queries: Axis
    keys: Axis

    @property
    def shape(self) -> tuple[int, int, int]:
        """(H, Q, K)"""
        heads, queries, keys = self.source.shape
        return heads, queries, keys

    @property
    def weights(self) -> Tensor:
        """All weights: (H, Q, K)."""
        return self.rows(0, self.shape[1])

    def rows(self, first: int, last: int, *, step: int = 1, head: int | None = None) -> Tensor:
        """Return the weights of every `step`-th query from first to last, of all heads or one: (H, queries, K)."""
        if isinstance(self.source, Tensor):
            return self.source[slice(None) if head is None else slice(head, head + 1), first:last:step]
        return self.source.rows(first, last, step=step, head=head)

    def select(self, queries: Tensor, *, head: int | None = None) -> Tensor:
        """Return the weights of some queries (int64, ascending), of all heads or one: (H, queries, K)."""
        if isinstance(self.source, Tensor):
            return self.source[slice(None) if head is None else slice(head, head + 1), queries]
        return self.source.select(queries, head=head)

    @property
    def nbytes(self) -> int:
        """Bytes of the weights, or of what they are computed from."""
        return self.source.nbytes


class AttentionMaps(Mapping[str, AttentionMap]):
    """The attention maps of a prediction by name, in the order of the model."""

    def __init__(self, maps: Iterable[AttentionMap] = ()) -> None:
        self._maps = {attention.name: attention for attention in maps}

    def __getitem__(self, name: str) -> AttentionMap:
        if name not in self._maps:
            raise KeyError(f"no attention '{name}'; there are: {', '.join(self._maps) or 'none'}")
        return self._maps[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._maps)

    def __len__(self) -> int:
        return len(self._maps)
