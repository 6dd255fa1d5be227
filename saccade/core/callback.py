"""Callbacks: who is told how training goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Progress = Callable[[float], None]
"""called with the fraction of a long job that is done, 0 to 1"""


def ignore_progress(fraction: float) -> None:
    """Tell nobody."""


class StopTraining(Exception):
    """Raised by a callback to end training after this step as if the budget were used up."""


class Callback:
    """Override the events you need; every method of this class does nothing."""

    def log(self, message: str) -> None:
        """A line for people."""

    def on_progress(self, stage: str, fraction: float) -> None:
        """How much of preparing or evaluating is done, 0 to 1."""

    def on_step(self, record: dict[str, Any], progress: float, total: int | None) -> None:
        """A training step is over; `total` steps are planned, None while a time budget is not yet decided."""

    def on_evaluation(self, record: dict[str, Any], sample: str) -> None:
        """The model was evaluated on the validation data."""


class Callbacks(Callback):
    """Several callbacks as one."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self.callbacks = tuple(callbacks)

    def log(self, message: str) -> None:
        for callback in self.callbacks:
            callback.log(message)

    def on_progress(self, stage: str, fraction: float) -> None:
        for callback in self.callbacks:
            callback.on_progress(stage, fraction)

    def on_step(self, record: dict[str, Any], progress: float, total: int | None) -> None:
        for callback in self.callbacks:
            callback.on_step(record, progress, total)

    def on_evaluation(self, record: dict[str, Any], sample: str) -> None:
        for callback in self.callbacks:
            callback.on_evaluation(record, sample)
