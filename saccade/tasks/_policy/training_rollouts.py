"""Training rollouts: a source of batches of steps that the policy takes in an environment, with its state.

N copies of the environment, S steps, T steps of a history, D numbers of an observation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from saccade.core.source import Source
from saccade.data.environments import Environments
from saccade.models.policy.policy import Policy
from saccade.tasks._policy.rollouts import Histories, act, as_tensor, observed

PER_EPOCH = 100  # steps of training that count as an epoch


@dataclass(frozen=True)
class RolloutBatch:
    """S steps of N copies: the histories (S, N, T, D) of some lengths (S, N), the actions, and what follows."""

    histories: Tensor
    lengths: Tensor
    actions: Tensor
    """(S, N, ...)"""
    terminated: Tensor
    """whether the environment ended the episode with the step (S, N)"""
    truncated: Tensor
    """whether the time limit ended it (S, N)"""
    following: Tensor
    """observations after each step, before another episode starts (S, N, D)"""
    step: int

    @property
    def observations(self) -> Tensor:
        """The last observation of each history (S, N, D)."""
        at = (self.lengths - 1)[..., None, None].expand(*self.lengths.shape, 1, self.histories.shape[-1])
        return self.histories.gather(2, at)[:, :, 0]

    @property
    def count(self) -> int:
        return self.lengths.numel()

    @property
    def units(self) -> int:
        return self.lengths.numel()

    @property
    def rows(self) -> list[str]:
        return [f"environment {copy} of step {self.step + 1}" for copy in range(self.lengths.shape[1])]

    def to(self, device: Any) -> RolloutBatch:
        names = ("histories", "lengths", "actions", "terminated", "truncated", "following")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})


class Rollouts(Source):
    """The steps of a policy in copies of an environment; each batch continues from the state after the last one."""

    def __init__(self, policy: Policy, environments: Environments, *, window: int, steps: int, seed: int) -> None:
        self._policy, self._environments, self._steps = policy, environments, steps
        self._histories = Histories(observed(environments), window)
        self._generator = torch.Generator().manual_seed(seed)
        self._next = 0

    @property
    def per_epoch(self) -> int:
        return PER_EPOCH

    def at(self, step: int) -> list[RolloutBatch]:
        if step != self._next:
            raise ValueError(f"an environment is stepped in order: step {self._next} comes next, not {step}")
        self._next += 1
        choose = act(self._policy, self._generator)
        taken: list[tuple[Tensor, ...]] = []
        for _ in range(self._steps):
            histories, lengths = self._histories.values.clone(), self._histories.lengths
            actions = choose(histories, lengths)
            moved = self._environments.step(actions.numpy())
            ends = torch.from_numpy(moved.terminated), torch.from_numpy(moved.truncated)
            taken.append((histories, lengths, actions, *ends, as_tensor(moved.last)))
            self._histories.append(observed(self._environments), torch.from_numpy(moved.ended))
        seen, counts, acted, terminated, truncated, following = map(torch.stack, zip(*taken, strict=True))
        return [RolloutBatch(seen, counts, acted, terminated, truncated, following, step)]

    def state(self) -> dict[str, Tensor]:
        own = {"next": torch.tensor(self._next), "generator": self._generator.get_state(), **self._histories.state()}
        return own | {f"environments.{name}": value for name, value in self._environments.state().items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self._next = int(state["next"])
        self._generator.set_state(state["generator"])
        self._histories.values, self._histories.lengths = state["histories"].clone(), state["lengths"].clone()
        prefix = "environments."
        self._environments.load_state(
            {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
        )
