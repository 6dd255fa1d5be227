"""Episodes: recorded steps of an expert, with observations, actions and, if they were recorded, rewards.

N steps, E episodes, D numbers of an observation, A numbers of an action.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.data.environments import ActionSpace
from saccade.data.origins import RowOrigins
from saccade.errors import DataError

FEW_EPISODES = 5  # with fewer, the last steps of each are held out, not whole episodes
SHOWN = 8  # labels in a message


@dataclass(frozen=True, eq=False)
class Episodes:
    """Steps one after another, and where each episode starts."""

    observations: NDArray[np.float32]
    """(N, D)"""
    actions: NDArray[Any]
    """as they are in the file: labels (N,) as text, or numbers (N, A)"""
    starts: NDArray[np.int64]
    """first step of each episode (E,)"""
    rewards: NDArray[np.float64] | None
    """(N,); None: not recorded"""
    origins: RowOrigins
    marked: bool = True
    """whether the data say where episodes end"""
    terminated: NDArray[np.bool_] | None = None
    """whether the environment ended the episode with the step, not a time limit (N,); None: the data do not say"""

    def __len__(self) -> int:
        return len(self.observations)

    @property
    def count(self) -> int:
        """Number of episodes."""
        return len(self.starts)

    @property
    def ends(self) -> NDArray[np.int64]:
        """The step after the last one of each episode (E,)."""
        return np.append(self.starts[1:], len(self))

    def returns(self) -> NDArray[np.float64] | None:
        """Return the sum of rewards of each episode (E,); None where rewards or ends are unknown."""
        if self.rewards is None or not self.marked:
            return None
        return np.add.reduceat(self.rewards, self.starts)

    def windows(self, size: int) -> NDArray[np.int64]:
        """Return the first step (N,) of the window that ends with each step: at most `size`, of its episode."""
        starts = np.repeat(self.starts, self.ends - self.starts)
        return np.maximum(starts, np.arange(len(self)) - size + 1)

    def take(self, steps: NDArray[np.int64]) -> Episodes:
        """Return some of the steps, in their order; those that do not follow each other start episodes."""
        episode = np.repeat(np.arange(self.count), self.ends - self.starts)[steps]
        new = np.ones(len(steps), dtype=bool)
        new[1:] = (np.diff(steps) != 1) | (np.diff(episode) != 0)
        rewards = None if self.rewards is None else self.rewards[steps]
        origins, starts = self.origins.take(steps), np.flatnonzero(new)
        return replace(
            self,
            observations=self.observations[steps],
            actions=self.actions[steps],
            starts=starts,
            rewards=rewards,
            origins=origins,
            terminated=None if self.terminated is None else self.terminated[steps],
        )

    def split(self, fraction: float) -> tuple[Episodes, Episodes]:
        """Return training and validation steps: whole episodes, spread evenly, or the end of each if there are few."""
        lengths = self.ends - self.starts
        if self.count >= FEW_EPISODES:
            every = max(2, round(1 / fraction))
            held = np.repeat(np.arange(self.count) % every == every - 1, lengths)
            if not held.any():
                held = np.repeat(np.arange(self.count) == self.count - 1, lengths)
        else:
            position = np.arange(len(self)) - np.repeat(self.starts, lengths)
            held = position >= np.repeat(np.ceil(lengths * (1 - fraction)), lengths)
        if not held.any() or held.all():
            raise DataError(
                f"{self.origins.file(0)}: {len(self)} steps, expected enough to hold some out; record more steps, or "
                "name validation data with data.valid=FILE"
            )
        return self.take(np.flatnonzero(~held)), self.take(np.flatnonzero(held))

    def fingerprint(self) -> str:
        """Return a hash of the steps."""
        digest = hashlib.sha256(repr((self.observations.shape, self.actions.shape)).encode())
        parts = (self.observations, self.actions, self.starts, self.rewards, self.terminated)
        for part in parts:
            if part is not None:
                digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()[:16]

    def notes(self) -> list[str]:
        """Return what the data are, for the user."""
        episodes = f"{self.count:,} episode{'' if self.count == 1 else 's'}"
        notes = [f"{len(self):,} steps in {episodes}, observations of {self.observations.shape[1]} numbers"]
        if not self.marked:
            notes.append("the data do not say where episodes end: they are read as one, and their return is unknown")
        returns = self.returns()
        if returns is not None:
            notes.append(f"return of the expert: {returns.mean():.1f} ± {returns.std():.1f}")
        return notes


def whole_numbers(actions: NDArray[Any]) -> bool:
    """Whether actions are single whole numbers."""
    if actions.ndim == 1:
        return all(label.lstrip("-").isdecimal() for label in set(actions.tolist()))
    return actions.shape[1] == 1 and bool((actions == np.round(actions)).all())


def action_space(episodes: Episodes, kind: str) -> ActionSpace:
    """Return the space of recorded actions; `kind` auto: discrete if they are labels or single whole numbers."""
    actions = episodes.actions
    discrete = actions.ndim == 1 or whole_numbers(actions) if kind == "auto" else kind == "discrete"
    if not discrete:
        if actions.ndim == 1:
            raise DataError(
                f"{episodes.origins.describe(0)}: action '{actions[0]}', expected numbers; set data.actions=discrete"
            )
        return ActionSpace((), actions.shape[1])
    labels = set(label_texts(episodes))
    if len(labels) < 2:
        raise DataError(
            f"{episodes.origins.file(0)}: every action is '{labels.pop()}', expected at least two different ones; "
            "record an expert that acts, or set data.actions=continuous"
        )
    numeric = all(label.lstrip("-").isdecimal() for label in labels)
    return ActionSpace(tuple(sorted(labels, key=int) if numeric else sorted(labels)))


def label_texts(episodes: Episodes) -> list[str]:
    """Return discrete actions as text; a vector of several numbers is no label."""
    actions = episodes.actions
    if actions.ndim == 1:
        return [str(label) for label in actions.tolist()]
    if not whole_numbers(actions):
        row = int(np.argmax((actions != np.round(actions)).any(1))) if actions.shape[1] == 1 else 0
        shown = ", ".join(f"{number:g}" for number in actions[row])
        raise DataError(
            f"{episodes.origins.describe(row)}: action ({shown}), expected one whole number or label; set "
            "data.actions=continuous"
        )
    return [str(int(number)) for number in actions[:, 0].tolist()]


def encode_actions(episodes: Episodes, space: ActionSpace) -> NDArray[Any]:
    """Return actions as a network reads them: numbers of labels (N,) int64, or vectors (N, A) float32."""
    if not space.discrete:
        actions = episodes.actions
        if actions.ndim == 1 or actions.shape[1] != space.dim:
            width = "a label" if actions.ndim == 1 else f"{actions.shape[1]} numbers"
            raise DataError(f"{episodes.origins.describe(0)}: an action of {width}, expected {space.dim} numbers")
        return actions.astype(np.float32)
    numbers = {label: number for number, label in enumerate(space.labels)}
    texts = label_texts(episodes)
    for row, label in enumerate(texts):
        if label not in numbers:
            listed = ", ".join(space.labels[:SHOWN]) + (", ..." if len(space.labels) > SHOWN else "")
            raise DataError(f"{episodes.origins.describe(row)}: action '{label}', expected one of: {listed}")
    return np.array([numbers[label] for label in texts], dtype=np.int64)
