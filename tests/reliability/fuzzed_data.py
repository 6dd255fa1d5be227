"""Fuzzed data files: changes valid data sets of every format by chance, and reads each as training does.

python tests/reliability/fuzzed_data.py                  300 files
python tests/reliability/fuzzed_data.py --count 10000    the long form
python tests/reliability/fuzzed_data.py --case 4711      one again, with its message

Each is read into batches, or refused with an error that names the file and the rule. A crash, a hang, output of a
library, a message without the file or with the names of Python's errors is a failure. Some go through the command, too.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import fuzzing
import processes
from data_sets import DataSet, data_sets
from figures import Figure, print_figure

from tests.tasks.battery import Trial

PLACE = "set-7f3e"  # name of the folder of the data: an error that contains it, or the name of a file, names the data
COMMANDS = 200  # one case of so many goes through the command as well


def overrides(task: str) -> list[str]:
    """Return tiny settings of a task, without those of the environment that data of other sizes do not fit."""
    return [entry for entry in Trial.of(task).settings if not entry.startswith(("environment=", "episodes="))]


def read(case: dict[str, Any]) -> None:
    """Read data to the first batches, as training does."""
    from saccade import api
    from saccade.core import Split
    from saccade.tasks import guess_task, load_task

    warnings.simplefilter("ignore")
    data, folder = Path(case["data"]), Path(case["folder"])
    os.environ["SACCADE_CACHE"] = str(folder / "cache")
    task = guess_task(data) if case["guess"] else case["task"]
    task_class = load_task(task)
    config, _ = api.configure(task_class, [*overrides(task), *(case["settings"] if task == case["task"] else [])])
    assets = folder / "assets"
    shutil.rmtree(assets, ignore_errors=True)
    assets.mkdir()
    task_class.prepare(config, data, assets)
    opened = task_class.open(config, assets)
    opened.load_data(data)
    for split in Split:
        opened.source(split, 1).at(0)


class Cases:
    """Cases by their numbers, in a temporary folder."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self.sets = data_sets(folder / "sets")

    def write(self, data_set: DataSet, place: Path, *, guess: bool = False) -> dict[str, Any]:
        """Write valid files, and return what `read` needs."""
        shutil.rmtree(place, ignore_errors=True)
        for name, content in data_set.files.items():
            path = place / PLACE / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        data = place / PLACE / data_set.given if data_set.given else place / PLACE
        return {
            "data": str(data),
            "folder": str(place),
            "task": data_set.task,
            "guess": guess,
            "settings": data_set.settings,
        }

    def make(self, number: int) -> tuple[DataSet, dict[str, Any], str]:
        """Return the data set that a case is made of, the case, and what was changed."""
        rng = random.Random(f"{self.seed}-{number}")
        data_set = self.sets[number % len(self.sets)]
        case = self.write(data_set, self.folder / "case", guess=rng.random() < 0.3)
        return data_set, case, fuzzing.damage_tree(rng, Path(case["folder"]) / PLACE, list(data_set.files))

    def valid(self) -> list[dict[str, Any]]:
        """Write every valid data set in a place of its own."""
        return [self.write(each, self.folder / "valid" / str(number)) for number, each in enumerate(self.sets)]


def run_command(case: dict[str, Any]) -> str:
    """Train for a step with the command; return what is wrong, if anything."""
    arguments = ["train", case["data"], "--task", case["task"], "--runs", "runs", "--quiet", "--name", "fuzzed"]
    settings = [*overrides(case["task"]), *case["settings"], "train.steps=1", "train.device=cpu"]
    code, _, err = processes.run([*arguments, *settings], Path(case["folder"]), 300)
    ours = len(re.findall("^saccade: ", err, re.MULTILINE))
    if code not in (0, 1, 2, 3, 4, 5) or "Traceback" in err or (code and ours != 1):
        return f"the command ends with {code}: {err[-1500:]}"
    return ""


def run(count: int, seed: int, first: int = 0) -> tuple[fuzzing.Tally, int]:
    """Read `count` changed data sets; return the tally, and how many went through the command."""
    tally, commands = fuzzing.Tally.new(), 0
    fuzzing.preload()
    with tempfile.TemporaryDirectory(prefix="saccade-fuzz-", ignore_cleanup_errors=True) as folder:
        cases = Cases(Path(folder), seed)
        worker = fuzzing.Worker(read, cases.valid())
        try:
            for number in range(first, first + count):
                data_set, case, what = cases.make(number)
                names = [PLACE, *(Path(name).name for name in data_set.files)]
                outcome = worker.run(case, names)
                label = f"case {number}: {data_set.name}: {what}"
                if number % COMMANDS == COMMANDS - 1 and not outcome.failed:
                    commands += 1
                    if wrong := run_command(case):
                        outcome = fuzzing.Outcome("crash", wrong, outcome.seconds)
                tally.add(label, data_set.name, outcome)
                if count == 1:
                    print(label, outcome, sep="\n", file=sys.stderr)
        finally:
            worker.close()
    return tally, commands


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int, help="read this one alone")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    single = chosen.case is not None
    tally, commands = run(1 if single else chosen.count, chosen.seed, chosen.case if single else 0)
    figures = {**tally.figures(), "also through the command": commands}
    counts = ", ".join(f"{figures[name]:,} {name}" for name in ("read", "refused", *fuzzing.FAULTS.values()))
    text = f"{counts}; {figures['kinds']} formats, {commands} also through the command"
    return print_figure(Figure("data files", figures.pop("good"), figures.pop("total"), text, figures), chosen.json)


if __name__ == "__main__":
    sys.exit(main())
