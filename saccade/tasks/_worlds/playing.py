"""Playing: episodes of an image policy in a gymnasium environment, beside those of random actions.

Frames are the observations of the environment where these are pictures, else what it renders.
Shapes: N copies of the environment, A actions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.core.callback import Progress, ignore_progress
from saccade.data.environments import Environments, actions_of, check_limited, has_pictures
from saccade.errors import UsageError
from saccade.metrics.returns import summarise
from saccade.tasks._policy.rollouts import SELECTION_SEED, TEST_SEED
from saccade.tasks._worlds.reaching import Frame, Policy

MOST_STEPS = 250  # of an episode that is shown

Choose = Callable[[Environments, NDArray[np.int64]], NDArray[np.int64]]
"""returns the actions of some copies of the environment"""


@dataclass(frozen=True)
class Play:
    """An episode: what was seen before each action, the sum of rewards, and how it ended; empty: it was cut."""

    frames: tuple[Frame, ...]
    actions: tuple[int, ...]
    probabilities: tuple[float, ...]
    total: float
    end: str


def parse_seed(value: Mapping[str, Any]) -> int:
    """Return the seed of an episode, as a user gives it: {"seed": 3}."""
    seed = value.get("seed")
    if set(value) != {"seed"} or not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise ValueError(f'{dict(value)!r:.60}, expected the seed of an episode, such as {{"seed": 3}}')
    return seed


def check_playable(name: str) -> tuple[str, ...]:
    """Return the names of the actions of an environment; one without frames, discrete actions or an end is refused."""
    space = actions_of(name)
    if not space.discrete:
        raise UsageError(f"the actions of '{name}' must be discrete for an image policy, but are {space.describe()}")
    check_limited(name)
    environments = open_environments(name, [0])
    frames_of(environments, np.arange(1))
    environments.close()
    return space.labels


def open_environments(name: str, seeds: Sequence[int]) -> Environments:
    """Return copies of an environment that have frames."""
    return Environments(name, seeds, render=not has_pictures(name))


def frames_of(environments: Environments, copies: NDArray[np.int64]) -> list[Frame]:
    """Return a frame (H, W, 3) of each of some copies."""
    if has_pictures(environments.name):
        return [np.asarray(environments.observations[copy], dtype=np.uint8) for copy in copies]
    return [environments.frame(int(copy)) for copy in copies]


def most_probable(policy: Policy) -> Choose:
    """Return how a policy acts: always the most probable action."""
    return lambda environments, copies: policy(frames_of(environments, copies)).argmax(-1).numpy()


def at_random(labels: int, seed: int) -> Choose:
    """Return how random actions are chosen, without a look at the frames."""
    draw = np.random.default_rng(seed)
    return lambda _, copies: draw.integers(labels, size=len(copies))


def play_returns(
    environments: Environments, choose: Choose, first_seed: int, progress: Progress = ignore_progress
) -> NDArray[np.float64]:
    """Return the sum of rewards of one episode in each copy, which start from consecutive seeds."""
    environments.reset(range(first_seed, first_seed + len(environments)))
    running, returns = np.ones(len(environments), dtype=bool), np.zeros(len(environments))
    actions = np.zeros(len(environments), dtype=np.int64)
    while running.any():
        copies = np.flatnonzero(running)
        actions[copies] = choose(environments, copies)
        step = environments.step(actions, running)
        returns += np.where(running, step.rewards, 0.0)
        running &= ~step.ended
        progress(1 - float(running.mean()))
    return returns


def evaluate_play(
    policy: Policy, environments: Environments, *, quick: bool = False, progress: Progress = ignore_progress
) -> tuple[dict[str, float], list[str]]:
    """Return the return of a policy beside that of random actions, and notes for the user."""
    seed = SELECTION_SEED if quick else TEST_SEED
    score = summarise(play_returns(environments, most_probable(policy), seed, progress))
    values: dict[str, float] = {"return": score.mean, "return_deviation": score.deviation, "episodes": score.episodes}
    if quick:
        return values, []
    blind = at_random(len(actions_of(environments.name).labels), seed)
    random = summarise(play_returns(environments, blind, seed))
    values |= {"return_low": score.low, "return_high": score.high, "return_random": random.mean}
    return values, [f"return of the policy: {score.describe()}", f"of random actions: {random.describe()}"]


def play(policy: Policy, name: str, seed: int) -> Play:
    """Return one episode of a policy, which starts from a seed."""
    environments = open_environments(name, [seed])
    frames, actions, probabilities, total, end = list[Frame](), list[int](), list[float](), 0.0, ""
    while len(frames) < MOST_STEPS and not end:
        frames += frames_of(environments, np.arange(1))
        best, action = policy(frames[-1:]).max(-1)
        actions.append(int(action[0]))
        probabilities.append(float(best[0]))
        step = environments.step(action.numpy())
        total += float(step.rewards[0])
        end = "terminated" if step.terminated[0] else "time limit" if step.truncated[0] else ""
    environments.close()
    return Play(tuple(frames), tuple(actions), tuple(probabilities), total, end)
