"""JSON files of one document, such as SQuAD, COCO and VQA files."""

from __future__ import annotations

import json
from pathlib import Path

from saccade.data.tables.encodings import explain, marked_encoding, text_blocks
from saccade.data.tables.problems import BadRows, Problem
from saccade.data.tables.sniffing import format_size
from saccade.errors import DataError

GZIP = b"\x1f\x8b"


def is_json_name(name: str) -> bool:
    """Whether a file is one JSON document by its name."""
    return name.lower().removesuffix(".gz").endswith(".json")


def json_head(path: Path, encoding: str | None = None) -> str:
    """Return the first characters of a JSON file, about a million; empty if they cannot be read."""
    try:
        with path.open("rb") as stream:
            head = stream.read(4)
        codec = marked_encoding(head) or encoding or "utf-8"
        text = next(iter(text_blocks(path, compressed=head[:2] == GZIP, encoding=codec)), "")
    except (OSError, DataError):  # reading it reports what is wrong
        return ""
    return text.lstrip("\ufeff \t\r\n")


def check_unicode(text: str, value: object) -> None:
    """Raise UnicodeEncodeError for half of a surrogate pair in a JSON value, which no encoding can write."""
    if "\\ud" in text.lower():
        json.dumps(value, ensure_ascii=False).encode()


def load_json(path: Path, encoding: str, *, max_characters: int, expected: str, shape: str) -> object:
    """Return the JSON of a file; `expected` and `shape` are what such a file is, for messages."""
    try:
        with path.open("rb") as stream:
            head = stream.read(4)
    except OSError as error:
        raise explain(path, error) from error
    parts: list[str] = []
    size = 0
    for block in text_blocks(path, compressed=head[:2] == GZIP, encoding=marked_encoding(head) or encoding):
        parts.append(block)
        size += len(block)
        if size > max_characters:
            what, step = f"more than {format_size(max_characters)} of text", "divide it into several files"
            raise BadRows([Problem(path, None, None, what, "a smaller file", step)])
    try:
        return json.loads("".join(parts))
    except json.JSONDecodeError as error:
        what, step = f"invalid JSON ({error.msg})", "download the file again, or correct it"
        raise BadRows([Problem(path, error.lineno, error.colno, what, "one JSON document", step)]) from error
    except (RecursionError, ValueError) as error:
        what = "JSON nested too deeply" if isinstance(error, RecursionError) else f"invalid JSON ({error})"
        raise BadRows([Problem(path, None, None, what, expected, f"write it as {shape}")]) from error


def preview(value: object) -> str:
    """Return a value as JSON, shortened."""
    text = f"'{value}'" if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
