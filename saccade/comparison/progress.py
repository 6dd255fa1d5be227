"""Progress of a whole comparison: which model of how many, and how much of everything is over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from saccade.training.loop import Callback


class Overall:
    """A report of one part after the other, told as the progress of all of them."""

    def __init__(self, report: Callback, weights: Sequence[float]) -> None:
        self._report, self._weights = report, weights
        self._now, self._label = 0, ""

    @contextmanager
    def part(self, number: int, label: str) -> Iterator[None]:
        """What is told meanwhile is about this part."""
        self._now, self._label = number, f"{number + 1} of {len(self._weights)}, {label}"
        yield

    def say(self, message: str) -> None:
        self._report.say(f"{self._label}: {message}")

    def advance(self, what: str, share: float) -> None:
        self._report.advance(f"{self._label}: {what}", share)

    def step(self, record: dict[str, Any], progress: float, total: int | None) -> None:
        done = sum(self._weights[: self._now]) + progress * self._weights[self._now]
        self._report.step({**record, "doing": self._label}, done / sum(self._weights), total)

    def evaluated(self, record: dict[str, Any], sample: str) -> None:
        self._report.evaluated(record, sample)
