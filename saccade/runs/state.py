"""State: what a checkpoint holds besides tensors, read back from a file that may be damaged or hostile."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from saccade.atomic_io import read_json
from saccade.config import from_json, to_json
from saccade.errors import ModelFileError, UsageError
from saccade.runs.journal import Written

FILE = "state.json"


@dataclass(frozen=True)
class State:
    """Where a run stands, and hashes of the files that must be the same when it continues."""

    elapsed: float = 0.0
    """seconds of training"""
    best: dict[str, Any] = field(default_factory=dict)
    """step, score and values of the best evaluation; empty before the first"""
    unimproved: int = 0
    """evaluations since the last improvement"""
    stopped: bool = False
    """whether a callback has ended the run"""
    environment: dict[str, Any] = field(default_factory=dict)
    """what the last digits of every number depend on"""
    kept: list[int] = field(default_factory=list)
    """steps of all checkpoints that the run has after this one was saved"""
    scheduled: list[int] = field(default_factory=list)
    """those of them that are due by the settings, not because of a signal or the clock"""
    optimizer_tensors: int = 0
    """number of tensors in the states of the optimizers"""
    budget: dict[str, Any] = field(default_factory=dict)
    """decisions of the clock so far"""
    data: str = ""
    """hash of data.json"""
    journals: dict[str, Written] = field(default_factory=dict)
    """by file, how much was written so far"""

    def to_json(self) -> dict[str, Any]:
        return to_json(self)

    @property
    def best_step(self) -> int | None:
        """Step of the best evaluation; None before the first."""
        return self.best.get("step")


def read_state(folder: Path, step: int) -> State:
    """Return the state of the checkpoint of a step; raises ModelFileError with the value that cannot be."""
    path = folder / FILE
    values = read_json(path)
    missing = [entry.name for entry in fields(State) if entry.name not in values]
    if missing:
        raise ModelFileError(f"{path} must hold {', '.join(missing)}, but does not")
    try:
        state = from_json(State, values)
    except (UsageError, OverflowError) as error:
        raise ModelFileError(f"{path}: {error}") from error
    if state.elapsed < 0 or state.unimproved < 0 or any(part.bytes < 0 for part in state.journals.values()):
        raise ModelFileError(f"{path}: elapsed, unimproved and the bytes of journals must be 0 or more, but are not")
    if not all(0 <= number <= step for number in (*state.kept, *state.scheduled)):
        raise ModelFileError(f"{path}: kept and scheduled must be steps up to {step}, but are not")
    _check_best(path, state.best, step)
    return state


def _check_best(path: Path, best: Mapping[str, Any], step: int) -> None:
    """Refuse a best evaluation that cannot be."""
    if not best:
        return
    at, score = best.get("step"), best.get("score")
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in best.values())
    if not numbers or type(at) is not int or not 0 < at <= step or score is None or not abs(score) < math.inf:
        raise ModelFileError(
            f"{path}: best must hold numbers, a step from 1 to {step} and a finite score, but is {str(best)[:80]}"
        )
