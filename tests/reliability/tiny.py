"""A tiny run for the reliability scripts: generated text and the real command in a process."""

import json
import random
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import processes

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
WORDS = ["the", "a", "cat", "dog", "sat", "on", "mat", "under", "red", "blue", "house", "and", "then", "was", "not"]
LOOP = ["train.device=cpu", "train.optim.lr=0.003", "train.optim.matrix_lr=0.01", "train.optim.clip=1"]
LOOP += ["train.optim.warmup=2"]
SMALL = ["dim=32", "depth=2", "heads=2", "hidden=64", "dropout=0.1"]
TEXT = [*(f"model.{setting}" for setting in SMALL), "model.max_positions=32", "batch_size=4"]
CLOCKS = ("seconds", "elapsed")  # may differ between two equal runs


class Workspace:
    """A temporary folder with a text and pairs in it, where commands run with a cache of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.runs = folder, folder / "runs"
        rng = random.Random(7)
        lines = [" ".join(rng.choice(WORDS) for _ in range(9)) for _ in range(400)]
        (folder / "text.txt").write_text("".join(f"{line}.\n" for line in lines))
        pairs = [line.split()[: 2 + number % 7] for number, line in enumerate(lines)]
        rows = (f"{' '.join(words)}\t{' '.join(reversed(words)).upper()}\n" for words in pairs)
        (folder / "pairs.tsv").write_text("".join(rows))

    def start(self, *arguments: str, preexec: Callable[[], None] | None = None) -> processes.Child:
        """Start the command `saccade ARGUMENTS` as a process."""
        return processes.start(arguments, self.folder, preexec)

    def run(self, *arguments: str, preexec: Callable[[], None] | None = None) -> tuple[int | None, str, str]:
        """Return exit code, stdout and stderr of `saccade ARGUMENTS`; the code is None if it does not end."""
        return self.start(*arguments, preexec=preexec).wait(300)

    def train(self, name: str, *settings: str) -> list[str]:
        """Return the arguments that train a tiny run."""
        arguments = ["train", "text.txt", "--task", "language_model", "--name", name, "--quiet", "--json"]
        return [*arguments, *TEXT, *LOOP, *settings]

    def resume(self, name: str) -> list[str]:
        return ["resume", name, "--quiet", "--json"]


def temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="saccade-reliability-", ignore_cleanup_errors=True)


def log(run: Path) -> list[dict[str, Any]]:
    """Return the records of a run without the clock: losses, gradient norms, learning rates and metrics."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [{key: value for key, value in json.loads(line).items() if key not in CLOCKS} for line in lines]


def clear(err: str) -> bool:
    """Whether a command ended with one message of ours and no traceback."""
    return "Traceback" not in err and len(re.findall("^saccade: ", err, re.MULTILINE)) == 1


def newest(run: Path) -> int:
    """Return the step of the newest checkpoint, by its name alone."""
    folder = run / "checkpoints"
    names = [path.name for path in folder.iterdir()] if folder.exists() else []
    return max((int(name[5:]) for name in names if re.fullmatch(r"step-\d+", name)), default=0)
