"""Process: one job of a comparison in a separate process, so that memory and crashes are isolated."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import saccade
from saccade.core import Callback
from saccade.errors import Interrupted
from saccade.training.device import stop_signals

FILE = "compare.json"  # description of a comparison in its folder
LOG_LINES = 5  # last lines of the log that are reported when a process crashes


@dataclass(frozen=True)
class Job:
    """One unit of work: train a model, or something else that a kind of comparison measures."""

    model: str
    """empty: it concerns all models"""
    stage: str
    weight: float = 0.0
    """estimated seconds"""
    label: str = ""
    """what it does, after the name of the model"""

    def __str__(self) -> str:
        return self.model + self.label

    @property
    def run(self) -> str:
        """Name of its run in the folder of the comparison."""
        name = self.model.replace("+", "-")
        return name if self.stage == "train" else f"{name}-{self.stage}"

    def file(self, folder: Path) -> Path:
        """Return the file of its results, which exists when it is finished."""
        return folder / "parts" / f"{self.run.strip('-')}.json"

    def log(self, folder: Path) -> Path:
        return self.file(folder).with_suffix(".log")


@dataclass(frozen=True)
class Failure:
    """A job that failed."""

    job: Job
    message: str
    exit_code: int


def run_job(folder: Path, job: Job, callback: Callback) -> Failure | None:
    """Run a job and report its events; a stop signal is forwarded, and the job saves its state before it ends."""
    job.file(folder).parent.mkdir(exist_ok=True)
    package = str(Path(saccade.__file__).resolve().parent.parent)
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-m", "saccade.comparison.worker", str(folder.resolve()), job.model, job.stage]
    error: dict[str, object] = {}
    with (
        job.log(folder).open("wb") as log,
        stop_signals() as stop,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # the worker ends when it is closed
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,  # Ctrl-C reaches this process alone, which passes it on once
        ) as child,
    ):
        assert child.stdout is not None
        signalled = False
        for line in child.stdout:
            if stop.number and not signalled:
                child.send_signal(stop.number)
                signalled = True
            error = _dispatch(callback, line) or error
        code = child.wait()
        if stop.number:
            raise Interrupted(stop.number, f"stopped at {job}; continue with the same command and --name {folder.name}")
    if code == 0 and job.file(folder).exists():
        return None
    message = str(error.get("message") or _crash_message(job.log(folder), code))
    return Failure(job, message, int(str(error.get("exit_code", 1))))


def _dispatch(callback: Callback, line: bytes) -> dict[str, object]:
    """Pass an event of the worker to the callback; return the error, if it is one."""
    event, values = json.loads(line)
    if event == "error":
        return dict(zip(("message", "exit_code"), values, strict=True))
    getattr(callback, event)(*values)
    return {}


def _crash_message(log: Path, code: int) -> str:
    """Return the reason why a process ended that reported no error."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    last = " / ".join(lines[-LOG_LINES:]) or "its log is empty"
    if code == -signal.SIGKILL:
        return "its process was killed by SIGKILL, probably because the system ran out of memory"
    reason = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    return f"its process {reason}: {last}"
