"""The Morse demo: generated texts as the sound of Morse code, at many speeds, pitches and noise levels."""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

from saccade.demo._demo import Demo, DemoFiles, DemoTask
from saccade.demo._files import table, write_files
from saccade.demo._morse import NOISE, PITCHES, SPEEDS, render, sample_text

EXAMPLES = ("SACCADE", "SOS", "DX 73", "ATTEND")


def write_morse(folder: Path, *, seed: int = 1, train_rows: int = 6_000, valid_rows: int = 500) -> DemoFiles:
    """Write recordings of Morse code, with a table of their names and texts for training and for validation.

    No text of validation is in the training data: letters must be heard, a word cannot be recognized as a whole.
    """
    reserved = set(EXAMPLES)  # texts that are not in the training data
    files: dict[str, Callable[[], bytes]] = {}
    for part, count in (("val", valid_rows), ("train", train_rows)):
        rows = [("audio", "text")]
        for number in range(1, count + 1):
            rng = random.Random(f"{seed} {part} {number}")
            text = sample_text(rng)
            while text in reserved:
                text = sample_text(rng)
            if part == "val":
                reserved.add(text)
            rows.append((f"{number:05}.wav", text))
            files[f"{part}/{number:05}.wav"] = partial(render, text, rng)
        files[f"{part}/labels.tsv"] = partial(table, rows, "\t")
    examples = {f"examples/{number}.wav": text for number, text in enumerate(EXAMPLES, start=1)}
    files |= {name: partial(render, text, random.Random(f"{seed} {name}")) for name, text in examples.items()}
    write_files(folder, files, "recordings")
    plan = (
        f"{SPEEDS[0]} to {SPEEDS[1]} words per minute, {PITCHES[0]} to {PITCHES[1]} Hz, noise up to {NOISE[1]:.0%} of "
        f"the tone; {train_rows:,} recordings for training and {valid_rows:,} for validation, whose texts are not in "
        "the training data"
    )
    return DemoFiles(
        folder / "train" / "labels.tsv",
        plan,
        tuple({"audio": folder / name} for name in examples),
        folder / "val" / "labels.tsv",
    )


DEMO = Demo(
    "Morse code as sound",
    {
        "speech_recognition": DemoTask(
            "write down Morse code, letter by letter",
            write_morse,
            "when each word was heard in",
            minutes=3,
            settings={
                "bands": 16,
                "hop": 0.02,
                "augment": {"speed": 0.0, "time_masks": 0, "frequency_masks": 1, "frequency_mask": 2},
                "model": {
                    "convolutional": {
                        "transformer": {"dim": 96, "depth": 2, "hidden": 192, "dropout": 0.0, "position": "rotary"},
                    },
                    "transformer": {"dim": 96, "hidden": 192, "depth": 1, "dropout": 0.0, "embedding_dropout": 0.0},
                },
            },
        )
    },
)
