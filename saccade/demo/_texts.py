"""Rendered texts: files of generated texts and a table of their names, for training and for validation."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from saccade.demo._demo import DemoFiles
from saccade.demo._files import table, write_files


@dataclass(frozen=True)
class Rendering:
    """How texts are drawn at random and become files."""

    input: str
    """name of the model's input, such as image"""
    suffix: str
    """of a file"""
    files: str
    """what the files are called in messages"""
    sample: Callable[[random.Random], str]
    render: Callable[[str, random.Random], bytes]


def write_rendered(
    folder: Path, rendering: Rendering, examples: tuple[str, ...], plan: str, *, seed: int, rows: dict[str, int]
) -> DemoFiles:
    """Write the files of texts, `rows` of each part (val and train), and of some examples.

    No text of validation is in the training data: it cannot be recognized as a whole.
    """
    reserved = set(examples)  # texts that are not in the training data
    contents: dict[str, Callable[[], bytes]] = {}
    for part, count in rows.items():
        lines = [(rendering.input, "text")]
        for number in range(1, count + 1):
            rng = random.Random(f"{seed} {part} {number}")
            text = rendering.sample(rng)
            while text in reserved:
                text = rendering.sample(rng)
            if part == "val":
                reserved.add(text)
            name = f"{number:05}{rendering.suffix}"
            lines.append((name, text))
            contents[f"{part}/{name}"] = partial(rendering.render, text, rng)
        contents[f"{part}/labels.tsv"] = partial(table, lines, "\t")
    shown = {f"examples/{number}{rendering.suffix}": text for number, text in enumerate(examples, start=1)}
    contents |= {name: partial(rendering.render, text, random.Random(f"{seed} {name}")) for name, text in shown.items()}
    write_files(folder, contents, rendering.files)
    train, valid = (folder / part / "labels.tsv" for part in ("train", "val"))
    return DemoFiles(train, plan, tuple({rendering.input: folder / name} for name in shown), valid)
