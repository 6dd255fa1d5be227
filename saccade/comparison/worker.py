"""Worker: the process of one job of a comparison. `python -m saccade.comparison.worker FOLDER MODEL STAGE`.

It reports its events as lines of JSON, and ends at once when the process that started it is gone.
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
from saccade.comparison.kinds import KINDS
from saccade.comparison.measure import peak_bytes
from saccade.comparison.process import FILE, Job
from saccade.core import Callback
from saccade.errors import SaccadeError
from saccade.run import Run

INTERVAL = 0.1  # minimum seconds between two reported steps


class EventWriter(Callback):
    """Writes each event as a line of JSON."""

    def __init__(self, file: TextIO, after_evaluation: Callable[[], None]) -> None:
        self._file, self._after_evaluation = file, after_evaluation
        self._reported, self._units = 0.0, 0

    def log(self, message: str) -> None:
        self._write("log", message)

    def on_progress(self, stage: str, fraction: float) -> None:
        self._write("on_progress", stage, fraction)

    def on_step(self, record: dict[str, Any], progress: float, total: int | None) -> None:
        unit = record["unit"]
        self._units += record[unit]
        if time.monotonic() - self._reported < INTERVAL:
            return
        self._write("on_step", {**record, unit: self._units}, progress, total)
        self._reported, self._units = time.monotonic(), 0

    def on_evaluation(self, record: dict[str, Any], sample: str) -> None:
        self._after_evaluation()
        self._write("on_evaluation", record, sample)

    def error(self, message: str, exit_code: int) -> None:
        """Report why the job failed."""
        self._write("error", message, exit_code)

    def _write(self, event: str, *values: Any) -> None:
        self._file.write(json.dumps([event, values]) + "\n")
        self._file.flush()


def work(folder: Path, job: Job, events: EventWriter) -> dict[str, Any]:
    """Run a job, or resume it if it was interrupted; return its results."""
    settings = read_json(folder / FILE)
    kind = KINDS[settings["task"]]
    training = kind.training(job, settings)
    run = None if training is None else _train(folder, job, settings["data"], training, events)
    if job.stage != "train":
        return kind.measure(job, run, settings, events.on_progress)
    save_peak(folder, job)
    results = kind.measure(job, run, settings, events.on_progress)
    return {**results, "peak_bytes": read_json(_peak_file(folder, job))["bytes"]}


def _train(folder: Path, job: Job, data: str, training: tuple[str, list[str]], events: EventWriter) -> Run:
    """Train the run of a job to its end."""
    task, overrides = training
    if (folder / job.run / "run.json").exists():
        return api.resume(folder / job.run, task=task, callbacks=[events], progress=False)
    return api.train(
        data, task=task, name=job.run, root=folder, overrides=overrides, callbacks=[events], progress=False
    )


def save_peak(folder: Path, job: Job) -> None:
    """Save the peak memory over all processes that ran this job."""
    file = _peak_file(folder, job)
    before = read_json(file)["bytes"] if file.exists() else 0
    write_json(file, {"bytes": max(before, peak_bytes())})


def _peak_file(folder: Path, job: Job) -> Path:
    return job.file(folder).with_suffix(".peak.json")


def _end_with_parent() -> None:
    """Exit when the parent process has ended: the pipe to it closes."""
    while os.read(0, 1024):  # not sys.stdin, whose lock a thread must not hold at the end
        pass
    os._exit(1)  # as after a kill: files are written atomically


def main() -> None:
    folder, job = Path(sys.argv[1]), Job(sys.argv[2], sys.argv[3])
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # anything else that is printed belongs to the log
    threading.Thread(target=_end_with_parent, daemon=True).start()
    events = EventWriter(output, lambda: save_peak(folder, job))
    try:
        results = work(folder, job, events)
    except SaccadeError as error:
        events.error(str(error), error.exit_code)
        sys.exit(error.exit_code)
    write_json(job.file(folder), results)


if __name__ == "__main__":
    main()
