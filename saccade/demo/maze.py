"""The maze demo: instructions for a walker in a house of rooms, with the moves that follow them."""

import json
import random
from functools import partial
from pathlib import Path

from saccade.demo._demo import Demo, DemoFiles, DemoTask
from saccade.demo._files import write_files
from saccade.demo._instructions import HELD_OUT, write_episode

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
    files = {f"{part}.jsonl": partial(_lines, episodes[part]) for part in ("train", "valid")}
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


DEMO = Demo(
    "rooms with doors and objects, and a walker",
    {
        "instruction_following": DemoTask(
            "do what an instruction says, step by step",
            write_instructions,
            "attention of each move to the words of",
            minutes=3,
        ),
    },
)
