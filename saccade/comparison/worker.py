"""Worker: the process of one part of a comparison. `python -m saccade.comparison.worker FOLDER MODEL STAGE`.

It tells its progress as lines of JSON; it ends at once when the process that started it is gone.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from saccade import api
from saccade.atomic_io import read_json, write_json
from saccade.comparison import measure
from saccade.comparison.probe import LENGTHS
from saccade.comparison.process import Part
from saccade.errors import SaccadeError

EVERY = 0.1  # seconds between two steps that are told
PROBE = "saccade.comparison.probe"


class Lines:
    """A report that writes a line of JSON for each word."""

    def __init__(self, file: TextIO, meanwhile: Callable[[], None]) -> None:
        self._file, self._meanwhile = file, meanwhile
        self._told, self._tokens = 0.0, 0

    def say(self, message: str) -> None:
        self._write("say", message)

    def advance(self, what: str, share: float) -> None:
        self._write("advance", what, share)

    def step(self, record: dict[str, Any], progress: float, total: int | None) -> None:
        self._tokens += record["tokens"]
        if time.monotonic() - self._told < EVERY:
            return
        self._write("step", {**record, "tokens": self._tokens}, progress, total)
        self._told, self._tokens = time.monotonic(), 0

    def evaluated(self, record: dict[str, Any], sample: str) -> None:
        self._meanwhile()
        self._write("evaluated", record, sample)

    def error(self, message: str, exit_code: int) -> None:
        self._write("error", message, exit_code)

    def _write(self, what: str, *values: Any) -> None:
        self._file.write(json.dumps([what, values]) + "\n")
        self._file.flush()


def work(folder: Path, part: Part, lines: Lines) -> dict[str, Any]:
    """Do a part, new or where it was stopped; its numbers."""
    if part.stage == "memory":
        return measure.attention_memory(lambda share: lines.advance("measuring", share))
    job = read_json(folder / "compare.json")
    words, task = [*job["words"], f"model.architecture={part.model}"], "translation"
    if part.stage != "train":
        kept = [word for word in job["words"] if word.startswith(("train.seed=", "train.device=", "train.precision="))]
        task, length = PROBE, f"train.minutes={job['probe_minutes'] / 2}"
        words = [*kept, length, "train.optim.cooldown=0.3", f"model.architecture={part.model}", f"kind={part.stage}"]
    if (folder / part.run / "run.json").exists():
        trained = api.resume(folder / part.run, report=lines, task=task)
    else:
        trained = api.train(job["data"], words, task=task, name=part.run, root=folder, report=lines)
    if part.stage != "train":
        return measure.probed(trained.run, trained.scores, LENGTHS)
    keep_peak(folder, part)
    found = measure.measured(trained, job, lambda what, share: lines.advance(what, share))
    return {**found, "peak_bytes": read_json(_peak_file(folder, part))["bytes"]}


def keep_peak(folder: Path, part: Part) -> None:
    """Remember the largest memory of any process that worked on this part."""
    file = _peak_file(folder, part)
    before = read_json(file)["bytes"] if file.exists() else 0
    write_json(file, {"bytes": max(before, measure.peak_bytes())})


def _peak_file(folder: Path, part: Part) -> Path:
    return part.file(folder).with_suffix(".peak.json")


def _follow() -> None:
    """End when the process that started this one has ended: the pipe to it closes."""
    while os.read(0, 1024):  # not sys.stdin, whose lock a thread must not hold at the end
        pass
    os._exit(1)  # as after a kill: whatever is on disk is whole


def main() -> None:
    folder, part = Path(sys.argv[1]), Part(sys.argv[2], sys.argv[3])
    told = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else is printed belongs to the log
    threading.Thread(target=_follow, daemon=True).start()
    lines = Lines(told, lambda: keep_peak(folder, part))
    try:
        found = work(folder, part, lines)
    except SaccadeError as error:
        lines.error(str(error), error.exit_code)
        sys.exit(error.exit_code)
    write_json(part.file(folder), found)


if __name__ == "__main__":
    main()
