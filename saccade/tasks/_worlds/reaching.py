"""Reaching: episodes of a policy in the reach world, beside those of the expert and of random actions.

Shapes: B episodes, A actions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from saccade.core.callback import Progress, ignore_progress
from saccade.worlds import arm
from saccade.worlds.arm import ACTIONS, GRIP, MAX_STEPS, Scene

SEED, SELECTION_SEED = 20_170, 20_171  # of evaluation scenes: those that choose a checkpoint are others
DISTRACTORS = 3

Frame = NDArray[np.uint8]
Policy = Callable[[Sequence[Frame]], Tensor]
"""returns the probabilities (B, A) of the actions at the sight of frames (H, W, 3)"""


@dataclass(frozen=True)
class Reach:
    """An episode: what was seen before each action, and whether the hand ended at the target."""

    frames: tuple[Frame, ...]
    actions: tuple[int, ...]
    probabilities: tuple[float, ...]
    success: bool

    @property
    def gripped(self) -> bool:
        return self.actions[-1:] == (GRIP,)


@dataclass(frozen=True)
class ReachEvaluation:
    """Success of a policy, of the expert and of random actions in the same scenes."""

    values: Mapping[str, float]
    note: str


def rollout(policy: Policy, scenes: Sequence[Scene], progress: Progress = ignore_progress) -> list[Reach]:
    """Return the episodes of a policy that takes the most likely action, in all scenes at once."""
    joints = np.array([scene.joints for scene in scenes])
    targets = np.array([scene.target for scene in scenes])
    episodes: list[tuple[list[Frame], list[int], list[float]]] = [([], [], []) for _ in scenes]
    running = np.arange(len(scenes))
    for number in range(MAX_STEPS):
        frames = arm.render(joints[running], [scenes[row] for row in running.tolist()])
        best, actions = policy(list(frames)).max(-1)
        for row, frame, action, probability in zip(
            running.tolist(), frames, actions.tolist(), best.tolist(), strict=True
        ):
            seen, taken, probabilities = episodes[row]
            seen.append(frame)
            taken.append(action)
            probabilities.append(probability)
        joints[running] = arm.step(joints[running], actions.numpy())
        running = running[actions.numpy() != GRIP]
        progress((number + 1) / MAX_STEPS)
        if not len(running):
            break
    reached = arm.touches(joints, targets)
    return [
        Reach(tuple(frames), tuple(actions), tuple(probabilities), bool(there) and actions[-1] == GRIP)
        for (frames, actions, probabilities), there in zip(episodes, reached, strict=True)
    ]


def evaluation_scenes(count: int, *, quick: bool = False) -> list[Scene]:
    """Return the scenes in which policies are compared; `quick`: those in which a checkpoint is chosen."""
    rng = np.random.default_rng(SELECTION_SEED if quick else SEED)
    return [arm.sample_scene(rng, DISTRACTORS) for _ in range(count)]


def evaluate_reach(
    policy: Policy, count: int, progress: Progress = ignore_progress, *, quick: bool = False
) -> ReachEvaluation:
    """Return how often a policy touches the target, beside the expert and random actions."""
    scenes = evaluation_scenes(count, quick=quick)
    episodes = rollout(policy, scenes, progress)
    success = 100 * float(np.mean([episode.success for episode in episodes]))
    expert, random = (100 * float(np.mean(_blind(choose, scenes))) for choose in (arm.expert, _random_actions()))
    values: dict[str, Any] = {
        "success": success,
        "expert_success": expert,
        "random_success": random,
        "steps": float(np.mean([len(episode.actions) for episode in episodes])),
        "episodes": count,
    }
    share = f"{success / expert:.1%} of the expert's" if expert else "the expert has none"
    return ReachEvaluation(values, f"success {success:.1f} is {share}; random actions reach {random:.1f}")


def _random_actions() -> Callable[[arm.Floats, arm.Floats], NDArray[np.int64]]:
    rng = np.random.default_rng(SEED)
    return lambda joints, targets: rng.integers(len(ACTIONS), size=len(joints))


def _blind(choose: Callable[[arm.Floats, arm.Floats], NDArray[np.int64]], scenes: Sequence[Scene]) -> NDArray[np.bool_]:
    """Return which episodes of actions that are chosen without frames end at the target."""
    joints, targets = (np.array([getattr(scene, name) for scene in scenes]) for name in ("joints", "target"))
    gripped = np.zeros(len(scenes), bool)
    for _ in range(MAX_STEPS):
        actions = np.where(gripped, GRIP, choose(joints, targets))
        gripped |= actions == GRIP
        joints = arm.step(joints, actions)
    reached: NDArray[np.bool_] = gripped & arm.touches(joints, targets)
    return reached
