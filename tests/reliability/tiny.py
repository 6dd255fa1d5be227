"""A tiny run for the reliability scripts: generated text, the real command in a process, comparison of two runs."""

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
WORDS = ["the", "a", "cat", "dog", "sat", "on", "mat", "under", "red", "blue", "house", "and", "then", "was", "not"]
LOOP = ["train.device=cpu", "train.optim.lr=0.003", "train.optim.matrix_lr=0.01", "train.optim.clip=1"]
LOOP += ["train.optim.warmup=2"]
SMALL = ["dim=32", "depth=2", "heads=2", "hidden=64", "dropout=0.1"]
TASKS = {  # data file, group of the model settings, and other settings of a task
    "language_model": ("text.txt", "model", ["model.max_positions=32", "batch_size=4"]),
    "translation": ("pairs.tsv", "model.transformer", ["batch_tokens=300", "search.beam=2"]),
}
CLOCKS = ("seconds", "elapsed")  # may differ between two equal runs


class Workspace:
    """A temporary folder with a text or pairs in it, where commands run with a cache of their own."""

    def __init__(self, folder: Path, task: str = "language_model") -> None:
        self.folder, self.runs, self.task = folder, folder / "runs", task
        rng = random.Random(7)
        lines = [" ".join(rng.choice(WORDS) for _ in range(9)) for _ in range(400)]
        (folder / "text.txt").write_text("".join(f"{line}.\n" for line in lines))
        pairs = [line.split()[: 2 + number % 7] for number, line in enumerate(lines)]
        rows = (f"{' '.join(words)}\t{' '.join(reversed(words)).upper()}\n" for words in pairs)
        (folder / "pairs.tsv").write_text("".join(rows))
        self.environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "SACCADE_CACHE": str(folder / "cache"),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])),
        }

    def start(self, *arguments: str, driver: str = "", preexec: Any = None) -> subprocess.Popen[str]:
        """Start the command `saccade ARGUMENTS` (or a script that wraps it) as a process."""
        program = [str(Path(__file__).with_name(driver))] if driver else ["-m", "saccade"]
        return subprocess.Popen(
            [sys.executable, *program, *arguments],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=preexec,
        )

    def run(self, *arguments: str, preexec: Any = None) -> tuple[int, str, str]:
        """Return exit code, stdout and stderr of `saccade ARGUMENTS`."""
        process = self.start(*arguments, preexec=preexec)
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    def train(self, name: str, *settings: str) -> list[str]:
        """Return the arguments that train a tiny run."""
        file, group, more = TASKS[self.task]
        arguments = ["train", file, "--task", self.task, "--name", name, "--quiet", "--json"]
        return [*arguments, *(f"{group}.{setting}" for setting in SMALL), *more, *LOOP, *settings]

    def tied(self) -> str:
        """Return the setting that ties the output layer to the embedding."""
        return f"{TASKS[self.task][1]}.tie_embeddings=true"

    def resume(self, name: str) -> list[str]:
        return ["resume", name, "--quiet", "--json"]


def temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="saccade-reliability-", ignore_cleanup_errors=True)


def differences(one: Path, other: Path) -> list[str]:
    """Return what differs between two finished runs: last step, tensors byte by byte, best score, logs, samples."""
    from saccade.runs import checkpoint

    steps = [checkpoint.steps(run / "checkpoints") for run in (one, other)]
    if not all(steps) or steps[0][-1] != steps[1][-1]:
        return [f"checkpoints {steps[0]} and {steps[1]}"]
    ends = [checkpoint.at(run / "checkpoints", steps[0][-1]) for run in (one, other)]
    names = [sorted(path.name for path in end.glob("*.safetensors")) for end in ends]
    result = [] if names[0] == names[1] else [f"files {names[0]} and {names[1]}"]
    result += [name for name in names[0] if (ends[0] / name).read_bytes() != (ends[1] / name).read_bytes()]
    result += [] if _best(ends[0]) == _best(ends[1]) else ["best score"]
    result += [] if log(one) == log(other) else ["metrics.jsonl"]
    samples = [(run / "samples.jsonl").read_bytes() for run in (one, other)]
    return result if samples[0] == samples[1] else [*result, "samples.jsonl"]


def log(run: Path) -> list[dict[str, Any]]:
    """Return the records of a run without the clock: losses, gradient norms, learning rates and metrics."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [{key: value for key, value in json.loads(line).items() if key not in CLOCKS} for line in lines]


def _best(end: Path) -> Any:
    return json.loads((end / "state.json").read_bytes())["best"]
