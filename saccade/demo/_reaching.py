"""Episodes of an expert in the reach world, as pictures with the action that it would take."""

import io
import zlib
from collections.abc import Callable
from functools import partial

import numpy as np

from saccade.errors import UsageError
from saccade.worlds import arm

NOISE = 0.25  # of the actions are random
DISTRACTORS = (0, 1, 2, 3, 3)


def reach_scene(seed: str) -> dict[str, object]:
    """Return a random scene as JSON."""
    return arm.sample_scene(np.random.default_rng(zlib.crc32(seed.encode())), 3).to_json()


def reach_episode(seed: str) -> list[tuple[str, Callable[[], bytes]]]:
    """Return the expert's action at each step of an episode, with the picture of that step (PNG)."""
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    scene = arm.sample_scene(rng, int(rng.choice(DISTRACTORS)))
    joints, target = np.array([scene.joints]), np.array([scene.target])
    steps: list[tuple[str, Callable[[], bytes]]] = []
    while len(steps) < arm.MAX_STEPS:
        action = int(arm.expert(joints, target)[0])
        steps.append((arm.ACTIONS[action], partial(_picture, joints, scene)))
        if action == arm.GRIP:
            break
        taken = int(rng.integers(arm.GRIP)) if rng.random() < NOISE else action
        joints = arm.step(joints, np.array([taken]))
    return steps


def _picture(joints: arm.Floats, scene: arm.Scene) -> bytes:
    try:
        from PIL import Image
    except ImportError as error:
        raise UsageError("the demo needs Pillow; pip install 'saccade[demo]'") from error
    buffer = io.BytesIO()
    Image.fromarray(arm.render(joints, [scene])[0]).save(buffer, "PNG")
    return buffer.getvalue()
