"""Damaged checkpoints: flips bits, cuts, deletes, swaps; each must be noticed by file, and resuming must fall back.

python tests/reliability/damage.py --count 200
"""

import argparse
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tiny import Workspace, differences, temporary

STEPS, EVERY, KEEP = 20, 5, 3
COMMANDS = 3  # of the cases, how many also go through the real command


def flip(file: Path, rng: random.Random) -> list[Path]:
    """Change one bit."""
    data = bytearray(file.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)
    return [file]


def cut(file: Path, rng: random.Random) -> list[Path]:
    """Lose the end."""
    data = file.read_bytes()
    file.write_bytes(data[: rng.randrange(1, len(data))])
    return [file]


def empty(file: Path, rng: random.Random) -> list[Path]:
    """Lose everything but the name."""
    file.write_bytes(b"")
    return [file]


def delete(file: Path, rng: random.Random) -> list[Path]:
    file.unlink()
    return [file]


def append(file: Path, rng: random.Random) -> list[Path]:
    """Gain bytes at the end."""
    with file.open("ab") as stream:
        stream.write(rng.randbytes(rng.randint(1, 64)))
    return [file]


def swap(file: Path, rng: random.Random) -> list[Path]:
    """Exchange two files."""
    other = rng.choice([path for path in sorted(file.parent.iterdir()) if path != file])
    one, two = file.read_bytes(), other.read_bytes()
    file.write_bytes(two)
    other.write_bytes(one)
    return [file, other]


def zero(file: Path, rng: random.Random) -> list[Path]:
    """Lose a block, as a disk does."""
    data = bytearray(file.read_bytes())
    start = rng.randrange(len(data))
    block = len(data[start : start + 512])
    data[start : start + 512] = bytes(block) if any(data[start : start + 512]) else b"\xff" * block
    file.write_bytes(data)
    return [file]


WAYS: list[Callable[[Path, random.Random], list[Path]]] = [flip, cut, empty, delete, append, swap, zero]


def damage(folder: Path, rng: random.Random, way: int) -> tuple[str, list[Path]]:
    """Damage a random file of a checkpoint; what was done and to which files."""
    act = WAYS[way % len(WAYS)]
    file = rng.choice(sorted(folder.iterdir()))
    return f"{act.__name__} {file.name}", act(file, rng)


def one_case(checkpoints: Path, rng: random.Random, way: int, depth: int) -> tuple[bool, bool, str]:
    """Damage the newest `depth` checkpoints: whether each was noticed by file, and the one before them was taken."""
    from saccade.errors import ModelFileError
    from saccade.runs import checkpoint

    steps, messages = checkpoint.steps(checkpoints), []
    damaged = [damage(checkpoint.at(checkpoints, step), rng, way) for step in steps[-depth:]]
    description = f"{[what for what, _ in damaged]}"
    try:
        result = checkpoint.newest(checkpoints, messages.append)
        fell = result is not None and depth < len(steps) and result.step == steps[-depth - 1]
    except ModelFileError as error:
        fell = depth == len(steps) and f"all {depth} checkpoints" in str(error) and error.exit_code == 4
        description += f" {error}"
    noticed = all(
        any(f"step {step} is damaged" in line and any(str(file) in line for file in files) for line in messages)
        for step, (_, files) in zip(steps[-depth:], damaged, strict=True)
    )
    return noticed, fell, f"{description}: {messages}"


def in_process(workspace: Workspace, run: Path, count: int, rng: random.Random) -> tuple[int, int, list[str]]:
    """Many cases through the functions that resume uses."""
    noticed = fell = 0
    failures = []
    for number in range(count):
        with tempfile.TemporaryDirectory(dir=workspace.folder) as spare:
            copy = Path(spare) / "checkpoints"
            shutil.copytree(run / "checkpoints", copy)
            depth = 1 if number % 5 else 2 + number // 5 % (KEEP - 1)
            saw, went, description = one_case(copy, rng, number, depth)
        noticed, fell = noticed + saw, fell + went
        failures += [] if saw and went else [description]
    return noticed, fell, failures


def through_the_command(workspace: Workspace, rng: random.Random) -> list[str]:
    """A few cases with `saccade resume`: it falls back, logs it, ends the same; with nothing left it exits with 4."""
    from saccade.runs import checkpoint

    failures, reference = [], workspace.runs / "reference"
    for number in range(COMMANDS):
        run = workspace.runs / f"copy-{number}"
        shutil.copytree(reference, run)
        steps = checkpoint.steps(run / "checkpoints")
        last = number == COMMANDS - 1
        for step in steps if last else steps[-1 - number :]:
            damage(checkpoint.at(run / "checkpoints", step), rng, number)
        code, _, err = workspace.run("resume", run.name)
        logged = len(re.findall(r"step \d+ is damaged: .*(safetensors|json)", err))
        if last:
            right = code == 4 and f"saccade: all {len(steps)} checkpoints in" in err and "Traceback" not in err
        else:
            right = code == 0 and logged == number + 1 and not differences(run, reference)
        failures += [] if right else [f"resume of {run.name}: exit {code}: {err}"]
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    rng = random.Random(chosen.seed)
    with temporary() as folder:
        workspace = Workspace(Path(folder))
        settings = [f"train.steps={STEPS}", f"train.save_every={EVERY}", "train.average=0.9", f"train.keep={KEEP}"]
        code, _, err = workspace.run(*workspace.train("reference", *settings, f"train.evaluate_every={STEPS}"))
        if code:
            raise SystemExit(f"the run to be damaged failed: {err}")
        noticed, fell, failures = in_process(workspace, workspace.runs / "reference", chosen.count, rng)
        failures += through_the_command(workspace, rng)
    print(*failures, sep="\n", end="\n" if failures else "")
    print(f"{noticed}/{chosen.count} damaged checkpoints noticed, {fell}/{chosen.count} fell back")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
