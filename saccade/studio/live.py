"""The current state of runs: their curves and attention snapshots; stopping and resuming them."""

from __future__ import annotations

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
from saccade.errors import ModelFileError, ResourceError, UsageError
from saccade.runs import folder as runs
from saccade.runs.journal import JournalSummary
from saccade.runs.journal_reader import JournalReader, Record
from saccade.runs.notes import read_notes
from saccade.runs.snapshots import read_snapshot, snapshot_steps

POINTS = 600  # of a curve
NOT_PLOTTED = {"step", "elapsed", "best", "pairs", "rows", "tokens", "questions", "sentences", "masked_tokens"}
NOT_PLOTTED |= {"images", "episodes", "documents", "nodes", "test_nodes", "graphs", "recordings"}  # counts, not scores
NOT_PLOTTED |= {"frames", "held_out_steps"}


def replays(described: dict[str, Any]) -> bool:
    """Whether the model of a run can play episodes in an environment."""
    return api.has_environment(described["task"], described["config"])


class LiveRuns:
    """The runs of a folder for pages that ask every few seconds: of the journals only what was appended is read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._summaries = JournalReader[JournalSummary](JournalSummary, JournalSummary.add, files=10_000)
        self._journals = JournalReader[list[Record]](list, _append, files=8)

    def summaries(self) -> list[dict[str, Any]]:
        """Return all runs, the newest first."""
        return [api.summarize_run(run, self._summaries) for run in reversed(runs.list_runs(self.root))]

    def curves(self, name: str) -> dict[str, Any]:
        """Return the records of a run: losses of its steps, thinned out, and all its evaluations."""
        run = get_run(self.root, name)
        path = run.folder / "metrics.jsonl"
        records = self._journals(path)
        steps = _steps(path, records)
        thinned = steps[:: max(1, len(steps) // POINTS)]
        if steps and thinned[-1] is not steps[-1]:
            thinned.append(steps[-1])
        described = run.describe()
        evaluations = [record for record in records if "best" in record]
        losses = sorted({key for record in steps for key in record if key.startswith("loss")})
        metrics = list(dict.fromkeys(key for record in evaluations for key in record if key not in NOT_PLOTTED))
        return {
            "name": name,
            "task": described["task"],
            "data": Path(described["data"]).name,
            "running": run.running(),
            "finished": run.finished(),
            "unit": steps[-1]["unit"] if steps else "",
            "steps": thinned,
            "throughput": _throughput(steps),
            "losses": losses,
            "metrics": metrics,
            "names": api.describe_metrics(described["task"], [*losses, *metrics]),
            "notes": read_notes(run.folder),
            "evaluations": evaluations,
            "samples": self._journals(run.folder / "samples.jsonl")[-20:],
            "snapshots": snapshot_steps(run.folder),
            "replays": replays(described),
        }


def _append(records: list[Record], record: Record) -> list[Record]:
    records.append(record)
    return records


def _steps(path: Path, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records of training steps, each with the time and the count that the throughput needs."""
    steps = [record for record in records if "lr_scale" in record]
    for record in steps:
        unit = record.get("unit")
        numbers = (record.get("seconds"), record.get(unit) if isinstance(unit, str) else None)
        if not all(isinstance(number, int | float) for number in numbers):
            raise ModelFileError(
                f"{path}: the record of step {record['step']} must have seconds, a unit and its count; "
                "restore the file from a copy"
            )
    return steps


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


def snapshot(root: Path, name: str, step: int) -> dict[str, Any]:
    """Return the attention of a step."""
    run = get_run(root, name)
    if step not in snapshot_steps(run.folder):
        raise UsageError(f"run '{name}' has no attention snapshot of step {step}")
    return read_snapshot(run.folder, step)


def examples(root: Path, name: str, inputs: Sequence[Field]) -> list[dict[str, Any]]:
    """Return inputs to start with: validation examples of a run; two well-known sentences for a pretrained model."""
    if name in {run.name for run in runs.list_runs(root)}:
        steps = snapshot_steps(root / name)
        return [example["inputs"] for example in snapshot(root, name, steps[-1])["examples"]] if steps else []
    if inputs[0].kind != "text" or not all(field.optional for field in inputs[1:]):
        return []
    sentence = "The animal didn't cross the street because it was too {}."
    return [{inputs[0].name: sentence.format(why)} for why in ("tired", "wide")]


def stop(root: Path, name: str) -> None:
    """Ask the process that trains a run to save and end."""
    run = get_run(root, name)
    owner = (run.folder / "run.lock").read_bytes()[:20].strip() if run.running() else b""
    if not re.fullmatch(rb"[1-9][0-9]{0,8}", owner):
        raise UsageError(f"run '{name}' is not being trained")
    try:
        os.kill(int(owner), signal.SIGTERM)
    except ProcessLookupError:
        return  # it ended a moment ago
    except PermissionError as error:
        raise UsageError(f"run '{name}' is trained by process {int(owner)} of another user; stop it there") from error


def resume(root: Path, name: str) -> None:
    """Resume a run in its own process, which outlives the studio."""
    run = get_run(root, name)
    if run.running():
        raise UsageError(f"run '{name}' is being trained already")
    path = run.folder / "studio.log"
    try:
        with path.open("ab") as log:
            subprocess.Popen(
                [sys.executable, "-m", "saccade", "resume", str(run.folder.resolve())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
    except OSError as error:
        raise ResourceError(f"cannot resume run '{name}', whose log is {path}: {error.strerror}") from error


def get_run(root: Path, name: str) -> runs.Run:
    """Return a run of the folder by its name; a name from a page is never a path."""
    if name not in {run.name for run in runs.list_runs(root)}:
        raise UsageError(f"no run '{name}'")
    return runs.Run(root / name)
