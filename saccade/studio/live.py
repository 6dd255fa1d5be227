"""Live: runs as they are now: their curves, what they see, and the buttons that stop them and let them go on."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from saccade import api
from saccade.atomic_io import read_json
from saccade.errors import UsageError
from saccade.runs import folder as runs
from saccade.runs.journal import read_journal
from saccade.runs.snapshots import FOLDER

POINTS = 600  # of a curve


def listed(root: Path) -> list[dict[str, Any]]:
    """All runs, the newest first."""
    return list(reversed(api.list_runs(root)))


def curves(root: Path, name: str) -> dict[str, Any]:
    """What a run has measured: losses of its steps, thinned out, and all its evaluations."""
    run = named(root, name)
    records = read_journal(run.folder / "metrics.jsonl")
    steps = [record for record in records if "rate" in record]
    thin = steps[:: max(1, len(steps) // POINTS)]
    if steps and thin[-1] is not steps[-1]:
        thin.append(steps[-1])
    described = run.describe()
    return {
        "name": name,
        "task": described["task"],
        "data": Path(described["data"]).name,
        "running": run.running(),
        "finished": run.finished(),
        "steps": thin,
        "speed": _speed(steps),
        "scores": [record for record in records if "best" in record],
        "samples": read_journal(run.folder / "samples.jsonl")[-20:],
        "seen": seen(root, name),
    }


def _speed(steps: list[dict[str, Any]]) -> list[list[float]]:
    """Tokens a second between points of the curve."""
    found = []
    size = max(1, len(steps) // POINTS)
    for first in range(0, len(steps) - size, size):
        part = steps[first : first + size + 1]
        seconds = part[-1]["seconds"] - part[0]["seconds"]
        if seconds > 0:
            found.append([part[-1]["step"], sum(record["tokens"] for record in part[1:]) / seconds])
    return found


def seen(root: Path, name: str) -> list[int]:
    """The steps whose attention was kept."""
    folder = named(root, name).folder / FOLDER
    found = (re.fullmatch(r"step-(\d{8})\.json", path.name) for path in folder.glob("step-*.json"))
    return sorted(int(match[1]) for match in found if match)


def attention_snapshot(root: Path, name: str, step: int) -> dict[str, Any]:
    """What was looked at in a step."""
    if step not in seen(root, name):
        raise UsageError(f"run '{name}' kept no attention of step {step}")
    return read_json(named(root, name).folder / FOLDER / f"step-{step:08d}.json")


def examples(root: Path, name: str) -> list[str]:
    """Validation texts that a run kept to be looked at; for a model from elsewhere two that are well known."""
    if name not in {run.name for run in runs.list_runs(root)}:
        return [f"The animal didn't cross the street because it was too {why}." for why in ("tired", "wide")]
    steps = seen(root, name)
    return [one["input"] for one in attention_snapshot(root, name, steps[-1])["examples"]] if steps else []


def stop(root: Path, name: str) -> None:
    """Ask the process that trains a run to save and end."""
    run = named(root, name)
    owner = (run.folder / "run.lock").read_text().strip() if run.running() else ""
    if not owner.isdecimal():
        raise UsageError(f"run '{name}' is not being trained")
    with contextlib.suppress(ProcessLookupError):  # it ended a moment ago
        os.kill(int(owner), signal.SIGTERM)


def resume(root: Path, name: str) -> None:
    """Go on with a run in a process of its own, which outlives the studio."""
    run = named(root, name)
    if run.running():
        raise UsageError(f"run '{name}' is being trained already")
    with (run.folder / "studio.log").open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-m", "saccade", "resume", str(run.folder.resolve())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def named(root: Path, name: str) -> runs.Run:
    """A run of the folder by its name alone: a name from a page is never a path."""
    if name not in {run.name for run in runs.list_runs(root)}:
        raise UsageError(f"no run '{name}'")
    return runs.Run(root / name)
