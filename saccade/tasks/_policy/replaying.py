"""Replay: one episode step by step, with the probabilities of the actions and the attention over the history."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.core.serialize import finite, image_url
from saccade.data.environments import ActionSpace, Environments
from saccade.errors import UsageError
from saccade.models.policy.distributions import Categorical, Distribution
from saccade.models.policy.policy import Policy
from saccade.nn.probe import watch
from saccade.tasks._policy.rollouts import Histories, observed

MOST_STEPS, MOST_FRAMES = 1000, 250  # that are shown
FRAME = 240  # pixels of the longer side of a frame
CARTPOLE = ("cart position", "cart velocity", "pole angle", "pole angular velocity")


@torch.no_grad()
def replay(policy: Policy, space: ActionSpace, name: str, window: int, seed: int) -> dict[str, Any]:
    """Return an episode of the most probable actions, which starts from a seed, as JSON.

    The page draws the state of CartPole itself; other environments render frames, of which a long episode shows every
    few steps. Where an environment cannot, `note` says why.
    """
    cartpole = name.startswith("CartPole")
    environments = Environments(name, [seed], render=not cartpole)
    histories = Histories(observed(environments), window)
    every = max(1, -(-min(environments.limit or MOST_STEPS, MOST_STEPS) // MOST_FRAMES))
    steps, frames = list[dict[str, Any]](), list[str]()
    note, total, end = "", 0.0, ""
    while len(steps) < MOST_STEPS and not end:
        if not cartpole and not note and len(steps) % every == 0:
            try:
                frames.append(_frame(environments))
            except UsageError as error:
                note = str(error)
        chosen, attention = _act(policy, histories)
        action = space.clip(policy.to_actions(chosen.mode())).cpu().numpy()
        observation = environments.observations[0].tolist()
        moved = environments.step(np.asarray(action, dtype=np.float64))
        total += float(moved.rewards[0])
        end = "terminated" if moved.terminated[0] else "time limit" if moved.truncated[0] else ""
        probabilities = chosen.logits.softmax(-1)[0].tolist() if isinstance(chosen, Categorical) else []
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
    environments.close()
    size = len(steps[0]["observation"])
    return {
        "environment": name,
        "drawing": "cartpole" if cartpole else "frames" if frames else "",
        "frames": frames,
        "every": every,
        "note": note,
        "observations": list(CARTPOLE) if cartpole else [f"observation {n}" for n in range(size)],
        "labels": list(space.labels),
        "window": window,
        "seed": seed,
        "return": finite(total),
        "end": end or f"cut after {MOST_STEPS} steps",
        "steps": steps,
    }


def _act(policy: Policy, histories: Histories) -> tuple[Distribution, dict[str, Any]]:
    """Return the distribution at the last step of a history, and by layer the weights of its steps for each head."""
    length, device = int(histories.lengths[0]), policy.head.weight.device
    history, lengths = histories.values[:, :length].to(device), histories.lengths.to(device)
    if policy.encoder is None:
        return policy.act(history, lengths), {}
    with watch(policy) as maps:
        chosen = policy.act(history, lengths)
    last = {name: recorded.rows(length - 1, length)[0, :, 0] for name, recorded in maps.items()}  # (H, K)
    return chosen, {name: [[finite(v) for v in head] for head in rows.tolist()] for name, rows in last.items()}


def _frame(environments: Environments) -> str:
    """Return what the environment renders as a data URL, scaled down."""
    image: Tensor = torch.from_numpy(environments.frame().copy()).permute(2, 0, 1)  # (3, H, W)
    scale = FRAME / max(image.shape[1:])
    if scale < 1:
        image = F.interpolate(image[None].float(), scale_factor=scale, mode="area")[0].round().to(torch.uint8)
    return image_url(image)
