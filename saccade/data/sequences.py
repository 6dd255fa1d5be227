"""Sequences: many short rows of tokens in one flat array, and rectangles of them for a model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Sequences:
    """Rows of tokens, one after the other; row i is ids[offsets[i] : offsets[i + 1]]."""

    ids: NDArray[np.uint32]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> Sequences:
        arrays = [np.asarray(row, dtype=np.uint32) for row in rows]
        offsets = np.cumsum([0, *(len(row) for row in arrays)], dtype=np.int64)
        return cls(np.concatenate(arrays) if arrays else np.zeros(0, np.uint32), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> NDArray[np.uint32]:
        return self.ids[self.offsets[row] : self.offsets[row + 1]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    def fingerprint(self) -> str:
        """What the rows hold, in a few letters."""
        return hashlib.sha256(self.ids.tobytes() + self.offsets.tobytes()).hexdigest()[:16]

    def rectangle(
        self, rows: Sequence[int], before: Sequence[int] = (), after: Sequence[int] = ()
    ) -> NDArray[np.int64]:
        """Some rows (B, T) between the tokens `before` and `after`, filled up with -1."""
        found = [self[row] for row in rows]
        width = max((len(row) for row in found), default=0) + len(before) + len(after)
        out = np.full((len(found), width), -1, dtype=np.int64)
        for line, row in zip(out, found, strict=True):
            line[: len(before)] = before
            line[len(before) : len(before) + len(row)] = row
            line[len(before) + len(row) : len(before) + len(row) + len(after)] = after
        return out
