"""The header of a GGUF file, read with every count and length held against the file before it is believed."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from saccade.errors import ModelFileError

MAGIC, VERSIONS = b"GGUF", (2, 3)
MOST_TENSORS, MOST_KEYS = 100_000, 10_000
MOST_ITEMS = 2_000_000  # of one list: a vocabulary
LONGEST_NAME, LONGEST_TEXT = 256, 1 << 20  # bytes
LARGEST_HEADER = 128 << 20  # bytes
LARGEST_ALIGNMENT = 1 << 16
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TEXT, LIST = 8, 9


@dataclass(frozen=True)
class Entry:
    """A tensor of the file: its shape with the longest stride first, its kind of numbers, and where it begins."""

    shape: tuple[int, ...]
    kind: int
    start: int


@dataclass(frozen=True)
class Header:
    """What a file says of its model, and where its tensors are."""

    path: Path
    size: int
    """bytes of the whole file"""
    values: dict[str, Any]
    tensors: dict[str, Entry]


class Cursor:
    """Reads forward through a header and refuses what would go past its end."""

    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        self.path, self.file, self.left, self.at = path, file, min(size, LARGEST_HEADER), 0

    def take(self, count: int) -> bytes:
        """The next bytes."""
        self.need(count)
        found = self.file.read(count)
        if len(found) < count:
            raise refusal(self.path, "must not change while it is read, but became shorter")
        self.left -= count
        self.at += count
        return found

    def need(self, count: int) -> None:
        """Refuse a count of bytes that are not there."""
        if count > self.left:
            raise refusal(self.path, f"byte {self.at:,} needs {count:,} bytes after it, but there are {self.left:,}")

    def number(self, code: str) -> Any:
        """One number; the code is that of `struct`."""
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def count(self, what: str, most: int) -> int:
        """A count of things, of which there may be so many."""
        found = int(self.number("Q"))
        if found > most:
            raise refusal(self.path, f"{what} must be at most {most:,}, but is {found:,}")
        return found

    def text(self, most: int) -> str:
        """A length and so many bytes."""
        place = self.at
        try:
            return self.take(self.count("the length of a text", most)).decode("utf-8")
        except UnicodeDecodeError as error:
            raise refusal(self.path, f"the text at byte {place:,} must be utf-8, but is not") from error

    def value(self, kind: int) -> Any:
        """A value of a kind: a number, a text, or a list of one of them."""
        if kind == TEXT:
            return self.text(LONGEST_TEXT)
        if kind in SCALARS:
            return self.number(SCALARS[kind])
        if kind != LIST:
            raise refusal(self.path, f"the kind of a value must be known, but is {kind}")
        inner = self.number("I")
        count = self.count("the length of a list", MOST_ITEMS)
        if inner == TEXT:
            self.need(8 * count)
            return [self.text(LONGEST_TEXT) for _ in range(count)]
        if inner not in SCALARS:
            raise refusal(self.path, f"a list must be of numbers or texts, but is of kind {inner}")
        code = f"<{count}{SCALARS[inner]}"
        return list(struct.unpack(code, self.take(struct.calcsize(code))))


def read_header(path: Path) -> Header:
    """The header of a file; no tensor is read."""
    try:
        if not path.is_file():
            raise refusal(path, "must be an ordinary file, but is not")
        size = path.stat().st_size
        with path.open("rb") as file:
            return _read(Cursor(path, file, size), size)
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}; name a .gguf file") from error


def refusal(path: Path, rule: str) -> ModelFileError:
    """The error for a file that breaks a rule."""
    return ModelFileError(f"{path}: not a GGUF file to be trusted: {rule}; get it again from where it came from")


def _read(cursor: Cursor, size: int) -> Header:
    path = cursor.path
    magic = cursor.take(4)
    if magic != MAGIC:
        raise refusal(path, f"must begin with {MAGIC!r}, but begins with {magic!r}")
    version = cursor.number("I")
    if version not in VERSIONS:
        raise refusal(path, f"the version must be one of {', '.join(map(str, VERSIONS))}, but is {version}")
    count, keys = cursor.count("the count of tensors", MOST_TENSORS), cursor.count("the count of keys", MOST_KEYS)
    values: dict[str, Any] = {}
    for _ in range(keys):
        name = cursor.text(LONGEST_NAME)
        if name in values:
            raise refusal(path, f"keys must be different, but {name!r} stands twice")
        values[name] = cursor.value(cursor.number("I"))
    listed = _entries(cursor, count)
    start = _aligned(cursor.at, _alignment(path, values))
    tensors = {name: Entry(entry.shape, entry.kind, start + entry.start) for name, entry in listed.items()}
    return Header(path, size, values, tensors)


def _entries(cursor: Cursor, count: int) -> dict[str, Entry]:
    """The list of tensors; where they begin is counted from the end of the header."""
    found: dict[str, Entry] = {}
    for _ in range(count):
        name, rank = cursor.text(LONGEST_NAME), cursor.number("I")
        if name in found:
            raise refusal(cursor.path, f"tensors must have different names, but {name!r} stands twice")
        if not 1 <= rank <= 4:
            raise refusal(cursor.path, f"{name!r} must have 1 to 4 dimensions, but has {rank:,}")
        shape = tuple(cursor.number("Q") for _ in range(rank))[::-1]
        if not all(1 <= length < 1 << 40 for length in shape):
            raise refusal(cursor.path, f"the shape of {name!r} must be of sensible sizes, but is {shape}")
        found[name] = Entry(shape, cursor.number("I"), cursor.number("Q"))
    return found


def _alignment(path: Path, values: dict[str, Any]) -> int:
    found = values.get("general.alignment", 32)
    power = isinstance(found, int) and not isinstance(found, bool) and found > 0 and found & (found - 1) == 0
    if not power or found > LARGEST_ALIGNMENT:
        raise refusal(path, f"general.alignment must be a power of 2 up to {LARGEST_ALIGNMENT:,}, but is {found!r:.80}")
    return int(found)


def _aligned(at: int, step: int) -> int:
    return -(-at // step) * step
