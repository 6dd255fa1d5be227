"""Kill -9: trains tiny runs, kills the real process again and again, resumes, and compares every byte with no kill.

python tests/reliability/kill.py               20 kills
python tests/reliability/kill.py --kills 200   the long form
python tests/reliability/kill.py --task translation
"""

import argparse
import json
import random
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tiny import TASKS, Workspace, differences, log, temporary

STEPS = 160
KILLS_A_RUN = 5
EVERY = ["train.save_every=5", "train.evaluate_every=25"]
TIED = "tied"  # replaced by the setting of the task
KINDS: dict[str, list[str]] = {
    "muon": ["train.optim.kind=muon", *EVERY],
    "adamw-average-micro": ["train.optim.kind=adamw", "train.average=0.99", "micro_batches=2", *EVERY],
    "muon-average-micro": ["train.optim.kind=muon", "train.average=0.99", "micro_batches=2", TIED, *EVERY],
    "minutes": ["train.minutes=0.06", "train.optim.cooldown=0.6", "train.average=0.99", *EVERY],
}


def settings(workspace: Workspace, kind: str) -> list[str]:
    return [workspace.tied() if setting == TIED else setting for setting in KINDS[kind]]


@dataclass
class Tally:
    """What happened to all the runs, counted from several threads."""

    kills: int = 0
    inside: int = 0
    """kills that left a half-written checkpoint"""
    failures: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, inside: bool) -> None:
        with self._lock:
            self.kills += 1
            self.inside += inside


@dataclass
class Victim:
    """One run that is killed and resumed until its kills are used up, then allowed to finish."""

    workspace: Workspace
    kind: str
    name: str
    rng: random.Random
    tally: Tally

    @property
    def folder(self) -> Path:
        return self.workspace.runs / self.name

    def newest(self) -> int:
        """The step of the newest checkpoint, by its name alone."""
        folder = self.folder / "checkpoints"
        result = [path.name for path in folder.iterdir()] if folder.exists() else []
        return max((int(name[5:]) for name in result if name.startswith("step-") and "." not in name), default=0)

    def decided(self) -> bool:
        """Whether the time budget was converted to steps."""
        file = self.folder / "budget.json"
        return file.exists() and json.loads(file.read_bytes())["total"] is not None

    def incomplete(self) -> list[Path]:
        return list((self.folder / "checkpoints").glob("step-*.tmp"))

    def arguments(self) -> list[str]:
        """Train, or resume where the last kill has left a run."""
        if (self.folder / "run.json").exists():
            return self.workspace.resume(self.name)
        if self.folder.exists():
            self.tally.failures.append(f"{self.name}: a run folder without run.json")
        steps = [] if self.kind == "minutes" else [f"train.steps={STEPS}"]
        return self.workspace.train(self.name, *steps, *settings(self.workspace, self.kind))

    def kill(self, ready: Callable[[], bool], inside: bool) -> bool:
        """Start or resume, wait for the moment, kill -9; False if the run was over before."""
        process = self.workspace.start(*self.arguments(), driver="slow_save.py" if inside else "")
        while process.poll() is None and not (ready() and (not inside or self.incomplete())):
            time.sleep(0.001)
        time.sleep(self.rng.uniform(0, 0.25 if inside else 0.1))
        process.send_signal(signal.SIGKILL)
        _, err = process.communicate()
        if process.returncode == -signal.SIGKILL:
            self.tally.add(bool(self.incomplete()))
            return True
        if process.returncode:
            self.tally.failures.append(f"{self.name}: exit {process.returncode} instead of a kill: {err.strip()}")
        return False

    def finish(self) -> None:
        code, _, err = self.workspace.run(*self.arguments())
        if code:
            self.tally.failures.append(f"{self.name}: exit {code} at the end: {err.strip()}")


def kill_repeatedly(victim: Victim, kills: int) -> None:
    """Kill a run of a fixed length at rising random steps (the first one while it is still preparing), then finish."""
    for number in range(kills):
        low, high = STEPS * number // (kills + 1), STEPS * (number + 1) // (kills + 1)
        step = victim.rng.randint(max(low, victim.newest()), max(high, victim.newest()))
        early = number == 0 and victim.rng.random() < 0.5
        begun = victim.folder.exists if early else lambda step=step: victim.newest() >= step - step % 5
        if not victim.kill(begun, inside=not early and victim.rng.random() < 0.6):
            break
    victim.finish()


def kill_timed(victim: Victim, kills: int) -> None:
    """Kill a run of a fixed time before and after its length is decided; from then on only the steps count."""
    budget, copy = victim.folder / "budget.json", victim.folder.with_name(f"{victim.name}-copy")
    for number in range(kills):
        first = 5 * number + 5
        decided = victim.decided if number >= kills // 3 else lambda first=first: victim.newest() >= first
        if not victim.kill(decided, inside=number % 2 == 0):
            break
        if victim.decided() and not copy.exists():
            shutil.copytree(victim.folder, copy)  # this one continues without a kill
    victim.finish()
    if not copy.exists():  # it was over before its length was decided and a kill came
        shutil.copytree(victim.folder, copy)
    Victim(victim.workspace, victim.kind, copy.name, victim.rng, victim.tally).finish()
    total = json.loads(budget.read_bytes())["total"]
    steps = [record["step"] for record in log(victim.folder) if "grad_norm" in record]
    if victim.newest() != total:
        victim.tally.failures.append(f"{victim.name}: ended at {victim.newest()} instead of {total}")
    if steps != list(range(1, total + 1)):
        victim.tally.failures.append(f"{victim.name}: logged {len(steps)} steps, expected each of {total} once")


def one_run(workspace: Workspace, kind: str, number: int, kills: int, seed: int, tally: Tally) -> None:
    """Torment one run, and compare it with the one that was left alone."""
    victim = Victim(workspace, kind, f"{kind}-{number}", random.Random(f"{seed}/{number}"), tally)
    (kill_timed if kind == "minutes" else kill_repeatedly)(victim, kills)
    reference = workspace.runs / (f"{victim.name}-copy" if kind == "minutes" else kind)
    tally.failures += [f"{victim.name}: differs in {what}" for what in differences(victim.folder, reference)]
    shutil.rmtree(victim.folder)


def make_reference(workspace: Workspace, kind: str) -> None:
    """A run that is never killed."""
    code, _, err = workspace.run(*workspace.train(kind, f"train.steps={STEPS}", *settings(workspace, kind)))
    if code:
        raise SystemExit(f"the reference run {kind} failed: {err}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--task", choices=list(TASKS), default="language_model")
    chosen = parser.parse_args()
    tally, began = Tally(), time.perf_counter()
    with temporary() as folder, ThreadPoolExecutor(2) as pool:
        workspace = Workspace(Path(folder), chosen.task)
        list(
            pool.map(lambda kind: make_reference(workspace, kind), [kind for kind in chosen.kinds if kind != "minutes"])
        )
        number = 0
        while tally.kills < chosen.kills and not tally.failures:  # a run that was over too soon leaves some
            left = chosen.kills - tally.kills
            share = min(KILLS_A_RUN, -(-left // len(chosen.kinds)))
            shares = [min(share, left - done) for done in range(0, left, share)]
            jobs = [(chosen.kinds[at % len(chosen.kinds)], at, kills) for at, kills in enumerate(shares, number)]
            number += len(jobs)
            list(pool.map(lambda job: one_run(workspace, *job, chosen.seed, tally), jobs))
    if tally.inside < tally.kills / 4:
        tally.failures.append(f"only {tally.inside} of {tally.kills} kills hit a save; at least a quarter must")
    print(*tally.failures, sep="\n", end="\n" if tally.failures else "")
    print(f"{tally.inside} kills hit a save; {number} runs; {time.perf_counter() - began:.0f} s", file=sys.stderr)
    survived = f"{0 if tally.failures else tally.kills}/{tally.kills}"
    print(f"{survived} kills survived, weights, optimizer and losses bit-identical")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
