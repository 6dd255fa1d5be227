"""Two trainers: a run that is being trained is refused to others at any moment, and ends as if nobody had tried.

python tests/reliability/two_trainers.py               4 runs
python tests/reliability/two_trainers.py --count 20    the long form
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

from figures import Figure, print_figure
from folders import differences
from slow_save import slow_down
from tiny import Workspace, clear, newest, temporary

STEPS = 60
SETTINGS = [f"train.steps={STEPS}", "train.save_every=5", "train.evaluate_every=25", "train.average=0.9"]
TRIES = 3  # of others, while a run is being trained


def contend(workspace: Workspace, name: str, rng: random.Random) -> tuple[int, list[str]]:
    """Train a run while others try to train or replace it; return how many were refused, and what went wrong."""
    run, failures, refused = workspace.runs / name, [], 0
    first = workspace.start(*workspace.train(name, *SETTINGS), preexec=slow_down)
    for attempt in range(TRIES):
        step = rng.randint(STEPS * attempt // TRIES, STEPS * (attempt + 1) // TRIES - 5)
        while first.poll() is None and (newest(run) < step - step % 5 or not (run / "run.json").exists()):
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.1))
        replace = rng.random() < 0.3
        arguments = workspace.train(name, *SETTINGS) if replace else workspace.resume(name)
        code, _, err = workspace.run(*arguments)
        if first.poll() is not None:
            break  # it was over before the other one looked
        expected, text = (2, f"'{name}' exists") if replace else (5, f"process {first.pid};")
        if code != expected or not clear(err) or text not in err:
            failures.append(f"{arguments[0]}: exit {code}, expected {expected} and {text!r}: {err[-500:]}")
        refused += 1
    code, _, err = first.wait()
    if code:
        failures.append(f"the first trainer ended with {code}: {err[-500:]}")
    elif different := differences(run, workspace.runs / "whole"):
        failures.append(f"differs in {', '.join(different)}")
    return refused, failures


def race(workspace: Workspace, name: str) -> list[str]:
    """Resume a run twice at once: one of the two trains it to its end, the other one is refused."""
    run = workspace.runs / name
    child = workspace.start(*workspace.train(name, *SETTINGS))
    while child.poll() is None and newest(run) < 10:
        time.sleep(0.002)
    child.send(9)
    child.wait()
    both = [workspace.start(*workspace.resume(name), preexec=slow_down) for _ in range(2)]
    ends = [child.wait() for child in both]
    codes = sorted(code if code is not None else -1 for code, _, _ in ends)
    if codes != [0, 5]:
        return [f"two that start at once end with {codes}: {[err[-300:] for _, _, err in ends]}"]
    different = differences(run, workspace.runs / "whole")
    return [f"differs in {', '.join(different)}"] if different else []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=4, help="of runs, half of which two trainers start at once")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    good, refused = 0, 0
    with temporary() as folder:
        workspace = Workspace(Path(folder))
        code, _, err = workspace.run(*workspace.train("whole", *SETTINGS))
        if code:
            raise SystemExit(f"the run without others failed: {err}")
        for number in range(chosen.count):
            name = f"run-{number}"
            if number % 2:
                failures, refused = race(workspace, name), refused + 1
            else:
                count, failures = contend(workspace, name, random.Random(f"{chosen.seed}-{number}"))
                refused += count
            good += not failures
            for failure in failures:
                print(f"{name}: {failure}", file=sys.stderr)
    text = f"runs with several trainers: {refused} refused by the number of the first process, every file identical"
    return print_figure(Figure("two trainers", good, chosen.count, text, {"refused": refused}), chosen.json)


if __name__ == "__main__":
    sys.exit(main())
