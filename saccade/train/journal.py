"""Journal: metrics.jsonl and samples.jsonl, one line a record, cut back to the checkpoint on resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TextIO

from saccade.errors import ResourceError


class Journal:
    """Appends records that have a step; reading and cutting tolerate a torn last line."""

    def __init__(self, path: Path, step: int) -> None:
        """Go on after `step`: what was written later, by a run that was killed, is taken out."""
        records = [record for record in read_journal(path) if record["step"] <= step]
        self._file: TextIO = path.open("w", encoding="utf-8")
        for record in records:
            self._file.write(json.dumps(record) + "\n")
        self._file.flush()

    def write(self, record: dict[str, Any]) -> None:
        try:
            self._file.write(json.dumps(record, ensure_ascii=False) + "\n")
        except OSError as error:
            raise ResourceError(f"cannot write {self._file.name}: {error}; the checkpoints are whole") from error

    def flush(self) -> None:
        try:
            self._file.flush()
        except OSError as error:
            raise ResourceError(f"cannot write {self._file.name}: {error}; the checkpoints are whole") from error

    def close(self) -> None:
        self._file.close()


def read_journal(path: Path) -> list[dict[str, Any]]:
    """All whole records; the line a kill tore is left out."""
    if not path.exists():
        return []
    records: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            break
        records.append(record)
    return records
