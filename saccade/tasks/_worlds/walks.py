"""Walks: episodes of a model that follows instructions in a grid world.

Shapes: B episodes, T steps, A actions, R rows and C columns of a map.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.models.policy.following import InstructionFollower, Observations
from saccade.tasks._encoder.inputs import check_outputs
from saccade.worlds.grid import STOP, Pose, Poses, Terrain, observe, parse_grid, parse_position, step
from saccade.worlds.rules import RuleError

KEYS = ("map", "legend", "start", "goal", "instruction", "actions", "held_out")  # those of a data file, all but the
# first four ignored: a line of a file is an input


@dataclass(frozen=True)
class Walk:
    """What a model did: its actions, their probabilities, and the poses before each of them and at the end."""

    actions: tuple[int, ...]
    probabilities: tuple[float, ...]
    poses: tuple[Pose, ...]

    @property
    def stopped(self) -> bool:
        return self.actions[-1:] == (STOP,)

    @property
    def end(self) -> tuple[int, int]:
        """Row and column at the end."""
        return self.poses[-1].row, self.poses[-1].column


def parse_map(value: Mapping[str, Any]) -> None:
    """Check a map as a user gives it, with or without its goal."""
    unknown = next((key for key in value if key not in KEYS), None)
    if unknown is not None:
        raise RuleError(f"a key {str(unknown)[:40]!r}", "only 'map', 'legend', 'start' and 'goal'")
    world = parse_grid(value)
    if value.get("goal") is not None:
        parse_position(value["goal"], world.rows, "goal")


@torch.no_grad()
def follow(
    model: InstructionFollower, ids: Tensor, keep: Tensor, start: tuple[Sequence[Terrain], Poses], max_steps: int
) -> list[Walk]:
    """Return the walks of a model that always takes the most likely action, in all worlds at once."""
    (terrains, poses), device, size = start, ids.device, model.config.view
    count = len(terrains)
    instruction, state = model.encode(ids, keep)
    previous, running = torch.full((count, 1), model.actions, device=device), np.ones(count, bool)
    open_cells, taken, paths = stack_open(terrains), [], [poses]
    for _ in range(max_steps):
        cells = np.stack([observe(terrains[row], poses[row : row + 1], size) for row in range(count)])
        seen = (torch.from_numpy(cells).to(device), torch.from_numpy(poses[:, 2:].copy()).to(device))
        logits, state = model.step(instruction, Observations(*seen, previous), state)
        probabilities = check_outputs(logits[-1].float().cpu()).softmax(-1)
        best, actions = (values.numpy() for values in probabilities.max(-1))
        taken.append((np.where(running, actions, -1), best))
        running = running & (actions != STOP)
        poses = np.where(running[:, None], step(open_cells, poses, actions), poses)
        paths.append(poses)
        previous = torch.from_numpy(actions)[:, None].to(device)
        if not running.any():
            break
    return [_walk(row, taken, paths) for row in range(count)]


def _walk(row: int, taken: Sequence[tuple[NDArray[np.int64], NDArray[np.float32]]], paths: Sequence[Poses]) -> Walk:
    steps = [(int(actions[row]), float(best[row])) for actions, best in taken if actions[row] >= 0]
    actions, probabilities = zip(*steps, strict=True)
    return Walk(actions, probabilities, tuple(Pose(*paths[at][row].tolist()) for at in range(len(steps) + 1)))


def stack_open(terrains: Sequence[Terrain]) -> NDArray[np.bool_]:
    """Return the open cells of several maps (B, R, C); smaller maps end in walls."""
    shape = np.max([cells.open.shape for cells in terrains], axis=0)
    stacked = np.zeros((len(terrains), *shape), bool)
    for row, cells in enumerate(terrains):
        stacked[row, : cells.open.shape[0], : cells.open.shape[1]] = cells.open
    return stacked


def to_image(pixels: NDArray[np.uint8]) -> Tensor:
    """Return pixels (H, W, 3) as an image (3, H, W)."""
    return torch.from_numpy(pixels).permute(2, 0, 1)
