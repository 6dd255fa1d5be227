"""Strict JSON: small files of a downloaded folder, read so that every parser would agree on their content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from saccade.errors import ModelFileError, printable

MAX_BYTES = 16 << 20


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file: unique keys, finite numbers."""
    content = _read(path)
    if not isinstance(content, dict):
        raise _refusal(path, f"must hold a JSON object, but holds {_kind(content)}")
    return content


def read_list(path: Path) -> list[Any]:
    """Return the JSON list of a file."""
    content = _read(path)
    if not isinstance(content, list):
        raise _refusal(path, f"must hold a JSON list, but holds {_kind(content)}")
    return content


def _read(path: Path) -> Any:
    """Return the JSON of a file, which every parser reads alike."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) < len(pairs):
            raise _refusal(path, f"keys must be unique, but one of {len(pairs):,} occurs twice")
        return values

    def constant(name: str) -> NoReturn:
        raise _refusal(path, f"numbers must be finite, but one is {name}")

    try:
        size = path.stat().st_size
        if not path.is_file():  # reading a pipe or a device might never end
            raise _refusal(path, "must be a regular file, but is not")
        if size > MAX_BYTES:
            raise _refusal(path, f"must have at most {MAX_BYTES:,} bytes, but has {size:,}")
        return json.loads(path.read_bytes().decode(), object_pairs_hook=unique, parse_constant=constant)
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}; download the model again") from error
    except (ValueError, RecursionError) as error:
        raise _refusal(path, f"must be JSON, but is not ({one_line(error)})") from error


def one_line(error: Exception) -> str:
    """Return the message of an error as one short printable line: no file may send control codes to a terminal."""
    return printable(" ".join(str(error).split())[:200]) or type(error).__name__


def _refusal(path: Path, rule: str) -> ModelFileError:
    return ModelFileError(f"{path}: {rule}; download the model again")


def _kind(content: object) -> str:
    """Return the name of a kind of JSON value."""
    kinds = {
        dict: "an object",
        list: "a list",
        str: "a string",
        bool: "true or false",
        int: "a number",
        float: "a number",
    }
    return kinds.get(type(content), "null")
