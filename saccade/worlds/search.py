"""Shortest paths of a walker in a grid world."""

from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from saccade.worlds.grid import FORWARD, LEFT, RIGHT, Pose, move

Goal = Callable[[Pose], bool]


def shortest_path(open_cells: NDArray[np.bool_], start: Pose, is_goal: Goal) -> list[int] | None:
    """Return the fewest actions from a pose to one that is a goal; None if there is no way.

    Of several shortest paths it is the one that goes forward first, then left: what a walker sees decides it.
    """
    before: dict[Pose, tuple[Pose, int] | None] = {start: None}
    queue = deque([start])
    while queue:
        pose = queue.popleft()
        if is_goal(pose):
            return _actions(before, pose)
        for action in (FORWARD, LEFT, RIGHT):
            after = move(open_cells, pose, action)
            if after not in before:
                before[after] = (pose, action)
                queue.append(after)
    return None


def _actions(before: dict[Pose, tuple[Pose, int] | None], pose: Pose) -> list[int]:
    actions = []
    while (edge := before[pose]) is not None:
        pose, action = edge
        actions.append(action)
    return actions[::-1]
