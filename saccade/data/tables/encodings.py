"""Encodings: decodes plain and gzip files in blocks, and reports the first bad byte by line and column."""

import codecs
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from saccade.data.tables.problems import BadRows, Problem
from saccade.errors import DataError, UsageError

BLOCK = 1 << 20
NOT_CP1252 = b"\x81\x8d\x8f\x90\x9d"
DAMAGE = (EOFError, gzip.BadGzipFile, zlib.error)

# utf-32 before utf-16: the little-endian utf-32 byte order mark starts with that of utf-16.
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass
class Position:
    """A position in a text as editors show it: line and column, both from 1."""

    line: int = 1
    column: int = 1

    def advance(self, text: str) -> None:
        """Move past this text."""
        newlines = text.count("\n")
        if newlines:
            self.line += newlines
            self.column = len(text) - text.rfind("\n")
        else:
            self.column += len(text)


def check_encoding(name: str) -> str:
    """Return the name of a text encoding that Python has, or raise an error with usual ones."""
    try:
        " ".encode(name)
    except (LookupError, ValueError) as error:
        message = f"encoding must be a text encoding of Python, but is '{name}'; try utf-8, utf-16, latin-1 or cp1252"
        raise UsageError(message) from error
    return codecs.lookup(name).name


def marked_encoding(head: bytes) -> str | None:
    """Return the encoding of the byte order mark at the start of a file, if there is one."""
    return next((name for mark, name in BYTE_ORDER_MARKS if head.startswith(mark)), None)


def explain(path: Path, error: OSError) -> DataError:
    """Return the data error for a file that cannot be opened or read."""
    if isinstance(error, PermissionError):
        return DataError(f"{path}: cannot be read: permission denied; allow it with: chmod u+r '{path}'")
    if isinstance(error, IsADirectoryError):
        return DataError(f"{path}: a folder, expected a file; name one of the files in it")
    if isinstance(error, FileNotFoundError):
        return DataError(f"{path}: no such file; it was moved or deleted while it was needed")
    return DataError(f"{path}: cannot be read: {error.strerror or error}; copy it to a local disk and try again")


def open_bytes(path: Path, compressed: bool) -> io.BufferedIOBase:
    """Open the bytes of a file, decompressed when it is gzip."""
    try:
        return gzip.GzipFile(path, "rb") if compressed else path.open("rb")
    except OSError as error:
        raise explain(path, error) from error


def byte_blocks(stream: io.BufferedIOBase, path: Path, size: int) -> Iterator[bytes]:
    """Yield the bytes of a file in blocks; what can be decompressed of a damaged gzip file comes before the error."""
    while True:
        parts: list[bytes] = []
        missing = size
        try:
            while missing and (part := stream.read1(missing)):
                parts.append(part)
                missing -= len(part)
        except DAMAGE:
            if parts:
                yield b"".join(parts)
            raise
        except OSError as error:
            raise explain(path, error) from error
        if not parts:
            return
        yield b"".join(parts)


def damaged(path: Path, position: Position, error: Exception) -> BadRows:
    """Return the error for a damaged gzip file, at the position where its good text ends."""
    ends = isinstance(error, EOFError)
    what = "the gzip data ends too early" if ends else f"the gzip data is damaged ({error})"
    step = "download or pack the file again"
    return BadRows([Problem(path, position.line, position.column, what, "a complete gzip file", step)])


def text_blocks(
    path: Path,
    *,
    compressed: bool,
    encoding: str,
    translate: bool = True,
    on_bytes: Callable[[int], None] | None = None,
) -> Iterator[str]:
    """Yield the text of a file in blocks of about a megabyte, with every line ending as a newline character.

    Without `translate` the text stays as it is. `on_bytes` gets the bytes of the file on disk read so far.
    """
    decoder = BlockDecoder(path, encoding, translate)
    with open_bytes(path, compressed) as stream:
        try:
            for data in byte_blocks(stream, path, BLOCK):
                yield from decoder.feed(data)
                if on_bytes is not None:
                    on_bytes(raw_position(stream))
        except DAMAGE as error:
            raise damaged(path, decoder.position, error) from error
        yield from decoder.feed(b"", final=True)


def raw_position(stream: io.BufferedIOBase) -> int:
    """Return how far into the file on disk a stream has read."""
    return int(getattr(stream, "fileobj", stream).tell())  # a gzip stream itself counts decompressed bytes


class BlockDecoder:
    """Decodes a file block by block: holds incomplete characters and reports the line and column of a bad byte."""

    def __init__(self, path: Path, encoding: str, translate: bool = True) -> None:
        self.path = path
        self.encoding = encoding
        self.position = Position()
        self._decoder = codecs.getincrementaldecoder(encoding)("strict")
        self._newlines = io.IncrementalNewlineDecoder(None, translate=translate)
        self._started = False

    def feed(self, data: bytes, *, final: bool = False) -> Iterator[str]:
        """Yield the text that these bytes complete; the good text before a bad byte comes before the error."""
        try:
            text = self._decoder.decode(data, final)
        except UnicodeDecodeError as error:
            good = error.object[: error.start].decode(self.encoding, "replace")
            yield from self._emit(good, final=True)
            raise BadRows([self._undecodable(error)]) from error
        except UnicodeError as error:  # such as UTF-16 without the byte order mark that it must start with
            step, position = self._other_encoding(), self.position
            problem = Problem(self.path, position.line, position.column, str(error), f"{self.encoding} text", step)
            raise BadRows([problem]) from error
        yield from self._emit(text, final=final)

    @property
    def newline(self) -> str:
        """The line ending so far: the characters, 'mixed', or empty when there was none."""
        seen = self._newlines.newlines
        if isinstance(seen, tuple):
            return "mixed"
        return seen or ""

    def _emit(self, text: str, *, final: bool) -> Iterator[str]:
        text = self._newlines.decode(text, final)
        if not self._started and text:
            self._started = True
            text = text.removeprefix("\ufeff")
        if text:
            self.position.advance(text)
            yield text

    def _undecodable(self, error: UnicodeDecodeError) -> Problem:
        value = f"byte 0x{error.object[error.start]:02X}"
        ends = "end of data" in error.reason or "truncated" in error.reason
        what = f"the file ends inside a character ({value})" if ends else f"{value} is not {self.encoding}"
        cut = "the file is cut short: download or write it again"
        step = cut if ends else self._other_encoding(error.object[error.start :])
        line, column = self.position.line, self.position.column
        return Problem(self.path, line, column, what, f"{self.encoding} text", step)

    def _other_encoding(self, data: bytes = b"") -> str:
        """Return the advice for bytes that are not text in the encoding."""
        # cp1252 has every character of latin-1, and quotes and dashes where latin-1 has control characters.
        other = "cp1252" if self.encoding == "utf-8" else "utf-8"
        if other == "cp1252" and not data.isascii() and any(byte in data for byte in NOT_CP1252):
            return "name its encoding with data.encoding=NAME, such as shift_jis, gb18030 or cp1251"
        return f"set data.encoding={other} or convert with iconv"
