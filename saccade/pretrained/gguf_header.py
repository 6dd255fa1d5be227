"""The header of a GGUF file; every count and length is compared with the size of the file before it is used."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from saccade.errors import ModelFileError

MAGIC, VERSIONS = b"GGUF", (2, 3)
MAX_TENSORS, MAX_KEYS = 100_000, 10_000
MAX_ITEMS = 2_000_000  # of one array: a vocabulary
MAX_NAME_BYTES, MAX_STRING_BYTES = 256, 1 << 20
MAX_HEADER_BYTES = 128 << 20
MAX_ALIGNMENT = 1 << 16
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


@dataclass(frozen=True)
class TensorEntry:
    """A tensor of the file: its shape in row-major order, its GGML type, and the byte where it starts."""

    shape: tuple[int, ...]
    type: int
    start: int


@dataclass(frozen=True)
class Header:
    """Metadata and tensor entries of a file."""

    path: Path
    size: int
    """size of the file in bytes"""
    values: dict[str, Any]
    tensors: dict[str, TensorEntry]


class HeaderReader:
    """Reads a header sequentially and refuses to read beyond its end."""

    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        self.path, self.file, self.remaining, self.offset = path, file, min(size, MAX_HEADER_BYTES), 0

    def read(self, count: int) -> bytes:
        """Return the next bytes."""
        self.require(count)
        content = self.file.read(count)
        if len(content) < count:
            raise refusal(self.path, "must not change while it is read, but became shorter")
        self.remaining -= count
        self.offset += count
        return content

    def require(self, count: int) -> None:
        """Refuse a count of bytes beyond the end."""
        if count > self.remaining:
            raise refusal(
                self.path, f"byte {self.offset:,} needs {count:,} bytes after it, but there are {self.remaining:,}"
            )

    def number(self, code: str) -> Any:
        """Return a number; the code is that of `struct`."""
        return struct.unpack("<" + code, self.read(struct.calcsize("<" + code)))[0]

    def count(self, what: str, limit: int) -> int:
        """Return a count, which must not exceed `limit`."""
        value = int(self.number("Q"))
        if value > limit:
            raise refusal(self.path, f"{what} must be at most {limit:,}, but is {value:,}")
        return value

    def string(self, limit: int) -> str:
        """Return a string, stored as its length and its bytes."""
        offset = self.offset
        try:
            return self.read(self.count("the length of a string", limit)).decode("utf-8")
        except UnicodeDecodeError as error:
            raise refusal(self.path, f"the string at byte {offset:,} must be UTF-8, but is not") from error

    def value(self, value_type: int) -> Any:
        """Return a value of a type: a number, a string, or an array of one of them."""
        if value_type == STRING:
            return self.string(MAX_STRING_BYTES)
        if value_type in SCALARS:
            return self.number(SCALARS[value_type])
        if value_type != ARRAY:
            raise refusal(self.path, f"the type of a value must be from 0 to 12, but is {value_type}")
        item_type = self.number("I")
        count = self.count("the length of an array", MAX_ITEMS)
        if item_type == STRING:
            self.require(8 * count)
            return [self.string(MAX_STRING_BYTES) for _ in range(count)]
        if item_type not in SCALARS:
            raise refusal(self.path, f"an array must hold numbers or strings, but holds values of type {item_type}")
        code = f"<{count}{SCALARS[item_type]}"
        return list(struct.unpack(code, self.read(struct.calcsize(code))))


def read_header(path: Path) -> Header:
    """Read the header of a file; no tensor is read."""
    try:
        if not path.is_file():
            raise refusal(path, "must be a regular file, but is not")
        size = path.stat().st_size
        with path.open("rb") as file:
            return _read(HeaderReader(path, file, size), size)
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}; name a .gguf file") from error


def refusal(path: Path, rule: str) -> ModelFileError:
    """Return the error for a file that breaks a rule."""
    return ModelFileError(f"{path}: not a valid GGUF file: {rule}; download it again")


def unsupported(path: Path, rule: str) -> ModelFileError:
    """Return the error for an intact file with something that cannot be run."""
    return ModelFileError(f"{path}: {rule}; this variant is not supported")


def _read(reader: HeaderReader, size: int) -> Header:
    path = reader.path
    magic = reader.read(4)
    if magic != MAGIC:
        raise refusal(path, f"must start with {MAGIC!r}, but starts with {magic!r}")
    version = reader.number("I")
    if version not in VERSIONS:
        raise unsupported(path, f"the version of GGUF must be one of {', '.join(map(str, VERSIONS))}, but is {version}")
    tensor_count = reader.count("the number of tensors", MAX_TENSORS)
    key_count = reader.count("the number of keys", MAX_KEYS)
    values: dict[str, Any] = {}
    for _ in range(key_count):
        name = reader.string(MAX_NAME_BYTES)
        if name in values:
            raise refusal(path, f"keys must be unique, but {name!r} occurs twice")
        values[name] = reader.value(reader.number("I"))
    entries = _entries(reader, tensor_count)
    data_start = _align(reader.offset, _alignment(path, values))
    tensors = {name: TensorEntry(entry.shape, entry.type, data_start + entry.start) for name, entry in entries.items()}
    return Header(path, size, values, tensors)


def _entries(reader: HeaderReader, count: int) -> dict[str, TensorEntry]:
    """Return the tensor entries; their starts are relative to the end of the header."""
    entries: dict[str, TensorEntry] = {}
    for _ in range(count):
        name, rank = reader.string(MAX_NAME_BYTES), reader.number("I")
        if name in entries:
            raise refusal(reader.path, f"tensors must have unique names, but {name!r} occurs twice")
        if not 1 <= rank <= 4:
            raise refusal(reader.path, f"{name!r} must have 1 to 4 dimensions, but has {rank:,}")
        shape = tuple(reader.number("Q") for _ in range(rank))[::-1]
        if not all(1 <= size < 1 << 40 for size in shape):
            raise refusal(reader.path, f"the sizes of {name!r} must be from 1 to 2^40, but are {shape}")
        entries[name] = TensorEntry(shape, reader.number("I"), reader.number("Q"))
    return entries


def _alignment(path: Path, values: dict[str, Any]) -> int:
    value = values.get("general.alignment", 32)
    is_power = isinstance(value, int) and not isinstance(value, bool) and value > 0 and value & (value - 1) == 0
    if not is_power or value > MAX_ALIGNMENT:
        raise refusal(path, f"general.alignment must be a power of 2 up to {MAX_ALIGNMENT:,}, but is {value!r:.80}")
    return int(value)


def _align(offset: int, step: int) -> int:
    return -(-offset // step) * step
