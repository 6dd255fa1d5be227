"""Texts: a column of texts in one array of UTF-8 bytes, possibly memory-mapped, decoded on demand."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from saccade.data.cache import Entry, EntryWriter

BLOCK = 1 << 15  # bytes written at once

CODES = {"int32": "i", "int64": "q", "uint64": "Q"}

Rows = Sequence[int] | NDArray[np.int64]


class TextColumn:
    """All texts of a column: text i is data[offsets[i] : offsets[i + 1]]; `key` is empty for texts in memory."""

    def __init__(self, data: NDArray[np.uint8], offsets: NDArray[np.int64], key: str = "") -> None:
        self.data, self.offsets, self.key = data.data, offsets, key
        self.tokenized: dict[Any, Any] = {}
        """tokens of this column, by what else they depend on"""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def text(self, row: int) -> str:
        """Decode one text."""
        return str(self.data[self.offsets[row] : self.offsets[row + 1]], "utf-8", "surrogatepass")


class Texts(Sequence[str]):
    """Some rows of a column of texts, or all of them."""

    def __init__(self, column: TextColumn, rows: Rows | None = None) -> None:
        self.column = column
        self.rows: NDArray[np.int64] | None = None if rows is None else np.asarray(rows, dtype=np.int64)
        """numbers of the rows in the column; None: all of them"""

    @classmethod
    def of(cls, texts: Iterable[str]) -> Texts:
        """Build a column in memory."""
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        return cls(TextColumn(np.frombuffer(b"".join(encoded), dtype=np.uint8), offsets))

    @classmethod
    def open(cls, entry: Entry, name: str) -> Texts:
        """Open a column that a `TextWriter` wrote."""
        data, offsets = entry.arrays[name], entry.arrays[f"{name}_offsets"]
        return cls(TextColumn(data, offsets, f"{entry.key}/{name}"))

    def __len__(self) -> int:
        return len(self.column) if self.rows is None else len(self.rows)

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> Texts: ...
    def __getitem__(self, row: int | slice) -> str | Texts:
        if isinstance(row, slice):
            return self.take(np.arange(len(self))[row])
        number = range(len(self))[row]
        return self.column.text(number if self.rows is None else int(self.rows[number]))

    def __iter__(self) -> Iterator[str]:
        return (self[row] for row in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(str.__eq__, self, other))

    def __repr__(self) -> str:
        return f"Texts({list(self[:3])}{' ...' if len(self) > 3 else ''})"

    def take(self, rows: Rows) -> Texts:
        """Return some of the texts; nothing is copied."""
        chosen = np.asarray(rows, dtype=np.int64)
        return Texts(self.column, chosen if self.rows is None else self.rows[chosen])

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Bytes of each text."""
        sizes = np.diff(self.column.offsets)
        return sizes if self.rows is None else sizes[self.rows]


class TextWriter:
    """Writes a column of texts into an entry of the cache."""

    def __init__(self, writer: EntryWriter, name: str) -> None:
        self._data, self._offsets = writer.array(name, "uint8"), writer.array(f"{name}_offsets", "int64")
        self._pending = bytearray()
        self._ends = array("q", [0])
        self._size = 0

    def add(self, text: str) -> None:
        """Append a text."""
        data = text.encode("utf-8", "surrogatepass")
        self._pending += data
        self._size += len(data)
        self._ends.append(self._size)
        if len(self._pending) > BLOCK:
            self.flush()

    def flush(self) -> None:
        """Write the buffer; must be called at the end."""
        self._data.write_bytes(bytes(self._pending))
        self._offsets.write_bytes(self._ends.tobytes())
        self._pending, self._ends = bytearray(), array("q")


class NumberWriter:
    """Writes a column of integers into an entry of the cache."""

    def __init__(self, writer: EntryWriter, name: str, dtype: str = "int64") -> None:
        self._array = writer.array(name, dtype)
        self._pending = array(CODES[dtype])

    def add(self, number: int) -> None:
        """Append a number."""
        self._pending.append(number)
        if len(self._pending) > BLOCK // 8:
            self.flush()

    def flush(self) -> None:
        """Write the buffer; must be called at the end."""
        self._array.write_bytes(self._pending.tobytes())
        self._pending = array(self._pending.typecode)
