"""Memory and time to prepare a large file of pairs: tokenizers, validation split and tokens of 1,000,000 pairs.

python bench/prepare_pairs.py [--pairs 1000000]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

PAIRS = 1_000_000
LIMIT = 2.0  # GB of resident memory
WORDS = 20_000  # different words of each side
BLOCK = 10_000  # pairs written at once


@dataclass(frozen=True)
class Measurement:
    """What preparing took in a process of its own."""

    pairs: int
    seconds: float
    again_seconds: float
    """the same in the last process, which finds everything in the cache"""
    peak_gb: float
    """largest resident memory of a process"""


def generate(path: Path, pairs: int) -> None:
    """Write pairs of sentences of random words, about 60 bytes a side."""
    generator = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyzäöüß"
    words = ["".join(generator.choices(letters, k=generator.randint(2, 9))) for _ in range(WORDS)]
    cumulative = list(accumulate(1 / (rank + 1) for rank in range(WORDS)))  # as often as words of a language
    with path.open("w", encoding="utf-8") as stream:
        for first in range(0, pairs, BLOCK):
            lines = []
            for _ in range(min(BLOCK, pairs - first)):
                sentence = generator.choices(words, cum_weights=cumulative, k=generator.randint(5, 15))
                lines.append(f"{' '.join(sentence)}\t{' '.join(word[::-1] for word in reversed(sentence))}\n")
            stream.write("".join(lines))


def prepare(path: Path, assets: Path) -> None:
    """Prepare and load a translation task, and print the seconds and the peak of resident memory as JSON."""
    from saccade.core import Split
    from saccade.tasks.translation import Task

    config, start = Task.Config(), time.perf_counter()
    Task.prepare(config, path, assets)
    task = Task.open(config, assets)
    task.load_data(path)
    source = task.source(Split.TRAIN, 0)
    batches = [source.at(step) for step in range(10)]
    assert all(batch.count for step in batches for batch in step)
    seconds = time.perf_counter() - start
    scale = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
    print(json.dumps({"seconds": seconds, "peak_gb": peak / 1e9}))


def measure(pairs: int, runs: int = 2) -> Measurement:
    """Generate pairs, and prepare them in processes of their own, one after the other."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generate(folder / "pairs.tsv", pairs)
        environment = {**os.environ, "SACCADE_CACHE": str(folder / "cache")}
        results = []
        for number in range(runs):
            assets = folder / f"assets-{number}"
            assets.mkdir()
            command = [sys.executable, __file__, "--child", str(folder / "pairs.tsv"), str(assets)]
            process = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            results.append(json.loads(process.stdout))
    seconds = [result["seconds"] for result in results]
    return Measurement(pairs, seconds[0], seconds[-1], max(result["peak_gb"] for result in results))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--child", nargs=2, metavar=("DATA", "ASSETS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        prepare(*map(Path, arguments.child))
        return
    result = measure(arguments.pairs)
    times = f"{result.seconds:.1f} s, again from the cache {result.again_seconds:.1f} s"
    print(f"{result.pairs:,} pairs: {times}, at most {result.peak_gb:.2f} GB of memory (limit {LIMIT} GB)")
    if result.peak_gb > LIMIT:
        sys.exit(1)


if __name__ == "__main__":
    main()
