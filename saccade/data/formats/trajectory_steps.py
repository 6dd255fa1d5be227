"""Steps of trajectories as they are collected from a file, checked one by one, and joined to episodes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from saccade.data.episodes import Episodes
from saccade.data.origins import RowOrigins
from saccade.data.tables.problems import BadRows, Problem, Problems

STEP = "correct the row, or leave the episode out"
TERMINATED = {"terminal", "terminals", "terminated", "termination", "terminations"}  # not by a time limit
TRUE, FALSE = ("1", "1.0", "true"), ("0", "0.0", "false")


@dataclass
class Steps:
    """Collects steps; each value that breaks a rule is a problem with its file and line."""

    problems: Problems = field(default_factory=Problems)
    files: list[Path] = field(default_factory=list)
    observations: list[Sequence[float]] = field(default_factory=list)
    actions: list[tuple[Any, ...]] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    episodes: list[str] = field(default_factory=list)
    ends: list[bool] = field(default_factory=list)
    terminated: list[bool] = field(default_factory=list)
    """whether the environment ended the episode; empty: the data do not say"""
    lines: list[tuple[int, int]] = field(default_factory=list)
    """number of the file, and line"""

    def number(self, path: Path, line: int, value: Any, name: str) -> float:
        """Return a finite number; anything else is a problem, and read as 0."""
        try:
            number = float(value) if not isinstance(value, bool) and value is not None else math.nan
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if math.isfinite(number) and abs(number) < 1e30:
            return number
        self.refuse(path, line, f"{name} is {str(value)[:40]!r}", "a finite number")
        return 0.0

    def flag(self, path: Path, line: int, value: Any, name: str) -> bool:
        """Return whether an episode ends here."""
        text = str(value).strip().lower()
        if text not in (*TRUE, *FALSE):
            self.refuse(path, line, f"{name} is {str(value)[:40]!r}", "true or false, 1 or 0")
        return text in TRUE

    def refuse(self, path: Path, line: int, what: str, expected: str, step: str = STEP) -> None:
        """Add a problem."""
        self.problems.add(Problem(path, line, None, what, expected, step))

    def add(self, path: Path, line: int, observation: Sequence[float], action: tuple[Any, ...]) -> None:
        """Add a step; it must be as long as the first one."""
        if self.observations and len(observation) != len(self.observations[0]):
            lengths = (
                f"an observation of {len(observation)} numbers",
                f"{len(self.observations[0])} as in the first step",
            )
            self.refuse(path, line, *lengths)
            return
        if not observation:
            self.refuse(path, line, "an observation without numbers", "at least one number")
            return
        if self.actions and len(action) != len(self.actions[0]):
            lengths = f"an action of {len(action)} values", f"{len(self.actions[0])} as in the first step"
            self.refuse(path, line, *lengths)
            return
        if path not in self.files:
            self.files.append(path)
        self.observations.append(observation)
        self.actions.append(action)
        self.lines.append((self.files.index(path), line))

    def add_end(self, flags: Mapping[str, bool]) -> None:
        """Add whether an episode ends with the step, by flags such as `done`, `terminated` and `truncated`."""
        self.ends.append(any(flags.values()))
        terminated = [flag for name, flag in flags.items() if name in TERMINATED]
        if terminated:
            self.terminated.append(any(terminated))

    def join(self, path: Path) -> Episodes:
        """Return the episodes, or raise all problems."""
        self.problems.check()
        count = len(self.observations)
        if count < 2:
            what = f"{count} step{'' if count == 1 else 's'}"
            raise BadRows([Problem(path, None, None, what, "at least two steps", "name a file with recorded episodes")])
        new = np.zeros(count, dtype=bool)
        new[0] = True
        if self.episodes:
            new[1:] = np.array(self.episodes[1:]) != np.array(self.episodes[:-1])
            self._check_order(new)
        if self.ends:
            new[1:] |= np.array(self.ends[:-1])
        numbers, lines = (np.array(side) for side in zip(*self.lines, strict=True))
        return Episodes(
            np.array(self.observations, dtype=np.float32),
            self._joined_actions(),
            np.flatnonzero(new),
            np.array(self.rewards) if self.rewards else None,
            RowOrigins(tuple(self.files), numbers.astype(np.int32), lines.astype(np.int64)),
            marked=bool(self.episodes or self.ends),
            terminated=np.array(self.terminated) if self.terminated else None,
        )

    def _joined_actions(self) -> Any:
        """Return numbers (N, A), or labels (N,) where an action is not a number."""
        try:
            numbers = np.array(self.actions, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            numbers = np.full((1, 1), math.nan)
        if np.isfinite(numbers).all():
            return numbers
        texts = np.array([[str(value) for value in action] for action in self.actions])
        bad = np.array([[_is_bad(value) for value in row] for row in texts])
        several = texts.shape[1] > 1
        wrong = np.flatnonzero((bad | (~_numeric(texts) if several else False)).any(1))
        if len(wrong):
            row = int(wrong[0])
            file, line = self.lines[row]
            what = f"action ({', '.join(texts[row])})" if several else f"action {texts[row][0]!r}"
            expected = "finite numbers" if several else "a finite number or a label"
            raise BadRows([Problem(self.files[file], line, None, what, expected, STEP)])
        return texts[:, 0]

    def _check_order(self, new: Any) -> None:
        """Refuse an episode whose steps are not together: the order of its steps would be unknown."""
        seen: set[str] = set()
        for row in np.flatnonzero(new):
            name = self.episodes[row]
            if name in seen:
                file, line = self.lines[row]
                what = f"episode '{name[:40]}' continues after another one"
                step = "sort the rows by episode and step"
                raise BadRows([Problem(self.files[file], line, None, what, "all its steps together", step)])
            seen.add(name)


def _is_bad(text: str) -> bool:
    return not text.strip() or text.strip().lower() in ("nan", "inf", "-inf", "none", "null")


def _numeric(texts: Any) -> Any:
    def is_number(text: str) -> bool:
        try:
            return math.isfinite(float(text))
        except ValueError:
            return False

    return np.array([[is_number(value) for value in row] for row in texts])
