"""Replay: one episode step by step, with the probabilities of the actions and the attention over the history."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from saccade.core.serialize import finite
from saccade.data.environments import ActionSpace, Environments
from saccade.models.policy.distributions import Categorical
from saccade.models.policy.policy import Policy
from saccade.nn.probe import watch
from saccade.tasks._policy.rollouts import Histories, observed

MOST_STEPS = 1000  # that are shown
CARTPOLE = ("cart position", "cart velocity", "pole angle", "pole angular velocity")


@torch.no_grad()
def replay(policy: Policy, space: ActionSpace, name: str, window: int, seed: int) -> dict[str, Any]:
    """Return an episode of the most probable actions, which starts from a seed, as JSON."""
    environments = Environments(name, [seed])
    histories, device = Histories(observed(environments), window), policy.head.weight.device
    steps: list[dict[str, Any]] = []
    total, ended = 0.0, ""
    while len(steps) < MOST_STEPS and not ended:
        length = int(histories.lengths[0])
        history = histories.values[:, :length].to(device)
        attention: dict[str, Any] = {}
        if policy.encoder is not None:
            with watch(policy) as maps:
                chosen = policy.act(history, histories.lengths.to(device))
            last = {name: recorded.rows(length - 1, length)[0, :, 0] for name, recorded in maps.items()}  # (H, K)
            attention = {name: [[finite(v) for v in head] for head in rows.tolist()] for name, rows in last.items()}
        else:
            chosen = policy.act(history, histories.lengths.to(device))
        action = policy.to_actions(chosen.mode()).cpu().numpy()
        probabilities = chosen.logits.softmax(-1)[0].tolist() if isinstance(chosen, Categorical) else []
        observation = environments.observations[0].tolist()
        moved = environments.step(np.asarray(action, dtype=np.float64))
        total += float(moved.rewards[0])
        ended = "terminated" if moved.terminated[0] else "time limit" if moved.truncated[0] else ""
        steps.append(
            {
                "observation": [finite(value) for value in observation],
                "action": space.labels[int(action[0])] if space.discrete else [finite(v) for v in action[0].tolist()],
                "probabilities": [finite(value) for value in probabilities],
                "reward": finite(float(moved.rewards[0])),
                "attention": attention,
            }
        )
        histories.append(observed(environments), torch.from_numpy(moved.ended))
    size = len(steps[0]["observation"])
    cartpole = name.startswith("CartPole")
    return {
        "environment": name,
        "drawing": "cartpole" if cartpole else "plot",
        "observations": list(CARTPOLE) if cartpole else [f"observation {n}" for n in range(size)],
        "labels": list(space.labels),
        "window": window,
        "seed": seed,
        "return": finite(total),
        "end": ended or f"cut after {MOST_STEPS} steps",
        "steps": steps,
    }
