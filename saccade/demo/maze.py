"""The maze demo: instructions for a walker in a house of rooms, and frames of an arm that reaches for a target."""

import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

from saccade.demo._demo import Demo, DemoFiles, DemoTask
from saccade.demo._files import table, write_files
from saccade.demo._instructions import HELD_OUT, write_episode
from saccade.demo._reaching import reach_episode, reach_scene

EXAMPLES = 3  # episodes to show, which are in neither part of the data


def write_instructions(folder: Path, *, seed: int = 1, train_rows: int = 12_000, valid_rows: int = 600) -> DemoFiles:
    """Write episodes as JSON lines: every one of validation has a combination of words that training never has."""
    counts = {"train": train_rows, "valid": valid_rows, "examples": EXAMPLES}
    episodes = {
        part: [
            write_episode(random.Random(f"{seed} {part} {number}"), held_out=part != "train") for number in range(count)
        ]
        for part, count in counts.items()
    }
    files: dict[str, Callable[[], bytes]] = {
        f"{part}.jsonl": partial(_lines, episodes[part]) for part in ("train", "valid")
    }
    shown = {f"examples/{number}.json": episode for number, episode in enumerate(episodes["examples"], 1)}
    files |= {name: partial(_lines, [_map(episode)]) for name, episode in shown.items()}
    write_files(folder, files, "instructions")
    plan = (
        f"{train_rows:,} instructions for training and {valid_rows:,} for validation, each with one of "
        f"{len(HELD_OUT)} combinations of words that no training instruction has: {', '.join(HELD_OUT)}"
    )
    examples: list[dict[str, str | Path]] = [
        {"map": folder / name, "instruction": str(episode["instruction"])} for name, episode in shown.items()
    ]
    return DemoFiles(folder / "train.jsonl", plan, tuple(examples), folder / "valid.jsonl")


def _lines(episodes: list[dict[str, object]]) -> bytes:
    return "".join(json.dumps(episode) + "\n" for episode in episodes).encode()


def _map(episode: dict[str, object]) -> dict[str, object]:
    """Return what a walker is given: the map, where it starts and, to check it, the goal."""
    return {key: episode[key] for key in ("map", "legend", "start", "goal")}


def write_frames(folder: Path, *, seed: int = 1, train_rows: int = 1_500, valid_rows: int = 60) -> DemoFiles:
    """Write episodes of an expert with an arm: a picture for each step, and a table of pictures, episodes and actions.

    A part of the actions is random, so that the expert also shows how to recover; the table has what it would do.
    """
    files: dict[str, Callable[[], bytes]] = {}
    rows = [("image", "episode", "step", "action", "split")]
    for part, count in (("train", train_rows), ("val", valid_rows)):
        for number in range(1, count + 1):
            episode = f"{part}-{number:04}"
            for step, (action, picture) in enumerate(reach_episode(f"{seed} {episode}"), 1):
                name = f"frames/{episode}-{step:02}.png"
                files[name] = picture
                rows.append((name, episode, str(step), action, part))
    shown = {
        f"examples/scene-{number}.json": reach_scene(f"{seed} examples {number}") for number in range(1, EXAMPLES + 1)
    }
    files |= {name: partial(_lines, [scene]) for name, scene in shown.items()}
    write_files(folder, {**files, "frames.csv": partial(table, rows)}, "frames")
    plan = (
        f"{len(rows) - 1:,} frames of {train_rows:,} episodes for training and {valid_rows:,} for validation: an arm "
        "touches the red disc, with what an expert does at each step"
    )
    examples: list[dict[str, str | Path]] = [{"scene": folder / name} for name in shown]
    return DemoFiles(folder / "frames.csv", plan, tuple(examples))


DEMO = Demo(
    "a walker in rooms with doors and objects; an arm and a target",
    {
        "instruction_following": DemoTask(
            "do what an instruction says, step by step",
            write_instructions,
            "attention of each move to the words of",
            minutes=3,
            settings={"model": {"dropout": 0.0}},  # data without noise
        ),
        "image_policy": DemoTask(
            "touch a red disc with an arm, from pictures of them",
            write_frames,
            "attention of each action to the cells of the frame, in",
            minutes=3,
            settings={"world": "reach"},
        ),
    },
)
