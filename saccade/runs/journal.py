"""Journal: metrics.jsonl and samples.jsonl, one record a line, truncated to the checkpoint on resume."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, BinaryIO

from saccade.atomic_io import open_file
from saccade.errors import ModelFileError, ResourceError

JOURNALS = ("metrics.jsonl", "samples.jsonl")
BLOCK = 1 << 20  # bytes hashed at once
NOT_METRICS = ("step", "elapsed", "best")  # of the record of an evaluation
GONE = "put it back and continue with `saccade resume`, or train a new run"


@dataclass(frozen=True)
class JournalSummary:
    """What a list of runs shows of a journal."""

    step: int = 0
    best: float | None = None
    seconds: float = 0.0
    """of training"""
    metrics: tuple[str, ...] = ()
    """the values of the evaluations that were the best score whenever it improved: most often one"""

    def add(self, record: dict[str, Any]) -> JournalSummary:
        """Return the summary with one more record."""
        step, seconds = max(self.step, record["step"]), record.get("seconds", self.seconds)
        best, metrics = record.get("best", self.best), self.metrics
        if best != self.best:
            equal = tuple(name for name, value in record.items() if value == best and name not in NOT_METRICS)
            metrics = tuple(name for name in metrics if name in equal) or equal
        return JournalSummary(step, best, seconds, metrics)


@dataclass(frozen=True)
class Written:
    """How much a journal held at a checkpoint: these bytes must never change."""

    bytes: int = 0
    sha256: str = hashlib.sha256().hexdigest()


class Journal:
    """Append records that have a step; reading tolerates an incomplete last line."""

    def __init__(self, path: Path, written: Written | None = None) -> None:
        """Continue after what a checkpoint has recorded; later lines, of a process that was killed, are removed."""
        written = written or Written()
        self._path, self._bytes, self._digest = path, written.bytes, check_written(path, written)
        with self._reported():
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(path, flags, 0o644)
            self._file: BinaryIO = os.fdopen(descriptor, "ab")
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                self._file.close()
                raise ModelFileError(f"{path} must be a regular file, but is not")
            os.ftruncate(descriptor, written.bytes)
        self._flushed = time.monotonic()

    def write(self, record: dict[str, Any]) -> None:
        line = _line(record).encode(errors="replace")
        self._digest.update(line)
        self._bytes += len(line)
        with self._reported():
            self._file.write(line)
            if time.monotonic() - self._flushed > 1:  # for whoever follows the run
                self._file.flush()
                self._flushed = time.monotonic()

    def flush(self) -> Written:
        """Write every record so far to disk and return how much that is."""
        with self._reported():
            self._file.flush()
            os.fsync(self._file.fileno())
        self._check_place()
        return Written(self._bytes, self._digest.hexdigest())

    def close(self) -> None:
        """Close the file; a full disk was reported before, and a resumed run writes the lost records again."""
        with contextlib.suppress(OSError):
            self._file.close()

    def _check_place(self) -> None:
        """Refuse to go on if the file, or the folder of the run, is not there any more."""
        try:
            same = os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())
        except OSError:
            same = False
        if not same:
            folder = self._path.parent
            what = f"{self._path} was" if folder.is_dir() else f"the run folder {folder} was"
            raise ResourceError(f"{what} deleted, moved or replaced while the run was trained; {GONE}")

    @contextlib.contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ResourceError(f"cannot write {self._path}: {error}; the checkpoints are intact") from error


class NullJournal(Journal):
    """The journal of a process that writes nothing."""

    def __init__(self, path: Path, written: Written | None = None) -> None:
        self._written = written or Written()

    def write(self, record: dict[str, Any]) -> None:
        pass

    def flush(self) -> Written:
        return self._written

    def close(self) -> None:
        pass


def check_written(path: Path, written: Written) -> Any:
    """Return the hash object of what a checkpoint has recorded of a journal; refuse a file that was cut or altered."""
    digest, left = hashlib.sha256(), written.bytes
    if written.bytes:
        with open_file(path) as file:
            while left and (block := file.read(min(BLOCK, left))):
                digest.update(block)
                left -= len(block)
    if left or digest.hexdigest() != written.sha256:
        what = "is shorter than" if left else "differs from"
        raise ModelFileError(f"{path} {what} the {written.bytes:,} bytes that were written by then")
    return digest


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Return all complete records, without the line that a kill cut off; any other damage is a ModelFileError."""
    if not path.exists():
        return []
    with open_file(path) as file:
        content = file.read()
    # Lines end on \n alone: a sample may hold U+2028, at which splitlines() would cut.
    *lines, _ = content.split(b"\n")
    return [parse_record(path, number, line) for number, line in enumerate(lines, 1)]


def summarize_journal(path: Path) -> JournalSummary:
    """Return the summary of a journal."""
    return reduce(JournalSummary.add, read_journal(path), JournalSummary())


def parse_record(path: Path, number: int, line: bytes) -> dict[str, Any]:
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
