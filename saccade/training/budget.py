"""Budget: how many steps a run has and when it is evaluated. The clock decides once, and the decision is on disk."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saccade.atomic_io import read_sealed, write_sealed
from saccade.core import Source
from saccade.errors import ModelFileError
from saccade.training.optim import OptimConfig
from saccade.training.settings import TrainConfig

EVALUATIONS = 10  # of a run
EVALUATION_FRACTION = 0.2  # of a time budget at most is spent on evaluations
FIRST_STEPS = 20  # the fastest of them shows what a step takes when nothing else runs
FEW_STEPS = 50  # a run of fewer is warned about


@dataclass
class Budget:
    """Total steps of a run; None as long as a time budget has not been converted to steps.

    Neither the learning rate nor the evaluations may depend on the clock, or a resumed run would differ from an
    unbroken one. So every decision that the clock makes is written to a file before it takes effect, and holds for
    every process that resumes the run: the total, decided as late as the schedule allows (when wsd starts to decay,
    else early), and until then the steps that are evaluated.
    """

    file: Path
    total: int | None
    seconds: float = 0.0
    decide_after: float = 0.0
    """fraction of the seconds after which the total is decided"""
    decided_at: int = 0
    """step after which the total was decided"""
    evaluate_every: int = 1
    """steps between evaluations once the total is decided"""
    evaluations: list[int] = field(default_factory=list)
    """steps before that decision that are evaluated"""
    evaluation_seconds: float = 0.0
    """what the last evaluation took"""
    evaluated_at: float = 0.0
    """seconds of training before the last evaluation"""
    fastest_step: float = math.inf
    """seconds of the fastest of the first steps"""

    @classmethod
    def of(
        cls, file: Path, steps: int, seconds: float, optim: Iterable[OptimConfig], *, elapsed: float = 0.0
    ) -> Budget:
        """Return a budget of steps, or of seconds if steps is 0; decisions on disk hold."""
        if steps:
            return cls(file, steps, evaluate_every=_tenth(steps))
        after = min(1 - config.cooldown if config.schedule == "wsd" else 0.05 for config in optim)
        budget = cls(file, None, seconds, after, evaluated_at=elapsed)
        if file.exists():
            budget._read()
        return budget

    @classmethod
    def of_run(
        cls, file: Path, config: TrainConfig, source: Source, optim: Iterable[OptimConfig], elapsed: float
    ) -> Budget:
        """Return the budget of a run, of steps or of time: five minutes by default."""
        steps = config.steps or (max(1, round(config.epochs * source.per_epoch)) if config.epochs else 0)
        return cls.of(file, steps, 60 * (config.minutes or 5.0), optim, elapsed=elapsed)

    def decisions(self) -> dict[str, Any]:
        """Return what the clock has decided so far, as JSON."""
        return {name: getattr(self, name) for name in ("total", "decided_at", "evaluate_every", "evaluations")}

    def adopt(self, decisions: Mapping[str, Any]) -> None:
        """Take over what the clock of another process has decided, which has written it."""
        for name, value in decisions.items():
            setattr(self, name, value)

    def check_saved(self, saved: Mapping[str, Any]) -> None:
        """Refuse decisions that are not those at the time of a checkpoint, or ones that followed them."""
        now, before = self.decisions(), saved.get("evaluations")
        same = isinstance(before, list) and now["evaluations"][: len(before)] == before
        if saved.get("total") is not None:
            same = same and all(now[name] == saved.get(name) for name in ("total", "decided_at", "evaluate_every"))
        if not same or saved.keys() != now.keys():
            raise ModelFileError(
                f"{self.file} must hold the decisions that the run was trained with, but does not: a total of "
                f"{now['total']}, expected {saved.get('total')}; restore it from a copy, or train a new run"
            )

    def decide(self, done: int, elapsed: float) -> bool:
        """Fix the total if it is time to; `done` steps took `elapsed` seconds. Returns whether it was fixed now."""
        if self.total is not None or elapsed < self.decide_after * self.seconds or done < 3:
            return False
        remaining, speed = max(0.0, self.seconds - elapsed), done / elapsed
        self.total, self.decided_at = done + max(1, round(remaining * speed)), done
        self.evaluate_every = max(_tenth(self.total), round(self._evaluation_interval() * speed))
        self._write()
        return True

    def evaluate_after(self, step: int, elapsed: float) -> bool:
        """Whether the model is evaluated after this step."""
        if self.total is not None and step > self.decided_at:
            return step % self.evaluate_every == 0
        interval = self._evaluation_interval()
        if step not in self.evaluations:
            replayed = self.total is not None or (bool(self.evaluations) and step < self.evaluations[-1])
            if replayed or elapsed // interval <= self.evaluated_at // interval:
                return False
            self.evaluations.append(step)
            self._write()
        self.evaluated_at = elapsed
        return True

    def total_at(self, step: int) -> int | None:
        """Return the total as it was when this step was first computed: what its learning rate depends on."""
        return self.total if step >= self.decided_at else None

    def progress(self, done: int, elapsed: float) -> float:
        """Return the fraction of the run that is over, 0 to 1."""
        if self.total is not None:
            return min(1.0, done / self.total)
        return min(1.0, elapsed / self.seconds)

    def time_step(self, step: int, seconds: float) -> None:
        """Take note of how long a step took."""
        if step <= FIRST_STEPS:
            self.fastest_step = min(self.fastest_step, seconds)

    def shortage(self, elapsed: float) -> str:
        """Return a warning if the time is enough for few steps only, or far fewer than the first steps promised."""
        expected = round(self.seconds / self.fastest_step) if self.fastest_step else 0
        if self.total is None or (self.total >= FEW_STEPS and self.total >= expected / 2):
            return ""
        minutes, done = f"train.minutes={self.seconds / 60:g}", f"{self.decided_at:,} took {elapsed:.1f} s"
        return (
            f"{minutes} allows only {self.total:,} steps: {done}, while the speed of the first ones promised "
            f"{expected:,} in all. If other programs use this machine, set OMP_NUM_THREADS=1; to train a fixed number "
            "of steps, however long they take, give --steps"
        )

    def _evaluation_interval(self) -> float:
        """Seconds between two evaluations."""
        return max(self.seconds / EVALUATIONS, self.evaluation_seconds / EVALUATION_FRACTION)

    def _read(self) -> None:
        decision = read_sealed(self.file)
        total, at, every = (decision.get(name) for name in ("total", "decided_at", "evaluate_every"))
        steps = decision.get("evaluations")
        numbers = (total or 0, at, every, *(steps if isinstance(steps, list) else [None]))
        if not all(isinstance(number, int) for number in numbers):
            raise ModelFileError(
                f"{self.file} must hold whole numbers `total`, `decided_at` and `evaluate_every` and a list of steps "
                "`evaluations`, but does not"
            )
        self.total, self.evaluations = total, list(steps or [])
        self.decided_at, self.evaluate_every = int(at or 0), int(every or 1)

    def _write(self) -> None:
        write_sealed(self.file, {**self.decisions(), "seconds": self.seconds})


def _tenth(steps: int) -> int:
    return max(1, -(-steps // EVALUATIONS))
