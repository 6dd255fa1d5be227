"""The text lines demo: pictures of generated words, numbers, prices, dates and times, with their text."""

from pathlib import Path

from saccade.demo._demo import Demo, DemoFiles, DemoTask
from saccade.demo._lines import font_names, render_line, sample_text
from saccade.demo._texts import Rendering, write_rendered

EXAMPLES = ("saccade", "Moving gaze", "$1,249.50", "2014-08-12")
LINES = Rendering("image", ".png", "lines", sample_text, render_line)


def write_text_lines(folder: Path, *, seed: int = 1, train_rows: int = 12_000, valid_rows: int = 1_000) -> DemoFiles:
    """Write pictures of lines of text, with a table of their names and texts for training and for validation."""
    plan = (
        f"{len(font_names())} fonts, {train_rows:,} lines for training and {valid_rows:,} for validation, whose texts "
        "are not in the training data"
    )
    return write_rendered(folder, LINES, EXAMPLES, plan, seed=seed, rows={"val": valid_rows, "train": train_rows})


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
