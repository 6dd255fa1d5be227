"""Token rows: many short sequences of tokens in one flat array, possibly memory-mapped."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK = 1 << 14  # rows hashed at once

Rows = Sequence[int] | NDArray[np.int64]
TokenArray = NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True)
class TokenRows:
    """Sequences of tokens: row i is ids[starts[i] : ends[i]]."""

    ids: TokenArray
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Iterable[Sequence[int] | TokenArray]) -> TokenRows:
        """Copy rows into one array."""
        arrays = [np.asarray(row, dtype=np.uint32) for row in rows]
        offsets = np.cumsum([0, *(len(row) for row in arrays)], dtype=np.int64)
        return cls.of_offsets(np.concatenate(arrays) if arrays else np.zeros(0, np.uint32), offsets)

    @classmethod
    def of_offsets(cls, ids: TokenArray, offsets: NDArray[np.int64]) -> TokenRows:
        """Return the rows that follow each other in `ids`: row i ends where row i + 1 starts."""
        return cls(ids, offsets[:-1], offsets[1:])

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, row: int) -> TokenArray:
        return self.ids[self.starts[row] : self.ends[row]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each row: (N,)."""
        return self.ends - self.starts

    def count(self, token: int) -> NDArray[np.int64]:
        """Return how often a token is in each row: (N,)."""
        before = np.concatenate([[0], np.cumsum(self.ids == token)])
        counts: NDArray[np.int64] = before[self.ends] - before[self.starts]
        return counts

    def take(self, rows: Rows) -> TokenRows:
        """Return some of the rows; the tokens are not copied."""
        chosen = np.asarray(rows, dtype=np.int64)
        return TokenRows(self.ids, self.starts[chosen], self.ends[chosen])

    def truncate(self, max_length: int) -> TokenRows:
        """Return all rows, each truncated to `max_length` tokens; the tokens are not copied."""
        return TokenRows(self.ids, self.starts, np.minimum(self.ends, self.starts + max_length))

    def fingerprint(self) -> str:
        """Return a hash of the rows."""
        digest = hashlib.sha256(np.ascontiguousarray(self.lengths).tobytes())
        for first in range(0, len(self), BLOCK):
            starts, lengths = self.starts[first : first + BLOCK], self.lengths[first : first + BLOCK]
            before = np.cumsum(lengths) - lengths
            positions = np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)
            digest.update(self.ids[positions].astype(np.uint32).tobytes())
        return digest.hexdigest()[:16]

    def pad(self, rows: Rows, before: Sequence[int] = (), after: Sequence[int] = ()) -> NDArray[np.int64]:
        """Return some rows (B, T) between the tokens `before` and `after`, padded with -1."""
        chosen = [self[row] for row in rows]
        width = max((len(row) for row in chosen), default=0) + len(before) + len(after)
        out = np.full((len(chosen), width), -1, dtype=np.int64)
        for line, row in zip(out, chosen, strict=True):
            line[: len(before)] = before
            line[len(before) : len(before) + len(row)] = row
            line[len(before) + len(row) : len(before) + len(row) + len(after)] = after
        return out
