"""Full disks at random moments: each ends with exit code 5 and one message, and no checkpoint is lost.

python tests/reliability/disk.py                8 full disks, and outputs on one
python tests/reliability/disk.py --count 100    the long form

A limit on the size of files, or a real small disk that fills up, meets a run while it is prepared, logs, evaluates and
saves. Afterwards what was saved can be evaluated, and the resumed run must end with the same files as one with enough
space, byte by byte. Where no small disk can be mounted, all of them are limits.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from figures import Figure, print_figure
from folders import differences
from processes import Child
from tiny import Workspace, clear, newest, temporary

STEPS = 60
SETTINGS = [f"train.steps={STEPS}", "train.save_every=5", "train.evaluate_every=25", "train.average=0.9"]
SMALLEST = 2000  # bytes of a limit: the message itself is written to a file
REASONS = re.compile("no space left|cannot write|File too large|MB free")


def expect(what: str, found: bool, shown: object) -> list[str]:
    """Nothing, or a failure with what was seen."""
    return [] if found else [f"{what}: {shown}"]


def within(workspace: Workspace, path: Path) -> str:
    """Return a path as the commands get it: the card of a run shows it."""
    return str(path.relative_to(workspace.folder))


def train(workspace: Workspace, run: Path) -> list[str]:
    """Return the arguments that train a run, or resume what is there of it."""
    if (run / "run.json").exists():
        return workspace.resume(within(workspace, run))
    return [*workspace.train(run.name, *SETTINGS), "--runs", within(workspace, run.parent)]


def start(workspace: Workspace, run: Path, step: int) -> Child:
    """A training process that has passed a step."""
    process = workspace.start(*train(workspace, run))
    while process.poll() is None and newest(run) < step:
        time.sleep(0.002)
    return process


def whole_and_same(workspace: Workspace, run: Path, before: int) -> list[str]:
    """After trouble: nothing saved is lost, and the run ends as if there had been no trouble."""
    failures = expect("the newest checkpoint is still there", newest(run) >= before, (newest(run), before))
    failures += expect("nothing half written", not list(run.rglob("*.tmp/*")), run.name)
    if newest(run):
        code, out, err = workspace.run("evaluate", within(workspace, run), "--json")
        failures += expect("evaluate after trouble", code == 0 and '"loss"' in out, err)
    code, _, err = workspace.run(*train(workspace, run))
    failures += expect("resume after trouble", code == 0, err)
    different = [] if code else differences(run, workspace.runs / "whole")
    return failures + expect("same end", not different, different)


def limited(workspace: Workspace, run: Path, rng: random.Random, *, resumed: bool) -> list[str]:
    """Train, or kill and resume, with a limit on the size of files that the optimizer does not fit into."""
    if resumed:
        process = start(workspace, run, rng.randrange(5, 45))
        process.send(signal.SIGKILL)
        process.wait()
    whole = workspace.runs / "whole" / "checkpoints" / f"step-{STEPS:06d}"
    largest = (whole / "optimizer.safetensors").stat().st_size
    size, before = int(SMALLEST * (largest / SMALLEST) ** rng.random()), newest(run)
    preexec = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))  # noqa: E731
    code, _, err = workspace.run(*train(workspace, run), preexec=preexec)
    right = code == 5 and clear(err) and REASONS.search(err) is not None
    failures = expect(f"files of at most {size} bytes: exit 5 and a message", right, (code, err))
    return failures + whole_and_same(workspace, run, before)


def fill(filler: Path, room: int = 0) -> None:
    """Fill a disk, but for some bytes."""
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as stream:
        while True:
            stream.write(bytes(4096))
    with filler.open("r+b") as stream:
        stream.truncate(max(0, filler.stat().st_size - room))


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """A disk of a few megabytes; False where that is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    mounted = shutil.which("mount") is not None and subprocess.run(mount, capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True, capture_output=True)


def filled(workspace: Workspace, run: Path, rng: random.Random) -> list[str]:
    """A small disk fills up at a random moment; too little space is refused before the first step."""
    filler, room, step = (
        run.with_name("filler"),
        int(rng.choice((0, 0, 1, 20)) * 1000 * rng.random()),
        rng.randrange(5, 45),
    )
    process = start(workspace, run, step)
    fill(filler, room)
    code, _, err = process.wait()
    right = code == 5 and clear(err) and REASONS.search(err) is not None
    failures = expect(f"a full disk with {room} bytes left", right, (code, err))
    before = newest(run)
    failures += expect("a checkpoint is there", before >= step, (before, step))
    code, _, err = workspace.run(*train(workspace, run))
    refused = re.search(r"must have ([\d.]+) MB free for \d checkpoints?, but has ([\d.]+) MB", err)
    right = code == 5 and clear(err) and refused is not None and float(refused[1]) > float(refused[2])
    failures += expect("too little space is refused with both numbers", right, (code, err))
    filler.unlink()
    failures += whole_and_same(workspace, run, before)
    shutil.rmtree(run)
    return failures


def outputs(workspace: Workspace) -> list[str] | None:
    """Exports, figures and comparisons on a full disk: exit 5, one message, and nothing is left. None: no disk."""
    disk, name = workspace.folder / "outputs", "to-export"
    settings = ["--preset", "bert-tiny", "--steps", "1", "vocabulary_size=60", "max_length=32", "batch_tokens=64"]
    code, _, err = workspace.run("train", "text.txt", "--task", "masked_language_model", "--name", name, *settings)
    if code:
        return [f"the run to export failed: {err}"]
    with small_disk(disk) as mounted:
        if not mounted:
            return None
        failures, filler = [], disk / "filler"
        for room in (0, 20_000):  # not a byte; enough for the first small files
            fill(filler, room)
            for arguments in (
                ["export", name, str(disk / "exported")],
                ["look", name, "the [MASK] sat", "--out", str(disk / "figure.html")],
                ["compare", "pairs.tsv", "--models", "rnn", "--runs", str(disk / "runs"), "train.steps=2", "--quiet"],
            ):
                code, _, err = workspace.run(*arguments)
                failures += expect(f"{arguments[0]}: exit 5 and a message", code == 5 and clear(err), (code, err))
                left = [path for path in disk.rglob("*") if path != filler and path != disk / "runs"]
                failures += expect(f"{arguments[0]}: nothing is left", not left, left)
            filler.unlink()
    return failures


def check(workspace: Workspace, number: int, seed: int, disk: Path | None) -> tuple[str, list[str]]:
    """Fill a disk for one run; return the kind of it, and what is not as promised."""
    rng, name = random.Random(f"{seed}-{number}"), f"run-{number}"
    if number % 3 == 2 and disk is not None:
        return "small disk", filled(workspace, disk / name, rng)
    resumed = number % 3 > 0
    failures = limited(workspace, workspace.runs / name, rng, resumed=resumed)
    return "limit after a kill" if resumed else "limit from the start", failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    good, kinds = 0, Counter[str]()
    with temporary() as folder:
        workspace = Workspace(Path(folder))
        code, _, err = workspace.run(*workspace.train("whole", *SETTINGS))
        if code:
            raise SystemExit(f"the run with enough space failed: {err}")
        with small_disk(workspace.folder / "disk") as mounted:
            if not mounted:
                print("a small disk cannot be mounted here: only limits on file sizes are checked", file=sys.stderr)
            for number in range(chosen.count):
                kind, failures = check(workspace, number, chosen.seed, workspace.folder / "disk" if mounted else None)
                kinds[kind] += 1
                good += not failures
                print(*(f"run-{number}: {kind}: {line}" for line in failures), sep="\n", end="\n" if failures else "")
        total = chosen.count
        if (failures := outputs(workspace)) is not None:
            total, good = total + 1, good + (not failures)
            kinds["exports, figures and comparisons"] += 1
            print(*failures, sep="\n", end="\n" if failures else "")
    listed = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    text = f"full disks ({listed}): exit 5, one message, no checkpoint lost, resumed runs identical"
    return print_figure(Figure("disk full", good, total, text, dict(kinds)), chosen.json)


if __name__ == "__main__":
    sys.exit(main())
