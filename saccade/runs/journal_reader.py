"""Reading journals again and again while a run writes them: only what was appended since the last time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from saccade.atomic_io import open_file
from saccade.runs.journal import parse_record

TAIL = 256  # bytes before the part that is read next, by which a file is recognized
State = TypeVar("State")
Record = dict[str, Any]


@dataclass
class _Position(Generic[State]):
    """How far a file was read, and what its records add up to."""

    state: State
    lines: int = 0
    offset: int = 0
    tail: bytes = b""


class JournalReader(Generic[State]):
    """A state of each journal, to which new records are added; a file that shrank or was replaced is read anew."""

    def __init__(self, start: Callable[[], State], add: Callable[[State, Record], State], files: int) -> None:
        """Begin with `start()` and `add` each record to it; keep the state of the `files` that were read last."""
        self._start, self._add, self._files = start, add, files
        self._positions, self._lock = OrderedDict[Path, _Position[State]](), threading.Lock()

    def __call__(self, path: Path) -> State:
        """Return the state after all complete lines; a damaged one is a ModelFileError, each time it is read."""
        if not path.exists():
            return self._start()
        with self._lock, open_file(path) as file:
            position = self._positions.pop(path, None) or _Position(self._start())
            file.seek(position.offset - len(position.tail))
            content = file.read()
            if not content.startswith(position.tail):
                file.seek(0)
                position, content = _Position(self._start()), file.read()
            else:
                content = content[len(position.tail) :]
            self._positions[path] = position
            while len(self._positions) > self._files:
                self._positions.popitem(last=False)
            # Lines end on \n alone: a sample may hold U+2028, at which splitlines() would cut.
            *lines, _ = content.split(b"\n")
            for line in lines:
                position.state = self._add(position.state, parse_record(path, position.lines + 1, line))
                position.lines += 1
                position.offset += len(line) + 1
                position.tail = (position.tail + line + b"\n")[-TAIL:]
            return position.state
