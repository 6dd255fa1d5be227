"""The Morse demo: generated texts as the sound of Morse code, at many speeds, pitches and noise levels."""

from pathlib import Path

from saccade.demo._demo import Demo, DemoFiles, DemoTask
from saccade.demo._morse import NOISE, PITCHES, SPEEDS, render, sample_text
from saccade.demo._texts import Rendering, write_rendered

EXAMPLES = ("SACCADE", "SOS", "DX 73", "ATTEND")
RECORDINGS = Rendering("audio", ".wav", "recordings", sample_text, render)


def write_morse(folder: Path, *, seed: int = 1, train_rows: int = 6_000, valid_rows: int = 500) -> DemoFiles:
    """Write recordings of Morse code, with a table of their names and texts for training and for validation."""
    plan = (
        f"{SPEEDS[0]} to {SPEEDS[1]} words per minute, {PITCHES[0]} to {PITCHES[1]} Hz, noise up to {NOISE[1]:.0%} of "
        f"the tone; {train_rows:,} recordings for training and {valid_rows:,} for validation, whose texts are not in "
        "the training data"
    )
    return write_rendered(folder, RECORDINGS, EXAMPLES, plan, seed=seed, rows={"val": valid_rows, "train": train_rows})


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
                    "decoder": "transformer",
                    "convolutional": {
                        "transformer": {"dim": 96, "depth": 2, "hidden": 192, "dropout": 0.0, "position": "rotary"},
                    },
                    "transformer": {"dim": 96, "hidden": 192, "depth": 1, "dropout": 0.0, "embedding_dropout": 0.0},
                },
            },
        )
    },
)
