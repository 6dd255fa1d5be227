"""Journal: metrics.jsonl and samples.jsonl, one record a line, truncated to the checkpoint on resume."""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
import time
from pathlib import Path
from typing import Any, TextIO

from saccade import atomic_io
from saccade.errors import ModelFileError, ResourceError


class Journal:
    """Append records that have a step; reading and truncating tolerate an incomplete last line."""

    def __init__(self, path: Path, step: int) -> None:
        """Continue after `step`: later records, of a process that was killed, are removed."""
        self._path, temporary = path, path.with_name(path.name + ".tmp")
        records = [record for record in read_journal(path) if record["step"] <= step]
        with self._reported():
            atomic_io.write(temporary, "".join(map(_line, records)).encode())
            temporary.replace(path)  # a kill now loses no line
            self._file: TextIO = path.open("a", encoding="utf-8")
        self._flushed = time.monotonic()

    def write(self, record: dict[str, Any]) -> None:
        with self._reported():
            self._file.write(_line(record))
            if time.monotonic() - self._flushed > 1:  # for whoever follows the run
                self._file.flush()
                self._flushed = time.monotonic()

    def flush(self) -> None:
        """Write every record so far to disk."""
        with self._reported():
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file; a full disk was reported before, and a resumed run writes the lost records again."""
        with contextlib.suppress(OSError):
            self._file.close()

    @contextlib.contextmanager
    def _reported(self) -> Any:
        try:
            yield
        except OSError as error:
            raise ResourceError(f"cannot write {self._path}: {error}; the checkpoints are intact") from error


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Return all complete records, without the line that a kill cut off; any other damage is a ModelFileError."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would never end
            raise ModelFileError(f"{path} must be a file, but is none; remove it")
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}") from error
    # Lines end on \n alone: a sample may hold U+2028, at which splitlines() would cut.
    *lines, _ = content.split(b"\n")
    return [_record(path, number, line) for number, line in enumerate(lines, 1)]


def _record(path: Path, number: int, line: bytes) -> dict[str, Any]:
    """Return the record of one line: a JSON object of finite numbers that has a step."""
    try:
        record = json.loads(line, parse_constant=_not_finite)
    except (ValueError, RecursionError) as error:
        reason = str(error) or type(error).__name__
        raise ModelFileError(f"{path}:{number} is damaged: {reason}; restore the file from a copy") from error
    if not isinstance(record, dict) or type(record.get("step")) is not int:
        raise ModelFileError(f"{path}:{number} must be a JSON object with a step, but is {line[:60]!r}")
    return record


def _not_finite(name: str) -> float:
    raise ValueError(f"a number must be finite, but is {name}")


def _line(record: dict[str, Any]) -> str:
    """Return a record as a line of JSON, which has no nan or infinity: such a value is null."""
    finite = {name: None if _is_not_finite(value) else value for name, value in record.items()}
    return json.dumps(finite, ensure_ascii=False, allow_nan=False) + "\n"


def _is_not_finite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
