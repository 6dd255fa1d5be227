"""Numbers that are not finite, in every task: the run stops with step, rows and parameter; its checkpoints stay good.

python tests/reliability/not_finite.py                8 runs
python tests/reliability/not_finite.py --count 100    the long form

A weight, a gradient, a loss or an update becomes NaN or infinite at a random step. The process must end with exit code
1 and one message; the newest checkpoint must be finite; without the fault the run must resume and end with the same
files as one that never had it, byte by byte.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import re
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import processes
from figures import Figure, print_figure
from folders import differences
from kill import TRIALS, Agent, Tally, Trial, Victim, prepare
from tiny import ROOT, clear, newest, temporary  # first: it makes the packages importable

STEPS = 20
WAYS = ("weight", "gradient", "loss", "update")
MESSAGE = re.compile(
    r"step (\d+): .* is .*, expected a finite number; rows: \S.*; "
    r"first not finite: (parameter|the gradient of) ([\w.]+)\. ",
    re.DOTALL,
)


def plant(way: str, step: int, seed: str) -> None:
    """Patch this process so that a number is not finite at a step."""
    from saccade.training import loop

    rng = random.Random(seed)
    value = rng.choice((math.nan, math.inf, -math.inf))
    train_step = loop.Trainer._train_step

    def faulty(trainer: Any) -> dict[str, Any]:
        if trainer.step + 1 == step:
            network = rng.choice(sorted(trainer.networks))
            FAULTS[way](trainer, network, value, rng)
        return train_step(trainer)

    loop.Trainer._train_step = faulty  # type: ignore[method-assign]


def bad_weight(trainer: Any, network: str, value: float, rng: random.Random) -> None:
    _choose(trainer, network, rng).data.fill_(value)


def bad_gradient(trainer: Any, network: str, value: float, rng: random.Random) -> None:
    _choose(trainer, network, rng).register_hook(lambda gradient: gradient * value)


def bad_loss(trainer: Any, network: str, value: float, rng: random.Random) -> None:
    losses = trainer.task.losses

    def faulty(*arguments: Any) -> Any:
        for name, loss in losses(*arguments):
            yield name, loss * value if name == network else loss

    trainer.task.losses = faulty


def bad_update(trainer: Any, network: str, value: float, rng: random.Random) -> None:
    for optimizer in trainer.optimizers[network]:
        for group in optimizer.param_groups:
            group["peak_lr"] = value


FAULTS: dict[str, Callable[[Any, str, float, random.Random], None]] = dict(
    zip(WAYS, (bad_weight, bad_gradient, bad_loss, bad_update), strict=True)
)


def _choose(trainer: Any, network: str, rng: random.Random) -> Any:
    """Return a parameter that is trained."""
    named = [value for value in trainer.networks[network].parameters() if value.requires_grad]
    return rng.choice(named)


def is_finite(checkpoint: Path) -> bool:
    """Whether every number of a checkpoint is finite."""
    from safetensors.torch import load_file

    tensors = [value for path in checkpoint.glob("*.safetensors") for value in load_file(path).values()]
    return all(bool(value.isfinite().all()) for value in tensors if value.is_floating_point())


def stop(folder: Path, trial: Trial, way: str, rng: random.Random) -> list[str]:
    """Train a run with a fault; return what is not as promised."""
    victim, failures = Victim(folder, trial, "faulty", rng, Tally(), Agent()), []
    step = rng.randint(2, STEPS)
    child = processes.start(victim.arguments(), folder, partial(plant, way, step, f"{rng.random()}"))
    code, _, err = child.wait(300)
    message = MESSAGE.search(err)
    if code != 1 or not clear(err) or message is None:
        failures.append(f"exit {code}: {err[-700:]}")
    elif not step <= int(message[1]) <= max(step + 1, step + -step % 5):  # at the latest where it would be saved
        failures.append(f"step {message[1]}, expected {step} to the next save: {err[-300:]}")
    saved = victim.run / "checkpoints" / f"step-{newest(victim.run):06d}"
    if newest(victim.run) >= step or (newest(victim.run) and not is_finite(saved)):
        failures.append(f"the checkpoint of step {newest(victim.run)} is not from before the fault, or not finite")
    victim.finish()
    failures += victim.tally.failures
    if not failures and (different := differences(victim.run, folder / "reference" / trial.name)):
        failures.append(f"differs in {', '.join(different)}")
    return [f"{trial.name}: {way} at step {step}: {failure}" for failure in failures]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    os.chdir(ROOT)
    trials = [Trial(trial.name, trial.task, steps=STEPS) for trial in TRIALS.values() if not trial.settings]
    good, ways, tasks = 0, Counter[str](), set()
    with temporary() as name:
        folder = Path(name)
        used = trials[: chosen.count]
        prepare(folder, used)
        for number in range(chosen.count):
            trial, way = trials[number % len(trials)], WAYS[(number + number // len(trials)) % len(WAYS)]
            if not (folder / "reference" / trial.name).exists():
                reference = Victim(folder, trial, "reference", random.Random(), Tally(), Agent())
                reference.finish()
                if reference.tally.failures:
                    raise SystemExit(f"the run without a fault failed: {reference.tally.failures}")
            (folder / "faulty").mkdir(exist_ok=True)
            failures = stop(folder, trial, way, random.Random(f"{chosen.seed}-{number}"))
            print(*failures, sep="\n", end="\n" if failures else "", file=sys.stderr)
            good, _ = good + (not failures), tasks.add(trial.task)
            ways[way] += 1
            _rename(folder / "faulty" / trial.name, folder / f"done-{number}")
    listed = ", ".join(f"{count} in a {way}" for way, count in ways.items())
    text = (
        f"runs of {len(tasks)} tasks stopped by a number that is not finite ({listed}), with step, rows and parameter; "
        "the last checkpoint is finite, resumed runs are identical"
    )
    return print_figure(Figure("not finite", good, chosen.count, text, dict(ways)), chosen.json)


def _rename(run: Path, target: Path) -> None:
    """Make room for the next run of the same name."""
    if run.exists():
        run.rename(target)


if __name__ == "__main__":
    sys.exit(main())
