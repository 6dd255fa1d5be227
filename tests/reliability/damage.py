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

from tiny import Place, differences, temporary

STEPS, EVERY, KEEP = 20, 5, 3
COMMANDS = 3  # of the cases, how many also go through the real command


def flip(file: Path, chance: random.Random) -> list[Path]:
    """Change one bit."""
    data = bytearray(file.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    file.write_bytes(data)
    return [file]


def cut(file: Path, chance: random.Random) -> list[Path]:
    """Lose the end."""
    data = file.read_bytes()
    file.write_bytes(data[: chance.randrange(1, len(data))])
    return [file]


def empty(file: Path, chance: random.Random) -> list[Path]:
    """Lose everything but the name."""
    file.write_bytes(b"")
    return [file]


def delete(file: Path, chance: random.Random) -> list[Path]:
    file.unlink()
    return [file]


def append(file: Path, chance: random.Random) -> list[Path]:
    """Gain bytes at the end."""
    with file.open("ab") as stream:
        stream.write(chance.randbytes(chance.randint(1, 64)))
    return [file]


def swap(file: Path, chance: random.Random) -> list[Path]:
    """Exchange two files."""
    other = chance.choice([path for path in sorted(file.parent.iterdir()) if path != file])
    one, two = file.read_bytes(), other.read_bytes()
    file.write_bytes(two)
    other.write_bytes(one)
    return [file, other]


def zero(file: Path, chance: random.Random) -> list[Path]:
    """Lose a block, as a disk does."""
    data = bytearray(file.read_bytes())
    start = chance.randrange(len(data))
    block = len(data[start : start + 512])
    data[start : start + 512] = bytes(block) if any(data[start : start + 512]) else b"\xff" * block
    file.write_bytes(data)
    return [file]


WAYS: list[Callable[[Path, random.Random], list[Path]]] = [flip, cut, empty, delete, append, swap, zero]


def spoil(folder: Path, chance: random.Random, way: int) -> tuple[str, list[Path]]:
    """Damage a random file of a checkpoint; what was done and to which files."""
    act = WAYS[way % len(WAYS)]
    file = chance.choice(sorted(folder.iterdir()))
    return f"{act.__name__} {file.name}", act(file, chance)


def one_case(checkpoints: Path, chance: random.Random, way: int, depth: int) -> tuple[bool, bool, str]:
    """Damage the newest `depth` checkpoints: whether each was noticed by file, and the one before them was taken."""
    from saccade.errors import ModelFileError
    from saccade.runs import checkpoint

    known, told = checkpoint.steps(checkpoints), []
    spoilt = [spoil(checkpoint.at(checkpoints, step), chance, way) for step in known[-depth:]]
    says = f"{[what for what, _ in spoilt]}"
    try:
        found = checkpoint.newest(checkpoints, told.append, ("model", "optimizer"))
        fell = found is not None and depth < len(known) and found.step == known[-depth - 1]
    except ModelFileError as error:
        fell = depth == len(known) and f"all {depth} checkpoints" in str(error) and error.exit_code == 4
        says += f" {error}"
    noticed = all(
        any(f"step {step} is damaged" in line and any(str(file) in line for file in files) for line in told)
        for step, (_, files) in zip(known[-depth:], spoilt, strict=True)
    )
    return noticed, fell, f"{says}: {told}"


def in_process(place: Place, run: Path, count: int, chance: random.Random) -> tuple[int, int, list[str]]:
    """Many cases through the functions that resume uses."""
    noticed = fell = 0
    complaints = []
    for number in range(count):
        with tempfile.TemporaryDirectory(dir=place.folder) as spare:
            copy = Path(spare) / "checkpoints"
            shutil.copytree(run / "checkpoints", copy)
            depth = 1 if number % 5 else 2 + number // 5 % (KEEP - 1)
            saw, went, says = one_case(copy, chance, number, depth)
        noticed, fell = noticed + saw, fell + went
        complaints += [] if saw and went else [says]
    return noticed, fell, complaints


def through_the_command(place: Place, chance: random.Random) -> list[str]:
    """A few cases with `saccade resume`: it falls back, says so, ends the same; with nothing left it exits with 4."""
    from saccade.runs import checkpoint

    complaints, reference = [], place.runs / "reference"
    for number in range(COMMANDS):
        run = place.runs / f"copy-{number}"
        shutil.copytree(reference, run)
        known = checkpoint.steps(run / "checkpoints")
        last = number == COMMANDS - 1
        for step in known if last else known[-1 - number :]:
            spoil(checkpoint.at(run / "checkpoints", step), chance, number)
        code, _, err = place.run("resume", run.name)
        said = len(re.findall(r"step \d+ is damaged: .*(safetensors|json)", err))
        if last:
            right = code == 4 and f"saccade: all {len(known)} checkpoints in" in err and "Traceback" not in err
        else:
            right = code == 0 and said == number + 1 and not differences(run, reference)
        complaints += [] if right else [f"resume of {run.name}: exit {code}: {err}"]
    return complaints


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    chance = random.Random(chosen.seed)
    with temporary() as folder:
        place = Place(Path(folder))
        settings = [f"train.steps={STEPS}", f"train.save_every={EVERY}", "train.average=0.9", f"train.keep={KEEP}"]
        code, _, err = place.run(*place.train("reference", *settings, f"train.evaluate_every={STEPS}"))
        if code:
            raise SystemExit(f"the run to be damaged failed: {err}")
        noticed, fell, complaints = in_process(place, place.runs / "reference", chosen.count, chance)
        complaints += through_the_command(place, chance)
    print(*complaints, sep="\n", end="\n" if complaints else "")
    print(f"{noticed}/{chosen.count} damaged checkpoints noticed, {fell}/{chosen.count} fell back")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
