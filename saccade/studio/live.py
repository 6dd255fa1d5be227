"""The current state of runs: their curves and attention snapshots; stopping and resuming them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from saccade import api
from saccade.core import Field
from saccade.errors import UsageError
from saccade.runs import folder as runs
from saccade.runs.journal import read_journal
from saccade.runs.snapshots import FOLDER, read_snapshot

POINTS = 600  # of a curve
NOT_PLOTTED = {"step", "elapsed", "best", "pairs", "rows", "tokens", "questions", "sentences", "masked_tokens"}
NOT_PLOTTED |= {"images", "episodes", "documents"}  # counts, not scores


def list_runs(root: Path) -> list[dict[str, Any]]:
    """Return all runs, the newest first."""
    return list(reversed(api.list_runs(root)))


def curves(root: Path, name: str) -> dict[str, Any]:
    """Return the records of a run: losses of its steps, thinned out, and all its evaluations."""
    run = get_run(root, name)
    records = read_journal(run.folder / "metrics.jsonl")
    steps = [record for record in records if "lr_scale" in record]
    thinned = steps[:: max(1, len(steps) // POINTS)]
    if steps and thinned[-1] is not steps[-1]:
        thinned.append(steps[-1])
    described = run.describe()
    evaluations = [record for record in records if "best" in record]
    return {
        "name": name,
        "task": described["task"],
        "data": Path(described["data"]).name,
        "running": run.running(),
        "finished": run.finished(),
        "unit": steps[-1]["unit"] if steps else "",
        "steps": thinned,
        "throughput": _throughput(steps),
        "losses": sorted({key for record in steps for key in record if key.startswith("loss")}),
        "metrics": list(dict.fromkeys(key for record in evaluations for key in record if key not in NOT_PLOTTED)),
        "evaluations": evaluations,
        "samples": read_journal(run.folder / "samples.jsonl")[-20:],
        "snapshots": snapshots(root, name),
    }


def _throughput(steps: list[dict[str, Any]]) -> list[list[float]]:
    """Return units per second between points of the curve."""
    points = []
    size = max(1, len(steps) // POINTS)
    for first in range(0, len(steps) - size, size):
        part = steps[first : first + size + 1]
        seconds = part[-1]["seconds"] - part[0]["seconds"]
        if seconds > 0:
            points.append([part[-1]["step"], sum(record[record["unit"]] for record in part[1:]) / seconds])
    return points


def snapshots(root: Path, name: str) -> list[int]:
    """Return the steps whose attention was kept."""
    folder = get_run(root, name).folder / FOLDER
    matches = (re.fullmatch(r"step-(\d{8})\.json", path.name) for path in folder.glob("step-*.json"))
    return sorted(int(match[1]) for match in matches if match)


def snapshot(root: Path, name: str, step: int) -> dict[str, Any]:
    """Return the attention of a step."""
    if step not in snapshots(root, name):
        raise UsageError(f"run '{name}' has no attention snapshot of step {step}")
    return read_snapshot(get_run(root, name).folder, step)


def examples(root: Path, name: str, inputs: Sequence[Field]) -> list[dict[str, Any]]:
    """Return inputs to start with: validation examples of a run; two well-known sentences for a pretrained model."""
    if name in {run.name for run in runs.list_runs(root)}:
        steps = snapshots(root, name)
        return [example["inputs"] for example in snapshot(root, name, steps[-1])["examples"]] if steps else []
    if inputs[0].kind != "text" or not all(field.optional for field in inputs[1:]):
        return []
    sentence = "The animal didn't cross the street because it was too {}."
    return [{inputs[0].name: sentence.format(why)} for why in ("tired", "wide")]


def stop(root: Path, name: str) -> None:
    """Ask the process that trains a run to save and end."""
    run = get_run(root, name)
    owner = (run.folder / "run.lock").read_text().strip() if run.running() else ""
    if not owner.isdecimal():
        raise UsageError(f"run '{name}' is not being trained")
    with contextlib.suppress(ProcessLookupError):  # it ended a moment ago
        os.kill(int(owner), signal.SIGTERM)


def resume(root: Path, name: str) -> None:
    """Resume a run in its own process, which outlives the studio."""
    run = get_run(root, name)
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


def get_run(root: Path, name: str) -> runs.Run:
    """Return a run of the folder by its name; a name from a page is never a path."""
    if name not in {run.name for run in runs.list_runs(root)}:
        raise UsageError(f"no run '{name}'")
    return runs.Run(root / name)
