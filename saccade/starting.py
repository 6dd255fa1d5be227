"""Starting a run: its folder, which is new unless torchrun restarts, and how its processes share a step."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from saccade.config import override
from saccade.errors import ModelFileError, UsageError
from saccade.runs import folder as runs
from saccade.training.distributed import job_id, launch


def open_or_create(
    root: Path, name: str, task: str, described: Mapping[str, Any], data: Path, *, restarted: bool
) -> tuple[runs.Run, bool]:
    """Return a new run, or the one that this job has created before; and whether it is new.

    A job is what torchrun has `restarted`, or what was started anew under the id that its user has given to it, as by
    the scheduler of a cluster: then the run must be unfinished.
    """
    started_by = launch()
    settings = {**described, **({"launch": started_by} if started_by else {})}
    if restarted or job_id():
        run = _created_before(root, name, {**settings, "task": task, "data": str(data.resolve())})
        if run is not None and (restarted or not run.finished()):
            return run, False
    return _create(root, name, task, settings, data), True


def divided(config: Any, given: Sequence[str], processes: int) -> Any:
    """Return the config of a run; several processes share a step as micro-batches, unless their number is given."""
    divisible = hasattr(config, "micro_batches") and not any(entry.startswith("micro_batches=") for entry in given)
    if processes == 1 or not divisible or config.micro_batches > 1:
        return config
    try:
        return override(config, [f"micro_batches={processes}"])
    except UsageError as error:
        raise UsageError(
            f"{processes} processes share a step as micro_batches={processes}, but {error}; choose another number of "
            "processes, or give micro_batches=1: then each of them computes the whole batch, which is exact, but no "
            "faster"
        ) from error


def _created_before(root: Path, name: str, expected: Mapping[str, Any]) -> runs.Run | None:
    """Return the newest run of that name, or of any, with these settings, of which the launch is one."""
    for run in reversed(runs.list_runs(root)):
        if name and run.name != name:
            continue
        with contextlib.suppress(ModelFileError):
            values = run.describe()
            if all(values.get(key) == value for key, value in expected.items()):
                return run
    return None


def _create(root: Path, name: str, task: str, described: dict[str, Any], data: Path) -> runs.Run:
    """Create a run with the given name, or the next free one after the data file."""
    while not name:
        with contextlib.suppress(UsageError):  # another process took the name a moment ago
            return runs.create(root, runs.free_name(root, data.name.split(".")[0]), task, described, data)
    return runs.create(root, name, task, described, data)
