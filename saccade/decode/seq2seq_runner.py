"""The runner of encoder-decoder models: rows attend to memories of their own and join and leave between steps."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.decode.runner import Piece
from saccade.models.seq2seq.interface import Memory, Seq2Seq
from saccade.nn.cache import KVCache


class Seq2SeqRunner:
    """Any encoder-decoder model, by its own modules.

    The first piece of a row is computed alone, further tokens of all rows together; a row without a piece has left.
    """

    reuse = 0

    def __init__(self, model: Seq2Seq, rows: int, capacity: int) -> None:
        self.model, self.rows, self.capacity = model, rows, capacity
        self._memories: dict[int, Memory] = {}  # of rows that have not started
        self._live: list[int] = []  # rows in the order of the cache
        self._cache: KVCache | None = None
        self._memory: Memory | None = None

    def start(self, row: int, memory: Memory) -> None:
        """Give a row the memory (1, S, D) that its next tokens attend to; they start at position 0."""
        self._memories[row] = memory

    @torch.no_grad()
    def forward(self, pieces: Sequence[Piece]) -> list[Tensor]:
        by_row = {piece.row: piece for piece in pieces}
        self._keep([row for row in self._live if row in by_row and by_row[row].start])
        logits = self._continue(by_row)
        for piece in pieces:
            if not piece.start:
                logits[piece.row] = self._begin(piece)
        return [logits[piece.row] for piece in pieces]

    def copy(self, source: int, target: int, count: int) -> None:
        raise ValueError("rows of an encoder-decoder model have memories of their own and share no tokens")

    def clear(self, row: int, count: int) -> None:
        """Nothing to do: a row that has ended leaves the cache in the next step."""

    def _keep(self, rows: list[int]) -> None:
        """Drop all rows but these."""
        if len(rows) == len(self._live):
            return
        if rows and self._cache is not None and self._memory is not None:
            indices = torch.tensor([self._live.index(row) for row in rows], device=self._memory.values.device)
            self._cache.reorder(indices)
            self._memory = self._memory.select(indices)
        else:
            self._cache = self._memory = None
        self._live = rows

    def _continue(self, pieces: dict[int, Piece]) -> dict[int, Tensor]:
        """Feed the next token of every row, all at once."""
        if self._cache is None or self._memory is None:
            return {}
        ids = torch.tensor([list(pieces[row].ids) for row in self._live], device=self._memory.values.device)
        features = self.model.decode(ids, self._memory, cache=self._cache)
        return {row: self.model.head(part[-1:]) for row, part in zip(self._live, features, strict=True)}

    def _begin(self, piece: Piece) -> Tensor:
        """Feed the first tokens of a row, and add it to the others."""
        memory, cache = self._memories.pop(piece.row), KVCache(self.capacity)
        ids = torch.tensor([list(piece.ids)], device=memory.values.device)
        logits: Tensor = self.model.head(self.model.decode(ids, memory, cache=cache)[0, -1:])
        if self._cache is None or self._memory is None:
            self._cache, self._memory = cache, memory
        else:
            self._cache.join(cache)
            self._memory = _stack(self._memory, memory)
        self._live.append(piece.row)
        return logits


def _stack(first: Memory, second: Memory) -> Memory:
    """Concatenate the rows of two memories, padded to the longer one."""
    length = max(first.values.shape[1], second.values.shape[1])
    values, keep = (
        torch.cat([F.pad(part, (0, 0) * (part.dim() - 2) + (0, length - part.shape[1])) for part in pair])
        for pair in ((first.values, second.values), (first.keep, second.keep))
    )
    state = tuple(torch.cat(pair) for pair in zip(first.state, second.state, strict=True))
    return Memory(values, keep, state)
