"""Exact resume, proved on the user's own run: two copies train on, one is killed repeatedly, all bytes are compared."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from saccade.atomic_io import write_json
from saccade.checks.report import Outcome, passed, skipped
from saccade.errors import ResourceError
from saccade.runs import checkpoint as checkpoints
from saccade.runs import provenance
from saccade.runs.checkpoint import Checkpoint
from saccade.runs.equality import differences
from saccade.runs.folder import Run

NAME = "resume"
SUMMARY = "a copy of the run that is killed (kill -9) and resumed ends with the same bytes as one that is not"
STEPS, KILLS = 24, 3
SEED = 20_260_118
FIRST = ("model.safetensors", "metrics.jsonl")  # files that are named first where they differ
LONGEST = 1800.0  # seconds of one process
POLL = 0.002
PAUSE = 0.2  # seconds at most after the moment at which a process may be killed
ATTEMPTS = 4  # a copy that has ended before a kill is replaced by a new one, which is killed earlier


def check_resume(run: Run, task: str = "", *, kills: int = KILLS, steps: int = STEPS) -> Outcome:
    """Train two copies of a run some steps further, one of them with kills at random points, and compare all files.

    `task` allows a task that is not built in, as for `resume`.
    """
    if run.running():
        return skipped("the run is being trained now; check it when it has ended")
    with tempfile.TemporaryDirectory(prefix="saccade-check-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        for side in ("reference", "killed"):
            (folder / side).mkdir()
        reference = Run(folder / "reference" / run.name)
        shutil.copytree(run.folder, reference.folder)
        if not extend(reference, steps):
            return skipped("the run has no checkpoint yet")
        killed = Run(folder / "killed" / run.name)
        count = _kill_copy(reference, killed, kills, steps, task)
        if not count:
            return skipped(f"{ATTEMPTS} copies of the run trained {steps} steps before they could be killed")
        _finish(reference, task)
        _finish(killed, task)
        differing = sorted(differences(killed.folder, reference.folder), key=lambda name: not name.endswith(FIRST))
    times = "1 kill" if count == 1 else f"{count} kills"
    if not differing:
        return passed(f"{steps} more steps with {times}: every file of the run folder is identical")
    shown = ", ".join(differing[:4])
    return Outcome(
        "failed",
        f"after {times} {len(differing)} files differ from those of an uninterrupted copy: {shown}",
        f"{steps} more steps of a copy of the run",
        "what the loss or the data depend on besides the seed and the step: random numbers, the clock, a hidden state",
    )


def extend(run: Run, steps: int) -> bool:
    """Change the copy of a run so that it has some more steps to train; False: it has no checkpoint."""
    last = checkpoints.newest(run.checkpoints, lambda message: None, checkpoints.read_consistent)
    if last is None:
        return False
    described, recorded = run.describe(), provenance.read(run) or {}
    length = {"steps": last.step + steps, "minutes": 0.0, "epochs": 0.0, "patience": 0}
    often = {"save_every": max(1, steps // 8), "evaluate_every": max(1, steps // 3)}
    write_json(run.folder / "run.json", {**described, "train": {**described["train"], **length, **often}})
    provenance.record(run, recorded.get("fingerprint", ""))
    state = replace(
        last.state,
        data=provenance.identity(run.folder),
        budget={},
        best={},
        stopped=False,
        unimproved=0,
        kept=[last.step],
        scheduled=[],
    )
    shutil.rmtree(run.checkpoints)
    checkpoints.save(run.checkpoints, Checkpoint(last.step, last.parts, state))
    for name in ("budget.json", "card.md", "analysis.json"):  # of the end of the run, which is another one now
        (run.folder / name).unlink(missing_ok=True)
    return True


def _start(run: Run, task: str) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "saccade",
        "resume",
        run.name,
        "--runs",
        str(run.folder.parent),
        "--quiet",
        "--json",
    ]
    command += ["--task", task] if "." in task else []
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=os.environ)


def _finish(run: Run, task: str) -> None:
    """Resume a copy and wait for its end."""
    process = _start(run, task)
    try:
        _, error = process.communicate(timeout=LONGEST)
    finally:
        _end(process)
    if process.returncode:
        message = error.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        raise ResourceError(f"a copy of the run cannot be trained on: exit code {process.returncode}, {message[0]}")


def _kill_copy(start: Run, killed: Run, kills: int, steps: int, task: str) -> int:
    """Copy a run, resume the copy and kill it; returns how often: at least once, if it does not train too fast."""
    for attempt in range(ATTEMPTS):
        shutil.rmtree(killed.folder, ignore_errors=True)
        shutil.copytree(start.folder, killed.folder)
        reach = (steps - steps // 4) >> 2 * attempt  # the last kill leaves some steps
        count = _kill(killed, kills, reach, task, PAUSE if attempt == 0 else 0.0)
        if count:
            return count
    return 0


def _kill(run: Run, kills: int, reach: int, task: str, pause: float) -> int:
    """Resume a run and kill it, at rising random steps up to `reach` from now; returns how often it was killed."""
    draw, first, count = random.Random(SEED), _newest(run), 0
    for number in range(kills):
        target = first + draw.randint(reach * number // kills, max(0, reach * (number + 1) // kills - 1))
        process = _start(run, task)
        deadline = time.monotonic() + LONGEST
        began = False
        while process.poll() is None and time.monotonic() < deadline and not (began and _newest(run) >= target):
            began = began or _trains(run)
            time.sleep(POLL)
        time.sleep(draw.uniform(0, pause))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            count += 1
        _end(process)
        if process.returncode not in (0, -signal.SIGKILL):
            break  # `_finish` says why
    return count


def _trains(run: Run) -> bool:
    """Whether a process has the lock of a copy: it is past its imports."""
    return run.running()


def _newest(run: Run) -> int:
    """Return the step of the newest checkpoint, by its name alone."""
    with contextlib.suppress(OSError):
        return max(checkpoints.steps(run.checkpoints), default=0)
    return 0


def _end(process: subprocess.Popen[Any]) -> None:
    """Make sure that a process has ended, and close its pipe."""
    if process.poll() is None:
        process.kill()
    process.wait()
    if process.stderr is not None:
        process.stderr.close()
