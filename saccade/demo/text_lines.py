"""The text lines demo: pictures of generated words, numbers, prices, dates and times, with their text."""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

from saccade.demo._demo import Demo, DemoFiles, DemoTask
from saccade.demo._files import table, write_files
from saccade.demo._lines import font_names, render_line, sample_text

EXAMPLES = ("saccade", "Moving gaze", "$1,249.50", "2014-08-12")


def write_text_lines(folder: Path, *, seed: int = 1, train_rows: int = 12_000, valid_rows: int = 1_000) -> DemoFiles:
    """Write pictures of lines of text, with a table of their names and texts for training and for validation.

    No text of validation is in the training data: a word must be read, it cannot be recognized as a whole.
    """
    reserved = set(EXAMPLES)  # texts that are not in the training data
    files: dict[str, Callable[[], bytes]] = {}
    for part, count in (("val", valid_rows), ("train", train_rows)):
        rows = [("image", "text")]
        for number in range(1, count + 1):
            rng = random.Random(f"{seed} {part} {number}")
            text = sample_text(rng)
            while text in reserved:
                text = sample_text(rng)
            if part == "val":
                reserved.add(text)
            rows.append((f"{number:05}.png", text))
            files[f"{part}/{number:05}.png"] = partial(render_line, text, rng)
        files[f"{part}/labels.tsv"] = partial(table, rows, "\t")
    examples = {f"examples/{number}.png": text for number, text in enumerate(EXAMPLES, start=1)}
    files |= {name: partial(render_line, text, random.Random(f"{seed} {name}")) for name, text in examples.items()}
    write_files(folder, files, "lines")
    plan = (
        f"{len(font_names())} fonts, {train_rows:,} lines for training and {valid_rows:,} for validation, whose texts "
        "are not in the training data"
    )
    return DemoFiles(
        folder / "train" / "labels.tsv",
        plan,
        tuple({"image": folder / name} for name in examples),
        folder / "val" / "labels.tsv",
    )


DEMO = Demo(
    "pictures of words, numbers, prices, dates and times",
    {
        "reading": DemoTask(
            "read a line of text, letter by letter",
            write_text_lines,
            "attention of each letter to the cells of",
            minutes=3,
            settings={"model": {"transformer": {"dropout": 0.0, "embedding_dropout": 0.0}}},  # no line is seen often
        )
    },
)
