"""Rollouts: a policy acts in an environment, to be evaluated, replayed or trained.

N copies of the environment, T steps of a history, D numbers of an observation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.data.environments import Environments, check_limited, make, random_action
from saccade.models.policy.distributions import Distribution
from saccade.models.policy.policy import Policy

TEST_SEED, SELECTION_SEED = 1_000_000, 2_000_000  # of evaluation episodes: those that choose a checkpoint are others
Act = Callable[[Tensor, Tensor], Tensor]
"""actions for histories (N, T, D) of some lengths (N,), as the environment takes them"""


class Histories:
    """The last observations of each copy (N, T, D), the oldest first, and how many there are (N,)."""

    def __init__(self, observations: Tensor, size: int) -> None:
        self.values = observations.new_zeros(len(observations), size, observations.shape[1])
        self.values[:, 0] = observations
        self.lengths = torch.ones(len(observations), dtype=torch.int64)

    def append(self, observations: Tensor, new: Tensor) -> None:
        """Add an observation (N, D) of each copy; a `new` episode (N,) starts with it."""
        size = self.values.shape[1]
        full = (self.lengths == size) & ~new
        self.values = torch.where(full[:, None, None], self.values.roll(-1, 1), self.values)
        self.values = torch.where(new[:, None, None], torch.zeros_like(self.values), self.values)
        self.lengths = torch.where(new, 1, (self.lengths + 1).clamp(max=size))
        self.values[torch.arange(len(new)), self.lengths - 1] = observations

    def state(self) -> dict[str, Tensor]:
        return {"histories": self.values, "lengths": self.lengths}


def observed(environments: Environments) -> Tensor:
    """Return the observations (N, D) of all copies."""
    return as_tensor(environments.observations)


def as_tensor(observations: NDArray[Any]) -> Tensor:
    """Return observations as a network reads them."""
    return torch.from_numpy(np.asarray(observations, dtype=np.float32))


@torch.no_grad()
def distribution(policy: Policy, histories: Tensor, lengths: Tensor) -> Distribution:
    """Return the distribution of actions, computed on the device of the policy."""
    device = policy.head.weight.device
    return policy.act(histories.to(device), lengths.to(device))


def act(policy: Policy, generator: torch.Generator | None) -> Act:
    """Return how a policy acts: at random by its probabilities, or without a generator the most probable action."""

    @torch.no_grad()
    def choose(histories: Tensor, lengths: Tensor) -> Tensor:
        chosen = distribution(policy, histories, lengths)
        if generator is None:
            return policy.to_actions(chosen.mode()).cpu()
        cpu = type(chosen)(*(value.cpu() for value in vars(chosen).values()))
        return policy.to_actions(cpu.sample(generator).to(policy.head.weight.device)).cpu()

    return choose


def act_randomly(name: str, seed: int) -> Act:
    """Return how a random policy acts."""
    space, draw = make(name).action_space, np.random.default_rng(seed)
    return lambda histories, _: torch.from_numpy(np.stack([random_action(space, draw) for _ in histories]))


def episode_returns(environments: Environments, choose: Act, window: int, first_seed: int) -> NDArray[np.float64]:
    """Return the sum of rewards of one episode in each copy, which start from consecutive seeds."""
    check_limited(environments.name)
    environments.reset(range(first_seed, first_seed + len(environments)))
    histories = Histories(observed(environments), window)
    running, returns = np.ones(len(environments), dtype=bool), np.zeros(len(environments))
    while running.any():
        now = torch.from_numpy(running)
        chosen = choose(histories.values[now], histories.lengths[now]).numpy()
        actions = np.zeros((len(running), *chosen.shape[1:]))
        actions[running] = chosen
        step = environments.step(actions, running)
        returns += np.where(running, step.rewards, 0.0)
        running &= ~step.ended
        histories.append(observed(environments), torch.from_numpy(step.ended))
    return returns
