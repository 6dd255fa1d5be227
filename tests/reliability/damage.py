"""Damage: every file of run folders is cut, flipped, deleted or replaced; it must be noticed, or change nothing.

python tests/reliability/damage.py                  100 damaged files
python tests/reliability/damage.py --count 1000     the long form
"""

import argparse
import os
import random
import re
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import processes
from figures import Figure, print_figure
from folders import contents
from tiny import ROOT, temporary  # first: it makes the packages importable

from tests.tasks.battery import PAIRS
from tests.tasks.battery import Trial as TaskTrial

HUGE = 1 << 30
SECONDS = 60.0  # after which a command counts as one that hangs
LOOP = ["train.device=cpu", "train.optim.clip=1", "train.average=0.9", "train.keep=2"]
PAIRS_LOOP = [*PAIRS, *LOOP, "train.minutes=0.03", "train.save_every=20"]
TEXT_LOOP = [*TaskTrial.of("language_model").settings, *LOOP, "train.steps=30", "train.save_every=5"]
RUNS = {  # task and settings; the step at which the copies to be damaged are taken, 0: after the end
    "finished": ("translation", PAIRS_LOOP, 0),
    "halfway": ("language_model", [*TEXT_LOOP, "train.evaluate_every=10"], 15),
}
LOOK = {"finished": [], "halfway": ["-o", "temperature=0", "-o", "max_new_tokens=5"]}
CODES = (0, 1, 2, 3, 4, 5)  # documented
HOSTILE = [
    b"{}",
    b"[]",
    b"null",
    b"NaN",
    b'{"step": 1e999, "best": NaN, "alignment": [], "total": "x", "evaluations": {}, "task": 7, "files": []}',
    b'{"format": 2, "task": "language_model", "config": {"model": 5}, "train": {}, "data": "/", "created": ""}',
    b'{"alignment": {"name": "../..", "head": 1e9}, "seal": "0"}',
    b'{"a":' * 100_000,
    b"[" * 500,
    b'"' + b"x" * 100_000,
]
Way = Callable[[Path, random.Random], None]


def flip(file: Path, rng: random.Random) -> None:
    """Change one bit."""
    data = bytearray(file.read_bytes() or b"0")
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    file.write_bytes(data)


def cut(file: Path, rng: random.Random) -> None:
    """Lose the end."""
    data = file.read_bytes()
    file.write_bytes(data[: rng.randrange(max(1, len(data)))])


def empty(file: Path, rng: random.Random) -> None:
    """Lose everything but the name."""
    file.write_bytes(b"")


def delete(file: Path, rng: random.Random) -> None:
    file.unlink()


def append(file: Path, rng: random.Random) -> None:
    """Gain bytes at the end."""
    with file.open("ab") as stream:
        stream.write(rng.randbytes(rng.randint(1, 64)))


def zero(file: Path, rng: random.Random) -> None:
    """Lose a block, as a disk does."""
    data = bytearray(file.read_bytes() or b"0")
    start = rng.randrange(len(data))
    block = len(data[start : start + 512])
    data[start : start + 512] = bytes(block) if any(data[start : start + 512]) else b"\xff" * block
    file.write_bytes(data)


def swap(file: Path, rng: random.Random) -> None:
    """Take the content of another file of the folder."""
    others = [path for path in sorted(file.parent.iterdir()) if path.is_file() and path != file]
    file.write_bytes(rng.choice(others).read_bytes() if others else b"other")


def folder(file: Path, rng: random.Random) -> None:
    """Become a folder."""
    file.unlink()
    file.mkdir()


def dangling(file: Path, rng: random.Random) -> None:
    """Become a link to nothing."""
    file.unlink()
    file.symlink_to("nowhere")


def device(file: Path, rng: random.Random) -> None:
    """Become a link to an endless device."""
    file.unlink()
    file.symlink_to("/dev/zero")


def pipe(file: Path, rng: random.Random) -> None:
    """Become a pipe that nobody writes."""
    file.unlink()
    os.mkfifo(file)


def huge(file: Path, rng: random.Random) -> None:
    """Grow to a size that no such file has."""
    with file.open("r+b") as stream:
        stream.truncate(HUGE)


def not_utf8(file: Path, rng: random.Random) -> None:
    """Hold bytes that are no text."""
    file.write_bytes(b"\xff\xfe\x80" + rng.randbytes(60))


def hostile(file: Path, rng: random.Random) -> None:
    """Hold JSON that nobody expects."""
    file.write_bytes(rng.choice(HOSTILE))


def edit(file: Path, rng: random.Random) -> None:
    """Change one number or word, as a person would."""
    data = file.read_bytes()
    places = [match.span() for match in re.finditer(rb"\d+|(?<=\")[a-z_]{3,}(?=\")", data)]
    if not places:
        return flip(file, rng)
    start, end = rng.choice(places)
    old = data[start:end]
    new = str(int(old) + 1).encode() if old.isdigit() else old + b"x"
    file.write_bytes(data[:start] + new + data[end:])
    return None


WAYS: list[Way] = [flip, cut, empty, delete, append, zero, swap, folder, dangling, device, pipe, huge, not_utf8]
WAYS += [hostile, edit, edit]


class Case:
    """A copy of a run with one damaged file, and what the commands make of it."""

    def __init__(self, place: Path, name: str, number: int, rng: random.Random) -> None:
        self.place, self.name, self.rng = place, name, rng
        self.task = RUNS[name][0]
        self.root = f"case-{number}"
        self.run = place / self.root / name
        shutil.copytree(place / "copies" / name, self.run)
        files = sorted(path for path in self.run.rglob("*") if path.is_file())
        self.file = files[number % len(files)]
        self.way = WAYS[(number // len(files) + number) % len(WAYS)]
        self.label = f"{name}: {self.way.__name__} {self.file.relative_to(self.run)}"

    def judge(self, expected: dict[str, object]) -> list[str]:
        """Damage the file; return the verdict on each command: noticed, harmless, or what is wrong."""
        self.way(self.file, self.rng)
        verdicts = [
            self.verdict(
                ["look", self.name, "the cat", *LOOK[self.name], "--json"], lambda out: out == expected["look"]
            ),
            self.verdict(["runs", "--json"], lambda out: out.startswith("["), listing=True),
            self.verdict(["resume", self.name, "--json"], lambda out: self.same(expected["contents"])),
        ]
        shutil.rmtree(self.place / self.root)
        return verdicts

    def verdict(self, arguments: list[str], same: Callable[[str], bool], *, listing: bool = False) -> str:
        """Run a command; noticed: it names the damage; harmless: the result is the same as without it."""
        code, out, err = processes.run([*arguments, "--runs", self.root], self.place, SECONDS)
        ours = len(re.findall("^saccade: ", err, re.MULTILINE))
        if code is None:
            return f"HANGS in {arguments[0]}"
        if "Traceback" in err or code not in CODES or (code and ours != 1):
            return f"TRACEBACK in {arguments[0]}: exit {code}: {err[-2000:]}"
        if code or self.named(err):
            return "noticed"
        if listing or same(out):
            return "harmless"
        return f"SILENT in {arguments[0]}: {err[-500:]}"

    def named(self, err: str) -> bool:
        """Whether the log says that this file, or its checkpoint, cannot be used."""
        return any(
            self.file.name in line and ("damaged" in line or "cannot be used" in line) for line in err.splitlines()
        )

    def same(self, expected: object) -> bool:
        """Whether the folder is as without the damage; a file that nothing rewrites must be noticed when it is read."""
        own = str(self.file.relative_to(self.run))
        if not self.intact(own, expected) and not self.noticed_when_read():
            return False
        actual = {name: value for name, value in contents_of(self.run, own).items() if name != own}
        return actual == {name: value for name, value in dict(expected).items() if name != own}  # type: ignore[call-overload]

    def intact(self, own: str, expected: object) -> bool:
        return contents_of(self.run, "").get(own) == dict(expected).get(own) if self.file.is_file() else False  # type: ignore[call-overload]

    def noticed_when_read(self) -> bool:
        """Whether the function that reads this file refuses it."""
        from saccade.errors import ModelFileError
        from saccade.runs import checkpoint, snapshots

        step = re.search(r"step-(\d+)", str(self.file.relative_to(self.run)))
        if step is None or not self.file.parent.exists():
            return self.file.name == "run.lock" or not self.file.parent.exists()
        try:
            if self.file.parent.name == snapshots.FOLDER:
                snapshots.read_snapshot(self.run, int(step[1]))
            else:
                checkpoint.verify(self.file.parent)
        except ModelFileError as error:
            return self.file.name in str(error)
        return False


def contents_of(run: Path, damaged: str) -> dict[str, object]:
    """Return the content of a run without the damaged file, which may be unreadable."""
    try:
        return contents(run, skip=damaged)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return {"unreadable": repr(error)}


def prepare(place: Path) -> dict[str, dict[str, object]]:
    """Train the runs, take the copies to be damaged, and note what the commands say of undamaged ones."""
    expected: dict[str, dict[str, object]] = {}
    for name, (task, settings, step) in RUNS.items():
        (place / "data" / task).mkdir(parents=True)
        data = TaskTrial.of(task).write_data(place / "data" / task)
        child = processes.start(
            ["train", str(data), "--task", task, "--name", name, "--runs", "whole", "--json", *settings], place
        )
        copy, checkpoints = place / "copies" / name, place / "whole" / name / "checkpoints"
        while step and not copy.exists():
            if (checkpoints / f"step-{step:06d}").exists():
                child.send(signal.SIGSTOP)  # stopped while it is copied, as a kill would leave it
                time.sleep(0.05)
                shutil.copytree(place / "whole" / name, copy)
                child.send(signal.SIGCONT)
        code, _, err = child.wait()
        if code:
            raise SystemExit(f"the run to be damaged failed: {err}")
        if not step:
            shutil.copytree(place / "whole" / name, copy)
        shutil.copytree(copy, place / "plain" / name)
        code, shown, err = processes.run(["look", name, "the cat", *LOOK[name], "--json", "--runs", "plain"], place)
        code = code or processes.run(["resume", name, "--json", "--runs", "plain"], place)[0]
        if code:
            raise SystemExit(f"the undamaged run failed: {err}")
        expected[name] = {"look": shown, "contents": contents(place / "plain" / name)}
    return expected


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    rng, began, tally, bad, files = random.Random(chosen.seed), time.perf_counter(), Counter[str](), [], set()
    os.chdir(ROOT)
    with temporary() as name:
        place = Path(name)
        expected = prepare(place)
        os.environ["SACCADE_CACHE"] = str(place / "cache")
        for number in range(chosen.count):
            kind = list(RUNS)[number % len(RUNS)]
            case = Case(place, kind, number // len(RUNS), rng)
            files.add((kind, case.file.relative_to(case.run)))
            verdicts = case.judge(expected[kind])
            wrong = [verdict for verdict in verdicts if verdict not in ("noticed", "harmless")]
            bad += [f"{case.label}: {verdict}" for verdict in wrong]
            tally[wrong[0].split()[0] if wrong else "noticed" if "noticed" in verdicts else "harmless"] += 1
    print(*bad, sep="\n", end="\n" if bad else "", file=sys.stderr)
    print(f"{len(files)} files damaged in {len(WAYS)} ways; {time.perf_counter() - began:.0f} s", file=sys.stderr)
    good = tally["noticed"] + tally["harmless"]
    text = (
        f"damaged files noticed ({tally['noticed']}) or harmless ({tally['harmless']}), "
        f"{tally['SILENT']} silent, {tally['TRACEBACK']} tracebacks, {tally['HANGS']} hangs"
    )
    return print_figure(Figure("corruption", good, chosen.count, text, dict(tally)), chosen.json)


if __name__ == "__main__":
    sys.exit(main())
