"""Summaries: what a list shows of a run, and its metrics as people write them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from saccade.core import Task, describe_metric
from saccade.errors import ModelFileError, printable
from saccade.runs import folder as runs
from saccade.runs.journal import JournalSummary, summarize_journal
from saccade.runs.notes import read_notes
from saccade.tasks import load_task, task_names


def summarize_run(run: runs.Run, summarize: Callable[[Path], JournalSummary] = summarize_journal) -> dict[str, Any]:
    """Return what a list shows of a run; of a damaged one its name and the reason, so that the others are listed.

    Who lists runs again and again gives a `JournalReader`, which reads only what was appended to their journals.
    """
    name = printable(run.name)
    if name != run.name:
        return {"name": name, "error": f"the name of a run must be printable UTF-8, but is '{name}'; rename its folder"}
    try:
        described, journal, running = run.describe(), summarize(run.folder / "metrics.jsonl"), run.running()
        notes = read_notes(run.folder)
    except ModelFileError as error:
        return {"name": name, "error": printable(str(error))}
    return {
        "name": name,
        "task": printable(described["task"]),
        "created": printable(described["created"]),
        "step": journal.step,
        "best": journal.best,
        "metric": best_metric(described["task"], journal.metrics),
        "seconds": journal.seconds,
        "notes": notes,
        "running": running,
        "finished": run.finished(),
    }


def describe_metrics(task: str, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return label, unit and direction of metrics of a task by their names in files."""
    task_class = _built_in(task)
    loss_unit = task_class.loss_unit if task_class else ""
    return {name: vars(describe_metric(name, loss_unit)) for name in names}


def best_metric(task: str, candidates: Sequence[str]) -> dict[str, Any] | None:
    """Return the metric that chooses the best checkpoint of a run, of those that its journal allows."""
    declared = getattr(_built_in(task), "metric", None)
    names = [name for name in candidates if declared and name == declared.name] or candidates[:1]
    return next(iter(describe_metrics(task, names).values()), None)


@cache
def _built_in(task: str) -> type[Task] | None:
    """Return the class of a built-in task; None for others, whose code runs only if the user names it."""
    return load_task(task) if task in task_names() else None
