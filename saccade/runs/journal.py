"""Journal: metrics.jsonl and samples.jsonl, one line a record, cut back to the checkpoint on resume."""

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
    """Appends records that have a step; reading and cutting tolerate a torn last line."""

    def __init__(self, path: Path, step: int) -> None:
        """Go on after `step`: what was written later, by a run that was killed, is taken out."""
        self._path, aside = path, path.with_name(path.name + ".tmp")
        records = [record for record in read_journal(path) if record["step"] <= step]
        with self._told():
            atomic_io.write(aside, "".join(map(_line, records)).encode())
            aside.replace(path)  # a kill now loses no line
            self._file: TextIO = path.open("a", encoding="utf-8")
        self._shown = time.monotonic()

    def write(self, record: dict[str, Any]) -> None:
        with self._told():
            self._file.write(_line(record))
            if time.monotonic() - self._shown > 1:  # whoever follows the run sees it now
                self._file.flush()
                self._shown = time.monotonic()

    def flush(self) -> None:
        """Bring every line so far safely to disk."""
        with self._told():
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Let go of the file; lines that found no room were told of before, and a resumed run writes them again."""
        with contextlib.suppress(OSError):
            self._file.close()

    @contextlib.contextmanager
    def _told(self) -> Any:
        try:
            yield
        except OSError as error:
            raise ResourceError(f"cannot write {self._path}: {error}; the checkpoints are whole") from error


def read_journal(path: Path) -> list[dict[str, Any]]:
    """All whole records; the line a kill tore is left out."""
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
