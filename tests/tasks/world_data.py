"""Tiny data of the tasks in worlds: episodes of a walker, and frames of an arm."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.demo import maze
from saccade.worlds import arm

MAP = {
    "map": ["######", "#..L.#", "#....D", "######"],
    "legend": {"L": "red lamp", "D": "blue door"},
    "start": [2, 1, "east"],
}


def write_instructions(folder: Path) -> Path:
    """Write episodes, of which a part is held out, as the only file of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as other:
        train = maze.write_instructions(Path(other), train_rows=80, valid_rows=4).train
        return Path(shutil.copy(train, folder / "walks.jsonl"))


def write_frames(folder: Path) -> Path:
    """Write a table of frames with episodes and actions, and the frames, in a folder within a folder."""
    reach = folder / "reach"
    maze.write_frames(reach, train_rows=6, valid_rows=2)
    shutil.rmtree(reach / "examples")
    return reach


def frame() -> NDArray[np.uint8]:
    """Return the picture of an arm and its target."""
    return arm.render(np.array([[0.3, 1.0]]), [SCENE])[0]


SCENE = arm.Scene((0.3, 1.0), (10.0, 12.0), ((-8.0, 6.0, "blue"),))


def scene_json() -> dict[str, Any]:
    """Return a scene as JSON."""
    return SCENE.to_json()
