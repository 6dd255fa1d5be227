"""Status of the rows: shown, failed or not run, by the last run of each with this code on this machine."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch

import saccade
from saccade.atomic_io import read_json, write_json
from saccade.data.cache import default_cache
from saccade.errors import ModelFileError

NAME = "lectures.json"
Status = Literal["shown", "failed", "not run"]


@dataclass(frozen=True)
class Record:
    """The last run of a row."""

    status: Status
    seconds: float = 0.0
    reason: str = ""
    """why it failed or was not run"""


NOT_RUN = Record("not run")


@cache
def version() -> str:
    """Return the version of the code: another version of saccade, of any of its files, or of torch starts anew."""
    root, code = Path(saccade.__file__).parent, hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        code.update(f"{path.relative_to(root)}\0".encode())
        code.update(path.read_bytes())
    return f"saccade {saccade.__version__} {code.hexdigest()[:12]}, torch {torch.__version__}"


def read_records() -> dict[str, Record]:
    """Return the last run of each row with this version; a file that cannot be read counts as none."""
    path = default_cache() / NAME
    try:
        value = read_json(path) if path.is_file() else {}
    except ModelFileError:
        return {}
    if value.get("version") != version():
        return {}
    rows: Mapping[str, Any] = value["rows"]
    return {name: Record(**record) for name, record in rows.items()}


def write_record(row: str, record: Record) -> None:
    """Save the last run of a row, atomically; of several processes one after the other."""
    path = default_cache() / NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("a") as lock:  # closing it ends the lock
        fcntl.flock(lock, fcntl.LOCK_EX)
        records = {**read_records(), row: record}
        write_json(path, {"version": version(), "rows": {name: asdict(record) for name, record in records.items()}})
