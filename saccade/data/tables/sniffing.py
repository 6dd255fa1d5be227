"""Sniffing: decides from the first bytes of a file how it is compressed, encoded and structured."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from saccade.data.tables.encodings import (
    DAMAGE,
    BlockDecoder,
    Position,
    byte_blocks,
    check_encoding,
    damaged,
    explain,
    marked_encoding,
    open_bytes,
)
from saccade.data.tables.kinds import refuse_binary, refuse_page
from saccade.data.tables.layouts import Layout, sniff_layout
from saccade.data.tables.problems import BadRows, Problem
from saccade.data.tables.source_files import is_source
from saccade.errors import DataError

Format = Literal["text", "csv", "tsv", "jsonl"]

HEAD = 1 << 18  # bytes; enough rows to judge a layout, small enough to be instant
FORMATS: dict[str, Format] = {".txt": "text", ".md": "text", ".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl"}
LATIN_1, C1_BYTES = "iso8859-1", re.compile(rb"[\x80-\x9f]")
NEWLINES = {"\r\n": "CRLF", "\r": "CR", "mixed": "mixed"}


@dataclass(frozen=True)
class DataFile:
    """A data file: how to read it, and notes on what was decided."""

    path: Path
    format: Format
    gzip: bool
    encoding: str
    bom: bool
    newline: str
    size: int
    columns: tuple[str, ...]
    notes: tuple[str, ...]
    delimiter: str = ""
    quoted: bool = False
    header: bool = False
    header_given: bool = False
    """whether the user said if there is a header"""
    header_unclear: bool = False
    """whether the first row may be a header or data"""

    def describe(self) -> str:
        """Return one line for the user: 'tinyshakespeare.txt: text, utf-8, 1.1 MB'."""
        parts = [self.format + (" in gzip" if self.gzip else ""), self.encoding, format_size(self.size)]
        if self.columns:
            parts.append(f"columns {', '.join(name or '(no name)' for name in self.columns)}")
        return f"{self.path.name}: {', '.join(parts)}" + "".join(f"; {note}" for note in self.notes)


def format_size(size: int) -> str:
    """Return a number of bytes with its unit: 999 bytes, 1.1 MB."""
    if size < 1000:
        return f"{size} byte" + ("" if size == 1 else "s")
    amount = float(size)
    for unit in ("kB", "MB", "GB"):
        amount /= 1000
        if amount < 999.95:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1000:.1f} TB"


def sniff(path: Path, *, encoding: str | None = None, header: bool | None = None) -> DataFile:
    """Decide from the start of a file how to read it; a given encoding or header is not guessed."""
    path = Path(path)
    given = check_encoding(encoding) if encoding is not None else None
    head, compressed, complete = _read_head(path)
    marked = marked_encoding(head)
    refuse_binary(path, head, marked or given)
    codec = marked or given or "utf-8"
    decoder = BlockDecoder(path, codec)
    text = "".join(decoder.feed(head, final=complete))
    format, notes = _detect_format(path, head, text, complete)
    if given is not None and marked is not None and given.partition("-")[0] != marked.partition("-")[0]:
        notes.append(f"the byte order mark is that of {marked}, so {given} is not used")
    if codec == LATIN_1 and C1_BYTES.search(head):
        notes.append("control characters of latin-1, which are quotes and dashes in cp1252: is the encoding cp1252?")
    layout = sniff_layout(format, text, complete, header) if format != "text" else Layout()
    if decoder.newline in NEWLINES:
        notes.append(f"{NEWLINES[decoder.newline]} line ends are read as \\n")
    return DataFile(
        path=path,
        format=format,
        gzip=compressed,
        encoding=codec,
        bom=marked is not None,
        newline=decoder.newline,
        size=path.stat().st_size,
        columns=layout.columns,
        notes=(*notes, *layout.notes),
        delimiter=layout.delimiter,
        quoted=layout.quoted,
        header=layout.header,
        header_given=header is not None,
        header_unclear=layout.header_unclear,
    )


def with_named_columns(file: DataFile, names: Sequence[str]) -> DataFile:
    """Return a table whose first row is the header if all given names are in it: names settle what rows leave open."""
    if file.format == "jsonl" or file.columns or file.header_given or all(name.isdecimal() for name in names):
        return file
    headed = sniff(file.path, encoding=file.encoding, header=True)
    return headed if set(names) <= set(headed.columns) else file


def _read_head(path: Path) -> tuple[bytes, bool, bool]:
    """Return the first decompressed bytes of a file, whether it is gzip, and whether that is all of it."""
    if path.is_fifo():
        raise DataError(f"{path}: a pipe, expected a file; write its content to a file")
    try:
        with path.open("rb") as stream:
            compressed = stream.read(2) == b"\x1f\x8b"
    except OSError as error:
        raise explain(path, error) from error
    with open_bytes(path, compressed) as decompressed:
        blocks = byte_blocks(decompressed, path, HEAD)
        try:
            head = next(blocks, b"")
        except DAMAGE as error:
            raise damaged(path, Position(), error) from error
        try:
            complete = next(blocks, None) is None
        except DAMAGE:  # reading will report it, with its line
            complete = False
    if not head:
        what = "the gzip file holds nothing" if compressed else "an empty file"
        raise BadRows([Problem(path, 1, None, what, "text, csv, tsv or jsonl", "name a file with data in it")])
    if not compressed and path.suffix.lower() == ".gz":
        raise DataError(f"{path}:1:1: not gzip data, expected gzip because of its name; rename it without .gz")
    return head, compressed, complete


def _detect_format(path: Path, head: bytes, text: str, complete: bool) -> tuple[Format, list[str]]:
    """Return the format by name, corrected by what the lines look like."""
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    last = suffixes[-2] if len(suffixes) > 1 and suffixes[-1] == ".gz" else (suffixes or [""])[-1]
    if is_source(path.name):
        return "text", []
    named = FORMATS.get(last, "text")
    if named != "text":
        refuse_page(path, head, named)
    lines = text.split("\n")
    full_lines = lines if complete else lines[:-1] or lines
    if named != "jsonl" and _looks_like_jsonl(full_lines):
        return "jsonl", [f"JSON lines although the name ends in '{last}'"]
    if last == ".json":
        message = f"{path}:1:1: one JSON document, expected one JSON object per line (jsonl)"
        raise DataError(f"{message}; convert a list with: jq -c '.[]' '{path}' > rows.jsonl")
    if named in ("text", "csv") and _looks_like_tsv(full_lines, named):
        return "tsv", [f"tab-separated although the name ends in '{last}'" if last else "tab-separated"]
    return named, []


def _looks_like_jsonl(lines: list[str]) -> bool:
    """Whether the first lines are JSON objects; one is enough when it is the only one."""
    sample = [line for line in lines if line.strip()][:5]
    if not sample or not all(line.lstrip().startswith("{") for line in sample):
        return False
    try:
        return isinstance(json.loads(sample[0]), dict)
    except (ValueError, RecursionError):
        return False


def _looks_like_tsv(lines: list[str], named: Format) -> bool:
    """Whether every line has the same number of tabs (for a csv name: while commas do not fit)."""
    last = next((number for number in range(len(lines), 0, -1) if lines[number - 1]), 0)
    lines = lines[:last]
    tabs = {line.count("\t") for line in lines}
    if len(tabs) != 1 or tabs == {0}:
        return False
    if named == "csv":
        commas = {line.count(",") for line in lines}
        return len(commas) > 1 or commas == {0}
    return len(lines) >= 3
