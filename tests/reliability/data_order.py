"""Data order: the batches of every task are the same, bit by bit, whoever prepares them and in whatever order.

python tests/reliability/data_order.py               8 steps of each task
python tests/reliability/data_order.py --steps 40    the long form

Compared are batches that the training thread prepares (0 workers), that one thread prefetches (1), and that four
threads prepare at once in a random order (4). An environment is stepped in order, and never by threads: it is compared
with a second one from the same seed. Of two ranks, which read the data each by itself, the parts of a step together are
compared with the micro-batches of one rank; a step that is not divided must be the same in both.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import dataclasses
import hashlib
import os
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from figures import Figure, print_figure
from tiny import ROOT, temporary  # first: it makes the packages importable

from saccade import api
from saccade.core import Batch, Source, Split, Task
from saccade.tasks import load_task
from saccade.training.parallel import DataParallel, OneProcess
from saccade.training.prefetch import Prefetcher
from tests.tasks.battery import NAMES, Trial

THREADS = 4
RANKS = 2


def open_task(name: str, folder: Path) -> Task:
    """Return a task with its data loaded."""
    trial, task_class = Trial.of(name), load_task(name)
    folder.mkdir()
    data = trial.write_data(folder)
    config, _ = api.configure(task_class, trial.settings)
    (folder / "assets").mkdir()
    task_class.prepare(config, data, folder / "assets")
    task = task_class.open(config, folder / "assets")
    task.load_data(data)
    return task


def parts(value: Any) -> Iterator[bytes]:
    """Yield the content of a batch: tensors, texts and numbers, with their types and shapes."""
    if isinstance(value, torch.Tensor):
        yield f"{value.dtype} {tuple(value.shape)}".encode()
        yield value.detach().cpu().reshape(-1).numpy().tobytes()
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape}".encode() + value.tobytes()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield field.name.encode()
            yield from parts(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for name, entry in value.items():
            yield repr(name).encode()
            yield from parts(entry)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        yield f"{len(value)} of".encode()
        for entry in value:
            yield from parts(entry)
    else:
        yield repr(value).encode()


def digest(batches: Sequence[Batch]) -> str:
    """Return the hash of the batches of a step."""
    total = hashlib.sha256()
    for part in parts([(batch, list(batch.rows)) for batch in batches]):
        total.update(part)
    return total.hexdigest()


def orders(task: Task, steps: int, seed: int) -> dict[str, list[str]]:
    """Return the hashes of the first steps for each number of workers."""
    torch.manual_seed(seed)
    source = task.source(Split.TRAIN, seed)
    hashes = {"0 workers": [digest(source.at(step)) for step in range(steps)]}
    torch.manual_seed(seed)
    with Prefetcher(task.source(Split.TRAIN, seed), torch.device("cpu"), ahead=True) as ahead:
        hashes["1 worker"] = [digest(ahead.at(step)) for step in range(steps)]
    source = task.source(Split.TRAIN, seed)
    if source.state() is None:
        hashes["4 workers"] = in_threads(source, steps, seed)
    return hashes


def in_threads(source: Source, steps: int, seed: int) -> list[str]:
    """Return the hashes of steps that several threads prepare in a random order."""
    shuffled = random.Random(seed).sample(range(steps), steps)
    with ThreadPoolExecutor(THREADS) as pool:
        hashes = dict(zip(shuffled, pool.map(lambda step: digest(source.at(step)), shuffled), strict=True))
    return [hashes[step] for step in range(steps)]


def divided(task: Task, steps: int, seed: int) -> tuple[bool, bool]:
    """Return whether two ranks compute the micro-batches of one rank, each once, and whether they divide them."""
    task = copy.copy(task)
    if hasattr(task.config, "micro_batches"):  # as the command does under torchrun
        with contextlib.suppress(ValueError):
            task.config = dataclasses.replace(task.config, micro_batches=RANKS)
    sources = []
    for _ in range(1 + RANKS):
        torch.manual_seed(seed)
        sources.append(task.source(Split.TRAIN, seed))
    ranks = [DataParallel({}, SimpleNamespace(rank=rank, size=RANKS), shared=True) for rank in range(RANKS)]  # type: ignore[arg-type]
    shared = False
    for step in range(steps):
        whole, *several = [
            {part.number: (digest([part.batch]), part.weight) for part in rank.parts(source.at(step)) if part.weight}
            for rank, source in zip([OneProcess({}), *ranks], sources, strict=True)
        ]
        shared = shared or len(whole) > 1
        union = {number: part for parts in several for number, part in parts.items()}
        if union != whole or sum(map(len, several)) != (len(whole) if len(whole) > 1 else RANKS):
            return False, shared
    return True, shared


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tasks", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    os.chdir(ROOT)
    good, environments, shared = 0, 0, 0
    with temporary() as folder:
        os.environ["SACCADE_CACHE"] = str(Path(folder) / "cache")
        for name in chosen.tasks:
            task = open_task(name, Path(folder) / name)
            hashes = orders(task, chosen.steps, chosen.seed)
            equal, several = divided(task, chosen.steps, chosen.seed)
            different = [key for key, of_steps in hashes.items() if of_steps != hashes["0 workers"]]
            different += [] if equal else [f"{RANKS} ranks"]
            shared += several
            varied = len(set(hashes["0 workers"])) > 1  # a source that gives one batch again and again proves nothing
            environments += len(hashes) == 2
            good += varied and not different
            if different or not varied:
                print(f"{name}: differs with {', '.join(different) or 'nothing: one batch only'}", file=sys.stderr)
    text = (
        f"tasks: the batches of {chosen.steps} steps identical for 0, 1 and {THREADS} workers "
        f"({environments} of them in environments, which are stepped in order: 0 and 1), and for 1 and {RANKS} ranks "
        f"(of {shared} tasks divided between them)"
    )
    return print_figure(Figure("data order", good, len(chosen.tasks), text), chosen.json)


if __name__ == "__main__":
    sys.exit(main())
