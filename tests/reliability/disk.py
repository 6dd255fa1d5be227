"""Full disks, second trainers, signals and broken numbers: each ends with one clear message and loses nothing.

python tests/reliability/disk.py
"""

import contextlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from folders import differences
from processes import Child
from tiny import Workspace, log, temporary

STEPS = 60
SETTINGS = [f"train.steps={STEPS}", "train.save_every=5", "train.evaluate_every=25", "train.average=0.9"]
Check = Callable[[Workspace], list[str] | None]


def expect(what: str, found: bool, shown: object) -> list[str]:
    """Nothing, or a failure with what was seen."""
    return [] if found else [f"{what}: {shown}"]


def clear(err: str) -> bool:
    """Whether a command ended with one message of ours and no traceback."""
    return "Traceback" not in err and len(re.findall("^saccade: ", err, re.MULTILINE)) == 1


def newest(run: Path) -> int:
    """The step of the newest checkpoint, by its name alone."""
    folder = run / "checkpoints"
    names = [path.name for path in folder.iterdir()] if folder.exists() else []
    return max((int(name[5:]) for name in names if re.fullmatch(r"step-\d+", name)), default=0)


def start(workspace: Workspace, name: str, step: int, *settings: str) -> Child:
    """A training process that has passed a step."""
    process = workspace.start(*workspace.train(name, *SETTINGS, *settings))
    while process.poll() is None and newest(workspace.runs / name) < step:
        time.sleep(0.002)
    return process


def whole_and_same(workspace: Workspace, name: str) -> list[str]:
    """After trouble: the old checkpoint can be used, and resuming ends as if there had been no trouble."""
    code, out, err = workspace.run("evaluate", name, "--json")
    failures = expect("evaluate after trouble", code == 0 and '"loss"' in out, err)
    code, _, err = workspace.run(*workspace.resume(name))
    failures += expect("resume after trouble", code == 0, err)
    return failures + expect(
        "same end", not (found := differences(workspace.runs / name, workspace.runs / "whole")), found
    )


def limited(workspace: Workspace, name: str, limit: Callable[[Path], int], expected: str) -> list[str]:
    """Kill a run, resume it with a limit on the size of files, then without."""
    process = start(workspace, name, 20)
    process.send(signal.SIGKILL)
    process.wait()
    size = limit(workspace.runs / name)
    preexec = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))  # noqa: E731
    code, _, err = workspace.run(*workspace.resume(name), preexec=preexec)
    failures = expect(f"{name}: exit 5 and a message", code == 5 and clear(err) and expected in err, (code, err))
    failures += expect("nothing half written", not list((workspace.runs / name).rglob("*.tmp/*")), name)
    return failures + whole_and_same(workspace, name)


def full_disk_while_saving(workspace: Workspace) -> list[str]:
    """No room for the optimizer, which is larger than the model."""

    def size(run: Path) -> int:
        return (run / "checkpoints" / f"step-{newest(run):06d}" / "model.safetensors").stat().st_size + 512

    return limited(workspace, "limit-save", size, "no space left to save")


def full_disk_while_logging(workspace: Workspace) -> list[str]:
    """No room for another line of the log."""
    return limited(workspace, "limit-log", lambda run: (run / "metrics.jsonl").stat().st_size, "cannot write")


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


def full_disk_for_real(workspace: Workspace) -> list[str] | None:
    """A real small disk fills up while training; too little space is refused before the first step. None: no disk."""
    disk = workspace.folder / "disk"
    with small_disk(disk) as mounted:
        if not mounted:
            print("a small disk cannot be mounted here: only limits on file sizes are checked", file=sys.stderr)
            return None
        workspace.runs.rename(workspace.folder / "kept")
        workspace.runs.symlink_to(disk)
        shutil.copytree(workspace.folder / "kept" / "whole", disk / "whole")
        process, filler = start(workspace, "full", 20), disk / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as stream:
            while True:
                stream.write(bytes(4096))
        code, _, err = process.wait()
        right = code == 5 and clear(err) and ("no space left to save" in err or "cannot write" in err)
        failures = expect("a full disk", right, (code, err))
        code, _, err = workspace.run(*workspace.resume("full"))
        refused = re.search(r"must have ([\d.]+) MB free for \d checkpoints, but has ([\d.]+) MB", err)
        right = code == 5 and clear(err) and refused is not None and float(refused[1]) > float(refused[2])
        failures += expect("too little space is refused with both numbers", right, (code, err))
        filler.unlink()
        failures += whole_and_same(workspace, "full")
        workspace.runs.unlink()
        (workspace.folder / "kept").rename(workspace.runs)
    return failures


def full_disk_for_outputs(workspace: Workspace) -> list[str] | None:
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
            with contextlib.suppress(OSError), filler.open("wb", buffering=0) as stream:
                while True:
                    stream.write(bytes(4096))
            with filler.open("r+b") as stream:
                stream.truncate(max(0, filler.stat().st_size - room))
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


def second_trainer(workspace: Workspace) -> list[str]:
    """A run that is being trained is refused to another trainer, by the number of the first."""
    process = start(workspace, "held", 5, "train.steps=100000")
    code, _, err = workspace.run(*workspace.resume("held"))
    right = code == 5 and clear(err) and f"process {process.pid};" in err
    failures = expect("a second trainer is refused", right, (code, err))
    code, _, err = workspace.run(*workspace.train("held", *SETTINGS))
    failures += expect("a taken name is refused", code == 2 and clear(err) and "'held' exists" in err, (code, err))
    code, out, _ = workspace.run("runs", "--json")
    failures += expect("runs shows that it is being trained", '"running": true' in out, out)
    failures += expect("the first one goes on", process.poll() is None, process.code)
    process.send(signal.SIGKILL)
    process.wait()
    return failures


def stopped(workspace: Workspace, number: signal.Signals) -> list[str]:
    """A signal stops after the step at hand, which is saved; resuming ends the same."""
    name, rng = f"stopped-{number.name}", random.Random(number)
    process = start(workspace, name, rng.randint(5, 40))
    time.sleep(rng.uniform(0, 0.1))
    process.send(number)
    code, _, err = process.wait()
    run, message = workspace.runs / name, re.search(r"stopped at step (\d+); the checkpoint is saved", err)
    right = code == 128 + number and clear(err) and message is not None
    failures = expect(f"{number.name}: exit {128 + number} and a message", right, (code, err))
    steps = {newest(run), log(run)[-1]["step"], int(message[1]) if message else -1}
    failures += expect("the checkpoint of that very step", len(steps) == 1, steps)
    return failures + whole_and_same(workspace, name)


def not_a_number(workspace: Workspace) -> list[str]:
    """A learning rate far too high: the first loss that is not finite stops the run, with where and what."""
    code, _, err = workspace.run(*workspace.train("broken", *SETTINGS, "train.optim.kind=adamw", "train.optim.lr=3e38"))
    expected = r"step \d+: (loss|the norm of the gradient) is (nan|inf), .* rows: token \d+, .*"
    message = re.search(expected + r"first not finite: (parameter|the gradient of) [\w.]+", err)
    failures = expect("a loss that is not finite", code == 1 and clear(err) and message is not None, (code, err))
    lines = len(log(workspace.runs / "broken")) if (workspace.runs / "broken" / "metrics.jsonl").exists() else 0
    return failures + expect("it stops at once", lines < 10, lines)


CHECKS: list[tuple[str, Check]] = [
    ("full disk while saving", full_disk_while_saving),
    ("full disk while logging", full_disk_while_logging),
    ("a small disk, full", full_disk_for_real),
    ("outputs on a full disk", full_disk_for_outputs),
    ("second trainer", second_trainer),
    ("SIGTERM", lambda workspace: stopped(workspace, signal.SIGTERM)),
    ("SIGINT", lambda workspace: stopped(workspace, signal.SIGINT)),
    ("not a number", not_a_number),
]


def main() -> int:
    good, done = 0, []
    with temporary() as folder:
        workspace = Workspace(Path(folder))
        code, _, err = workspace.run(*workspace.train("whole", *SETTINGS))
        if code:
            raise SystemExit(f"the run without trouble failed: {err}")
        for name, check in CHECKS:
            failures = check(workspace)
            if failures is None:  # not checked, so not counted
                continue
            done.append(name)
            good += not failures
            for line in failures:
                print(f"{name}: {line}")
    print(f"{good}/{len(done)} troubles ended with one message and lost nothing ({', '.join(done)})")
    return 0 if good == len(done) else 1


if __name__ == "__main__":
    sys.exit(main())
