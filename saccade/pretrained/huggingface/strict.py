"""Strict JSON: the small files of a foreign folder, read so that every reader would see the same in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from saccade.errors import ModelFileError

LARGEST = 16 << 20  # bytes


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object of a file: no key twice, only numbers that are numbers."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        row = dict(pairs)
        if len(row) < len(pairs):
            raise _refusal(path, f"keys must be different, but one of {len(pairs):,} stands twice")
        return row

    def constant(word: str) -> NoReturn:
        raise _refusal(path, f"numbers must be finite, but one is {word}")

    try:
        size = path.stat().st_size
        if not path.is_file():  # a pipe or a device would be waited for without end
            raise _refusal(path, "must be an ordinary file, but is not")
        if size > LARGEST:
            raise _refusal(path, f"must have at most {LARGEST:,} bytes, but has {size:,}")
        found = json.loads(path.read_bytes().decode(), object_pairs_hook=unique, parse_constant=constant)
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}; get the model again") from error
    except (ValueError, RecursionError) as error:
        raise _refusal(path, f"must be JSON, but is not ({short(error)})") from error
    if not isinstance(found, dict):
        raise _refusal(path, f"must hold a JSON object, but holds {type(found).__name__}")
    return found


def short(error: Exception) -> str:
    """What an error says, in one line of a sensible length; nothing of a file may steer a terminal."""
    line = " ".join(str(error).split())[:200]
    return "".join(sign if sign.isprintable() else "?" for sign in line) or type(error).__name__


def _refusal(path: Path, rule: str) -> ModelFileError:
    return ModelFileError(f"{path}: {rule}; get the model again from where it came from")
