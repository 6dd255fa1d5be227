"""Progress of a comparison: the current job of all jobs, and the completed fraction of all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from saccade.core import Callback


class OverallProgress(Callback):
    """Forwards the events of one job after the other as the progress of all of them."""

    def __init__(self, callback: Callback, weights: Sequence[float]) -> None:
        self._callback, self._weights = callback, weights
        self._current, self._label = 0, ""

    @contextmanager
    def job(self, number: int, label: str) -> Iterator[None]:
        """Label the events of the block with the name of a job."""
        self._current, self._label = number, f"{number + 1} of {len(self._weights)}, {label}"
        yield

    def log(self, message: str) -> None:
        self._callback.log(f"{self._label}: {message}")

    def on_progress(self, stage: str, fraction: float) -> None:
        self._callback.on_progress(f"{self._label}: {stage}", fraction)

    def on_step(self, record: dict[str, Any], progress: float, total: int | None) -> None:
        done = sum(self._weights[: self._current]) + progress * self._weights[self._current]
        self._callback.on_step({**record, "part": self._label}, done / sum(self._weights), total)

    def on_evaluation(self, record: dict[str, Any], sample: str) -> None:
        self._callback.on_evaluation(record, sample)
