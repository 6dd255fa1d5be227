"""Journal: metrics.jsonl and samples.jsonl, one record a line, truncated to the checkpoint on resume."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any, TextIO

from saccade import atomic_io
from saccade.errors import ResourceError


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
    """Return all complete records, without the line that a kill cut off."""
    if not path.exists():
        return []
    records: list[dict[str, Any]] = []
    # Lines end on \n alone: a sample may hold U+2028, at which splitlines() would cut.
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and isinstance(record.get("step"), int):
            records.append(record)
    return records


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"
