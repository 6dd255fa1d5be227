"""Callbacks: receive the events of training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Log = Callable[[str], None]
"""called with a message for the user"""
Progress = Callable[[float], None]
"""called with the completed fraction of a long job, 0 to 1"""


def ignore_progress(fraction: float) -> None:
    """Do nothing."""


class StopTraining(Exception):
    """Raised by a callback to end training after this step, as at the end of the budget."""


class Callback:
    """Base class of callbacks: every method does nothing; override those you need."""

    def log(self, message: str) -> None:
        """Called with a message for the user."""

    def on_progress(self, stage: str, fraction: float) -> None:
        """Called while data are prepared or a model is evaluated; `fraction` is 0 to 1."""

    def on_step(self, record: dict[str, Any], progress: float, total: int | None) -> None:
        """Called after each training step; `total` is the planned number of steps, None while it is unknown."""

    def on_evaluation(self, record: dict[str, Any], sample: str) -> None:
        """Called after each evaluation on the validation data."""


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
