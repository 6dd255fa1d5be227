"""Environments: copies of a gymnasium environment that are stepped together, and whose state can be saved exactly.

N copies.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.errors import UsageError, suggest

Array = NDArray[Any]

CLASSIC = ("AcrobotEnv", "CartPoleEnv", "Continuous_MountainCarEnv", "MountainCarEnv", "PendulumEnv")
"""environments of gymnasium whose physics is their attribute `state`"""
DERIVED = ("xpos", "xipos")  # arrays of MuJoCo that a reward reads before they are computed anew
WORD = (1 << 64) - 1
TRIAL_STEPS = 20  # of the check that a restored copy continues exactly


@dataclass(frozen=True)
class ActionSpace:
    """The actions of an environment or of recorded episodes: labels, or vectors of numbers."""

    labels: tuple[str, ...] = ()
    """names of discrete actions; empty: continuous ones"""
    dim: int = 1
    """numbers of a continuous action"""
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    """bounds of a continuous action, to which an environment's actions are clipped; empty: none"""

    @property
    def discrete(self) -> bool:
        return bool(self.labels)

    @property
    def features(self) -> int:
        """Numbers that describe an action to a network: one for each label, or the vector itself."""
        return len(self.labels) or self.dim

    def clip(self, actions: Tensor) -> Tensor:
        """Return actions as an environment takes them: continuous ones within their bounds."""
        if not self.low:
            return actions
        low, high = (torch.tensor(side, dtype=actions.dtype, device=actions.device) for side in (self.low, self.high))
        return actions.clamp(low, high)

    def describe(self) -> str:
        """Return the space in a few words."""
        if self.discrete:
            return f"{len(self.labels)} actions"
        return f"actions of {self.dim} number{'' if self.dim == 1 else 's'}"


@dataclass(frozen=True)
class Transition:
    """What one step of every copy led to; a copy whose episode ended has already started the next one."""

    rewards: NDArray[np.float64]
    """(N,)"""
    terminated: NDArray[np.bool_]
    """whether the environment ended the episode (N,)"""
    truncated: NDArray[np.bool_]
    """whether the time limit ended it (N,)"""
    last: Array
    """the observations after the step, before a new episode started (N, ...)"""

    @property
    def ended(self) -> NDArray[np.bool_]:
        return self.terminated | self.truncated


class Environments:
    """N copies of one gymnasium environment, each with a random generator of its own.

    `observations` (N, ...) are what the policy sees next. An episode that ends is followed by the next one at once.
    The time limit of the environment is counted here, in `steps` (N,), so that it is part of the state.
    """

    def __init__(self, name: str, seeds: Sequence[int], *, max_steps: int = 0, render: bool = False) -> None:
        """`max_steps`: time limit of an episode; 0: that of the environment. `render`: its frames can be asked for."""
        self.name = name
        self.limit = max_steps or time_limit(name)
        self._copies = [make(name, render=render) for _ in seeds]
        self.steps = np.zeros(len(seeds), dtype=np.int64)
        self.observations: Array = np.stack(
            [_observed(copy.reset(seed=seed)[0]) for copy, seed in zip(self._copies, seeds, strict=True)]
        )

    def __len__(self) -> int:
        return len(self._copies)

    def step(self, actions: Array, only: NDArray[np.bool_] | None = None) -> Transition:
        """Act in all copies, or those of a mask (N,); `actions` are numbers (N,) or vectors (N, A)."""
        count = len(self)
        rewards, ends = np.zeros(count), np.zeros((2, count), dtype=bool)
        last = self.observations.copy()
        for number, copy in enumerate(self._copies):
            if only is not None and not only[number]:
                continue
            action = to_action(copy.action_space, actions[number])
            observation, reward, terminated, truncated, _ = copy.step(action)
            self.steps[number] += 1
            last[number] = _observed(observation)
            rewards[number], ends[0, number] = float(reward), bool(terminated)
            limited = bool(self.limit) and self.steps[number] >= self.limit
            ends[1, number] = not terminated and (bool(truncated) or limited)
        after = last.copy()
        for number in np.flatnonzero(ends.any(0)).tolist():
            after[number], self.steps[number] = _observed(self._copies[number].reset()[0]), 0
        self.observations = after
        return Transition(rewards, ends[0], ends[1], last)

    def reset(self, seeds: Sequence[int]) -> None:
        """Start a new episode in every copy, from a seed each."""
        self.steps[:] = 0
        self.observations = np.stack(
            [_observed(copy.reset(seed=seed)[0]) for copy, seed in zip(self._copies, seeds, strict=True)]
        )

    def frame(self, number: int = 0) -> Array:
        """Return the picture (H, W, 3) that the environment renders of a copy, uint8."""
        copy = self._copies[number]
        if copy.render_mode != "rgb_array":
            raise UsageError(f"'{self.name}' cannot be rendered: it has no render mode rgb_array")
        try:
            return np.asarray(copy.render(), dtype=np.uint8)
        except Exception as error:  # whatever the graphics library of an environment raises
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            hint = "; without a display, set MUJOCO_GL=egl" if _is_mujoco(copy) else ""
            raise UsageError(f"'{self.name}' cannot be rendered: {reason}{hint}") from error

    def close(self) -> None:
        """Free what rendering holds."""
        for copy in self._copies:
            copy.close()

    def state(self) -> dict[str, Tensor]:
        """Return everything the next step depends on besides the action: physics, step counts, random generators."""
        state = {"observations": torch.from_numpy(self.observations.copy()), "steps": torch.from_numpy(self.steps)}
        state["generators"] = torch.from_numpy(np.stack([_generator_words(copy) for copy in self._copies]))
        for number, copy in enumerate(self._copies):
            state |= {f"{number}.{key}": torch.from_numpy(value) for key, value in _save(copy, self.name).items()}
        return {key: value.clone() for key, value in state.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore a saved state."""
        self.observations = state["observations"].numpy().copy()
        self.steps = state["steps"].numpy().copy()
        for number, copy in enumerate(self._copies):
            prefix = f"{number}."
            own = {key.removeprefix(prefix): v.numpy().copy() for key, v in state.items() if key.startswith(prefix)}
            _load(copy, own)
            _restore_generator(copy, state["generators"][number].numpy())


def make(name: str, *, render: bool = False) -> Any:
    """Return one copy of an environment, without wrappers; `render`: one that can draw itself, where it knows how."""
    gymnasium = require_gymnasium()
    try:
        spec = {"disable_env_checker": True, "max_episode_steps": -1}
        copy = gymnasium.make(name, **spec).unwrapped
        if render and "rgb_array" in copy.metadata.get("render_modes", ()):
            copy = gymnasium.make(name, render_mode="rgb_array", **spec).unwrapped
    except gymnasium.error.DependencyNotInstalled as error:
        raise UsageError(f"environment '{name}' needs another package: {error}") from error
    except ModuleNotFoundError as error:
        raise UsageError(f"environment '{name}' needs the package {error.name}; pip install {error.name}") from error
    except gymnasium.error.Error as error:
        names = sorted(gymnasium.registry)
        raise UsageError(f"no environment '{name}' in gymnasium{suggest(name, names)}") from error
    return copy


def time_limit(name: str) -> int:
    """Return the maximum number of steps of an episode; 0: none."""
    make(name)
    return int(require_gymnasium().spec(name).max_episode_steps or 0)


def check_limited(name: str) -> None:
    """Refuse an environment without a time limit: an evaluation of its episodes might never end."""
    if not time_limit(name):
        raise UsageError(
            f"the episodes of '{name}' must have a time limit, but have none, so that an evaluation might never end; "
            "register it with max_episode_steps"
        )


@cache
def spaces(name: str) -> tuple[int, ActionSpace]:
    """Return the length of an observation and the actions of an environment; other spaces are refused."""
    observed = make(name).observation_space
    if type(observed).__name__ != "Box" or len(observed.shape) != 1:
        raise UsageError(f"the observations of '{name}' must be vectors of numbers, but are {observed}")
    return observed.shape[0], actions_of(name)


@cache
def actions_of(name: str) -> ActionSpace:
    """Return the actions of an environment; those that are neither discrete nor vectors are refused."""
    acted = make(name).action_space
    if type(acted).__name__ == "Discrete":
        return ActionSpace(tuple(str(number) for number in range(int(acted.start), int(acted.start + acted.n))))
    if type(acted).__name__ != "Box" or len(acted.shape) != 1:
        raise UsageError(f"the actions of '{name}' must be discrete or a vector of numbers, but are {acted}")
    low, high = (tuple(float(bound) for bound in side) for side in (acted.low, acted.high))
    return ActionSpace((), acted.shape[0], low, high)


@cache
def has_pictures(name: str) -> bool:
    """Whether the observations of an environment are pictures (H, W, 3) of bytes."""
    observed = make(name).observation_space
    is_bytes = type(observed).__name__ == "Box" and observed.dtype == np.uint8
    return bool(is_bytes and len(observed.shape) == 3 and observed.shape[2] == 3)


@cache
def check_resumable(name: str) -> None:
    """Refuse an environment that does not continue exactly from a saved state: two copies are tried."""
    first, second = Environments(name, [1]), Environments(name, [2])
    if first.limit and first.limit < 2:
        raise UsageError(f"the episodes of '{name}' must have at least 2 steps, but have {first.limit}")
    draw = np.random.default_rng(1)
    actions = [random_action(make(name).action_space, draw) for _ in range(2 * TRIAL_STEPS)]
    for action in actions[:TRIAL_STEPS]:
        first.step(action[None])
    second.load_state(first.state())
    for action in actions[TRIAL_STEPS:]:
        original, restored = first.step(action[None]), second.step(action[None])
        same = original.rewards == restored.rewards and np.array_equal(first.observations, second.observations)
        if not same or not np.array_equal(original.ended, restored.ended):
            raise UsageError(
                f"'{name}' does not continue exactly from a saved state, so a run could not be resumed; give it "
                "methods state_dict() and load_state_dict(state) that save all of its state as arrays"
            )


def to_action(space: Any, action: Array) -> Any:
    """Return an action as an environment takes it: a whole number, or a vector within its bounds."""
    if type(space).__name__ == "Discrete":
        return int(space.start) + int(action)
    return np.clip(np.asarray(action, dtype=space.dtype), space.low, space.high)


def random_action(space: Any, draw: np.random.Generator) -> Array:
    """Return a random action: a number from 0, or a vector, uniform where it is bounded, else normal."""
    if type(space).__name__ == "Discrete":
        return np.asarray(draw.integers(int(space.n)))
    bounded = np.isfinite(space.low) & np.isfinite(space.high)
    low, high = np.where(bounded, space.low, -1.0), np.where(bounded, space.high, 1.0)
    return np.where(bounded, draw.uniform(low, high), draw.standard_normal(space.shape))


def require_gymnasium() -> Any:
    """Return the module gymnasium, or say how to install it."""
    try:
        return importlib.import_module("gymnasium")
    except ModuleNotFoundError as error:
        raise UsageError("environments need gymnasium; install it with: pip install 'saccade[rl]'") from error


def _observed(observation: Any) -> Array:
    return np.asarray(observation)


def _generator_words(copy: Any) -> NDArray[np.int64]:
    """Return the state of the random generator of a copy as six 64-bit words."""
    state = copy.np_random.bit_generator.state
    if state["bit_generator"] != "PCG64":
        raise UsageError(
            f"the random generator of {type(copy).__name__} must be PCG64, but is {state['bit_generator']}"
        )
    counter, increment = state["state"]["state"], state["state"]["inc"]
    words = [counter >> 64, counter & WORD, increment >> 64, increment & WORD, state["has_uint32"], state["uinteger"]]
    return np.array(words, dtype=np.uint64).view(np.int64)


def _restore_generator(copy: Any, words: NDArray[np.int64]) -> None:
    high, low, increment_high, increment_low, has_half, half = (int(word) for word in words.view(np.uint64))
    copy.np_random.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": high << 64 | low, "inc": increment_high << 64 | increment_low},
        "has_uint32": has_half,
        "uinteger": half,
    }


def _save(copy: Any, name: str) -> dict[str, Array]:
    """Return the physics of a copy; an environment whose state is unknown is refused by name."""
    if hasattr(copy, "state_dict") and hasattr(copy, "load_state_dict"):
        return {key: np.array(value) for key, value in copy.state_dict().items()}
    if type(copy).__name__ in CLASSIC:
        return {"state": np.array(copy.state)}
    if _is_mujoco(copy):
        mujoco = importlib.import_module("mujoco")
        kind = mujoco.mjtState.mjSTATE_INTEGRATION
        state = np.empty(mujoco.mj_stateSize(copy.model, kind))
        mujoco.mj_getState(copy.model, copy.data, state, kind)
        return {"state": state, **{key: np.array(getattr(copy.data, key)) for key in DERIVED}}
    raise UsageError(
        f"the state of '{name}' cannot be saved, so a run could not be resumed exactly; use {', '.join(CLASSIC)}, an "
        "environment of MuJoCo, or one with methods state_dict() and load_state_dict(state) of arrays"
    )


def _load(copy: Any, state: Mapping[str, Array]) -> None:
    if hasattr(copy, "state_dict") and hasattr(copy, "load_state_dict"):
        copy.load_state_dict(state)
    elif _is_mujoco(copy):
        mujoco = importlib.import_module("mujoco")
        mujoco.mj_setState(copy.model, copy.data, state["state"], mujoco.mjtState.mjSTATE_INTEGRATION)
        for key in DERIVED:
            getattr(copy.data, key)[:] = state[key]
    else:
        copy.state = state["state"]


def _is_mujoco(copy: Any) -> bool:
    return type(getattr(copy, "data", None)).__name__ == "MjData"
