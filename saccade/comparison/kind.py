"""Kind of comparison: what is trained, measured and reported for one task; the job itself is the same for all."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

import torch

from saccade.comparison import OPTIONS
from saccade.comparison.process import Job
from saccade.comparison.trial import Trial
from saccade.core import Progress, Task
from saccade.errors import UsageError
from saccade.run import Run
from saccade.tasks import load_task

OnProgress = Callable[[str, float], None]
"""called with the name of a stage and its completed fraction, 0 to 1"""


class ComparisonKind(abc.ABC):
    """A comparison of the architectures of one task."""

    task: ClassVar[str]
    models: ClassVar[tuple[str, ...]]
    """values of `model.architecture`"""
    options: ClassVar[tuple[str, ...]]
    """those of `OPTIONS` that it has; an unfinished comparison continues only if they are the same"""
    own_assets: ClassVar[tuple[str, ...]] = ()
    """assets of a run that differ between the models"""

    # Before training

    def check(self, trial: Trial, overrides: Sequence[str]) -> None:
        """Refuse models, options and overrides of other comparisons."""
        for model in trial.models or ():
            if model not in self.models:
                step = "choose among them, or name the task of the data with --task"
                raise UsageError(f"models must be of {', '.join(self.models)} for {self.task}, but is {model}; {step}")
        for field in fields(trial):
            value = getattr(trial, field.name)
            if field.name in OPTIONS and field.name not in self.options and value != field.default:
                raise UsageError(f"{field.name} must not be set for {self.task}, but is {value!r}; leave it out")
        if any(override.startswith("model.architecture=") for override in overrides):
            raise UsageError(
                "model.architecture must not be set, since every model has its own; name them with --models"
            )

    def open(self, configs: Sequence[Any], data: Path, assets: Path, progress: Progress) -> tuple[Task, list[str]]:
        """Prepare the data, and build each model to check its settings; returns the task of the first, and notes."""
        task_class = load_task(self.task)
        notes = task_class.prepare(configs[0], data, assets, progress=progress)
        with torch.device("meta"):  # only shapes: each model is allocated in its own process
            task, *_ = [task_class.open(config, assets) for config in configs]
        return task, notes

    @abc.abstractmethod
    def describe(self, task: Any, trial: Trial) -> dict[str, Any]:
        """Return what this kind adds to the description of a comparison: its options and parts of the data, as JSON."""

    # Training and measuring

    @abc.abstractmethod
    def jobs(self, settings: Mapping[str, Any]) -> list[Job]:
        """Return the jobs in order, with estimates of their time: stage `train` for each model, and others."""

    def training(self, job: Job, settings: Mapping[str, Any]) -> tuple[str, list[str]] | None:
        """Return the task and the overrides that a job trains with; None: it trains nothing."""
        return self.task, [*settings["overrides"], f"model.architecture={job.model}"]

    @abc.abstractmethod
    def measure(
        self, job: Job, run: Run | None, settings: Mapping[str, Any], on_progress: OnProgress
    ) -> dict[str, Any]:
        """Return the results of a job as JSON; `run` is what it has trained."""

    def shared_assets(self, assets: Mapping[str, str]) -> dict[str, str]:
        """Return the assets that all models have in common."""
        return {name: value for name, value in assets.items() if name not in self.own_assets}

    # Reporting

    @abc.abstractmethod
    def summary(self, result: dict[str, Any]) -> list[str]:
        """Return sentences, the most important first."""

    @abc.abstractmethod
    def page(self, result: dict[str, Any]) -> str:
        """Return the report as one HTML file."""

    @abc.abstractmethod
    def text_table(self, result: dict[str, Any]) -> list[str]:
        """Return the table of the models as lines of text."""


def minutes_per_model(settings: Mapping[str, Any]) -> float:
    """Return the training time of a model in minutes; an estimate of 1 where steps or epochs are given."""
    return float(settings["settings"]["minutes"]) or 1.0
