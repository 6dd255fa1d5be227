"""Speed of training in two processes with one thread each, against one process with one thread, on the same batches.

python bench/distributed.py            on a quiet machine with two cores; under a minute
"""

import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SIZES = ["dim=256", "depth=4", "heads=4", "hidden=1024", "max_positions=128"]
SETTINGS = [*(f"model.{size}" for size in SIZES), "batch_size=16", "micro_batches=2", "data.tokenizer=characters"]
SKIPPED = 3  # first steps, in which memory is allocated


def write_text(path: Path) -> None:
    rng = random.Random(1)
    words = ["the", "a", "cat", "dog", "sat", "ran", "on", "under", "red", "blue", "house", "and", "then", "was", "not"]
    path.write_text("".join(" ".join(rng.choices(words, k=9)) + ".\n" for _ in range(4000)))


def seconds_of_steps(folder: Path, name: str, processes: int, steps: int, settings: list[str]) -> tuple[float, float]:
    """Return the median seconds of a step and the loss of the last one."""
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)] if processes > 1 else []
    common = ["train.device=cpu", f"train.steps={steps}", f"train.evaluate_every={steps}", *SETTINGS, *settings]
    command = [sys.executable, *launcher, "-m", "saccade", "train", "text.txt", "--task", "language_model", "--quiet"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "SACCADE_CACHE": str(folder / "c")}
    cores = sorted(os.sched_getaffinity(0))[:processes]
    subprocess.run(
        [*command, "--name", name, *common],
        cwd=folder,
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    lines = (folder / "runs" / name / "metrics.jsonl").read_text().splitlines()
    records = [record for record in map(json.loads, lines) if "lr_scale" in record]
    clock = [record["seconds"] for record in records][SKIPPED:]
    return statistics.median(b - a for a, b in itertools.pairwise(clock)), records[-1]["loss"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=25)
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_text(folder / "text.txt")
        one, loss = seconds_of_steps(folder, "one", 1, steps, [])
        print(
            f"1 process,   1 thread, 1 core:           {one * 1000:6.1f} ms a step, loss {loss:.6f} after {steps} steps"
        )
        for parallel in ("ddp", "fsdp"):
            two, loss = seconds_of_steps(folder, parallel, 2, steps, [f"train.parallel={parallel}"])
            label = f"2 processes, 1 thread each, 2 cores, {parallel}:"
            print(f"{label:<42} {two * 1000:6.1f} ms a step, loss {loss:.6f}; {one / two:.2f} times as fast")


if __name__ == "__main__":
    main()
