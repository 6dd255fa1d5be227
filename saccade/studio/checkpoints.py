"""The checkpoints of a run by the names that a page has for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from saccade.errors import UsageError
from saccade.runs import checkpoint
from saccade.runs import folder as runs
from saccade.runs.selection import Which, check_step

BEST = "best"


def list_checkpoints(root: Path, name: str) -> dict[str, Any]:
    """Return the steps of a run that have a checkpoint, oldest first; `run` is whether it is a run at all."""
    run = _find(root, name)
    return {"run": run is not None, "steps": [] if run is None else checkpoint.steps(run.checkpoints)}


def parse_checkpoint(root: Path, name: str, text: str) -> Which:
    """Return which checkpoint of a model is meant: a name or a step; empty is the best one."""
    if text in ("", BEST):
        return "best"
    run = _find(root, name)
    if run is None:
        raise UsageError(f"checkpoint must be left out, since '{name}' is no run, but is '{text[:40]}'")
    if text == "last":
        return "last"
    if text == "mean":
        return "mean"
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise UsageError(f"checkpoint must be best, last, mean or the step of one, but is '{text[:40]}'")
    check_step(run.checkpoints, int(text))
    return int(text)


def _find(root: Path, name: str) -> runs.Run | None:
    """Return the run of a name; None: it is another model."""
    return next((run for run in runs.list_runs(root) if run.name == name), None)
