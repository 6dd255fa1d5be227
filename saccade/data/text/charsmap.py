"""Tables of characters in SentencePiece models: a double-array trie with replacements, checked before the library.

The library looks bytes of a text up in the trie without checking positions, and panics outside of it.
"""

import base64

import numpy as np
from numpy.typing import NDArray

MAX_REPLACEMENT = 64  # bytes; the longest of Unicode's compatibility forms has 33
LABELS = np.arange(1, 256, dtype=np.int64)
LEAF, LABEL_BITS, VALUE_BITS = 1 << 8, (1 << 31) | 0xFF, (1 << 31) - 1


def charsmap_fault(coded: object) -> str:
    """Return why a table in base64 is not complete, or an empty text."""
    try:
        table = base64.b64decode(coded if isinstance(coded, str) else "", validate=True)
    except ValueError:
        return "is not base64"
    size = int.from_bytes(table[:4], "little")
    if len(table) <= 4 or size % 4 or not 0 < size <= len(table) - 4:
        return f"its trie has {size:,} of {max(0, len(table) - 4):,} bytes"
    replacements = table[4 + size :]
    try:
        replacements.decode()
    except UnicodeDecodeError:
        return "its replacements are not UTF-8"
    units = np.frombuffer(table, dtype="<u4", count=size // 4, offset=4).astype(np.int64)
    values = _values(units)
    return "its trie points outside of itself" if values is None else _replacement_fault(values, replacements)


def _offsets(units: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the distance from each unit to its children."""
    offsets: NDArray[np.int64] = (units >> 10) << ((units & (1 << 9)) >> 6)
    return offsets


def _values(units: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Return the values of all keys that can be found in a trie; None: a search would leave it."""
    visited = np.zeros(len(units), dtype=bool)
    frontier = _offsets(units[:1])
    leaves: list[NDArray[np.int64]] = []
    while len(frontier):
        if (frontier >= len(units)).any():
            return None
        frontier = np.unique(frontier)
        frontier = frontier[~visited[frontier]]
        visited[frontier] = True
        children: list[NDArray[np.int64]] = []
        for first in range(0, len(frontier), 4096):  # bounded memory
            positions = frontier[first : first + 4096, None] ^ LABELS  # (nodes, labels)
            if (positions >= len(units)).any():
                return None
            found = units[positions]
            matches = (found & LABEL_BITS) == LABELS
            found, positions = found[matches], positions[matches]
            after = positions ^ _offsets(found)
            ends = after[(found & LEAF) != 0]
            if (ends >= len(units)).any():
                return None
            leaves.append(units[ends] & VALUE_BITS)
            children.append(after)
        frontier = np.concatenate(children) if children else frontier[:0]
    return np.unique(np.concatenate(leaves)) if leaves else np.zeros(0, dtype=np.int64)


def _replacement_fault(values: NDArray[np.int64], replacements: bytes) -> str:
    """Return what is wrong with the replacements, which start at the values and end before a NUL."""
    if (values > len(replacements)).any():
        return "it refers to replacements that it does not have"
    data = np.frombuffer(replacements, dtype=np.uint8)
    starts = values[values < len(data)]
    if ((data[starts] & 0xC0) == 0x80).any():
        return "a replacement starts inside a character"
    ends = np.append(np.flatnonzero(data == 0), len(data))
    lengths = ends[np.searchsorted(ends, starts)] - starts
    longest = int(lengths.max(initial=0))
    return f"a replacement has {longest:,} bytes, more than {MAX_REPLACEMENT}" if longest > MAX_REPLACEMENT else ""
