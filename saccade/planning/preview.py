"""Preview: what `saccade train` would find in some data and do with it, before anything is trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from saccade import api
from saccade.core import Callback
from saccade.planning.counting import parameters
from saccade.planning.estimate import open_data


@dataclass(frozen=True)
class Preview:
    """A training that has not begun."""

    task: str
    notes: list[str]
    """what `saccade train` prints before training"""
    parameters: int
    presets: list[str]
    """of the task"""


class _Notes(Callback):
    """Keeps the notes, and hands on the progress of each stage."""

    def __init__(self, progress: Callable[[str, float], None]) -> None:
        self.notes: list[str] = []
        self._progress = progress

    def log(self, message: str) -> None:
        self.notes.append(message)

    def on_progress(self, stage: str, fraction: float) -> None:
        self._progress(stage, fraction)


def preview(
    data: Path,
    *,
    task: str = "",
    preset: str = "",
    overrides: Sequence[str] = (),
    root: Path = api.RUNS,
    progress: Callable[[str, float], None] = lambda stage, fraction: None,
) -> Preview:
    """Read the data as `saccade train` does and return what it found; whatever is wrong with them is raised."""
    callback = _Notes(progress)
    job = open_data(data, task, preset, overrides, root, callback)
    total = sum(parameters(network) for network in job.task.networks().values())
    return Preview(job.task_name, callback.notes, total, api.describe_task(job.task_name)["presets"])
