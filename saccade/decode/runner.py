"""Runners: a model with a cache of rows, which the engine extends by a piece of new tokens at a time.

Shapes: R rows, N tokens of a piece, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from saccade.nn.cache import KVCache, RowCache

CHUNK = 128  # tokens of a prompt that are read at once


class CausalModel(Protocol):
    """A language model: ids (B, T) that follow those in the cache -> logits (B, T, V) of the next tokens."""

    def __call__(self, ids: Tensor, *, cache: KVCache | None = None) -> Tensor: ...

    def parameters(self) -> Iterator[nn.Parameter]: ...


@dataclass(frozen=True)
class Piece:
    """New tokens of one row, which follow the `start` tokens that the row has cached."""

    row: int
    start: int
    ids: Sequence[int]
    every: bool = False
    """return the logits after every token, not only after the last"""


class Runner(Protocol):
    """A model with a cache of `rows` rows of `capacity` tokens each."""

    rows: int
    capacity: int
    reuse: int
    """the cached beginning of a row can be copied in multiples of this many tokens: 1 where a token has the same bits
    however tokens are split into pieces and batches; 0: not at all"""

    def forward(self, pieces: Sequence[Piece]) -> list[Tensor]:
        """Cache the tokens of different rows; returns for each piece the logits (1 or N, V)."""

    def copy(self, source: int, target: int, count: int) -> None:
        """Copy the first `count` cached tokens of one row to another."""

    def clear(self, row: int, count: int) -> None:
        """Overwrite the first `count` cached tokens of a row with zeros."""

    def start(self, row: int, memory: Any) -> None:
        """Give a row the memory of an encoder-decoder model."""


class TorchRunner:
    """Any causal model, on any device, by its own modules; a probe sees every call.

    Rows with one new token are computed together, longer pieces one by one, so that a prompt does not depend on others.
    """

    reuse = CHUNK

    def __init__(self, model: CausalModel, rows: int, capacity: int) -> None:
        self.model, self.rows, self.capacity = model, rows, capacity
        self._device = next(model.parameters()).device
        self._cache = RowCache(rows, capacity, self._device)

    @torch.no_grad()
    def forward(self, pieces: Sequence[Piece]) -> list[Tensor]:
        order = sorted(range(len(pieces)), key=lambda index: (len(pieces[index].ids) > 1, pieces[index].row))
        logits: dict[int, Tensor] = {}
        for group in _adjacent(order, pieces):
            first = pieces[group[0]]
            cache = self._cache.select(first.row, [pieces[index].start for index in group])
            ids = torch.tensor([list(pieces[index].ids) for index in group], device=self._device)
            result = self.model(ids, cache=cache)  # (rows of the group, N, V)
            logits |= {index: rows if first.every else rows[-1:] for index, rows in zip(group, result, strict=True)}
        return [logits[index] for index in range(len(pieces))]

    def copy(self, source: int, target: int, count: int) -> None:
        self._cache.copy(source, target, count)

    def clear(self, row: int, count: int) -> None:
        self._cache.clear(row, count)

    def start(self, row: int, memory: Any) -> None:
        raise ValueError("a language model has no memory")


def _adjacent(order: Sequence[int], pieces: Sequence[Piece]) -> Iterator[list[int]]:
    """Yield the pieces that are computed together: single tokens of adjacent rows, or one longer piece."""
    group: list[int] = []
    for index in order:
        piece, last = pieces[index], pieces[group[-1]] if group else None
        if last is not None and (len(piece.ids) > 1 or len(last.ids) > 1 or piece.row != last.row + 1):
            yield group
            group = []
        group.append(index)
    if group:
        yield group
