"""Process: one part of a comparison in a process of its own, so that memory is its own and a crash stays its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import saccade
from saccade.errors import Interrupted
from saccade.training.device import stop_signals
from saccade.training.loop import Callback

SHOWN = 5  # last lines of a crashed process


@dataclass(frozen=True)
class Part:
    """Something to be done for one model: train, copy, reverse; or the memory of attention, for none."""

    model: str
    stage: str
    weight: float = 0.0
    """seconds it may take"""

    def __str__(self) -> str:
        what = {"train": "", "copy": ": copying", "reverse": ": reversing", "memory": "memory of attention"}
        return self.model + what[self.stage]

    @property
    def run(self) -> str:
        """The name of its run in the folder of the comparison."""
        name = self.model.replace("+", "-")
        return name if self.stage == "train" else f"{name}-{self.stage}"

    def file(self, folder: Path) -> Path:
        """Where its numbers are when it is done."""
        return folder / "parts" / f"{self.run.strip('-')}.json"

    def log(self, folder: Path) -> Path:
        return self.file(folder).with_suffix(".log")


@dataclass(frozen=True)
class Failure:
    """A part that did not come to its end."""

    part: Part
    message: str
    exit_code: int


def run_part(folder: Path, part: Part, report: Callback) -> Failure | None:
    """Run a part to its end and tell how it goes; a stop signal is passed on, and waits until all is saved."""
    part.file(folder).parent.mkdir(exist_ok=True)
    home = str(Path(saccade.__file__).resolve().parent.parent)
    paths = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-m", "saccade.comparison.worker", str(folder.resolve()), part.model, part.stage]
    error: dict[str, object] = {}
    with (
        part.log(folder).open("wb") as log,
        stop_signals() as stop,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # its end tells the worker that we are gone
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,  # a Ctrl-C reaches us alone, and is passed on once
        ) as child,
    ):
        assert child.stdout is not None
        told = False
        for line in child.stdout:
            if stop.number and not told:
                child.send_signal(stop.number)
                told = True
            error = _tell(report, line) or error
        code = child.wait()
        if stop.number:
            raise Interrupted(stop.number, f"stopped at {part}; the same command with --name {folder.name} goes on")
    if code == 0 and part.file(folder).exists():
        return None
    message = str(error.get("message") or _last_words(part.log(folder), code))
    return Failure(part, message, int(str(error.get("exit_code", 1))))


def _tell(report: Callback, line: bytes) -> dict[str, object]:
    """Pass on a line of the worker; the error that it holds, if it is one."""
    what, values = json.loads(line)
    if what == "error":
        return dict(zip(("message", "exit_code"), values, strict=True))
    getattr(report, what)(*values)
    return {}


def _last_words(log: Path, code: int) -> str:
    """Why a process ended that could not tell."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    last = " / ".join(lines[-SHOWN:]) or "it said nothing"
    if code == -signal.SIGKILL:
        return "its process was killed by SIGKILL, as a system does that runs out of memory"
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    return f"its process {how}: {last}"
