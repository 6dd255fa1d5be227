"""Kill and stop: trains tiny runs of every task, kills the process again and again, resumes, compares whole folders.

python tests/reliability/kill.py                                 8 kills of each task
python tests/reliability/kill.py --kills 50 --trials lora head   the long form of some
python tests/reliability/kill.py --processes 2                   runs of two processes, of which a random one is killed
python tests/reliability/kill.py --inside 50                     at least 50 of the kills must be inside a save
"""

import argparse
import contextlib
import dataclasses
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import processes
from figures import Figure, print_figure
from folders import differences
from slow_save import slow_down
from tiny import ROOT, temporary  # first: it makes the packages importable

from tests.tasks.battery import EXAMPLES, NAMES
from tests.tasks.battery import Trial as TaskTrial
from tests.training.forker import Agent

STEPS = 40
KILLS_A_RUN = 4
LOOP = ["train.device=cpu", "train.precision=float32", "train.save_every=5", "train.evaluate_every=10"]
LOOP += ["train.optim.clip=1"]
TUNED = ["base=runs/base", "tune={}", "train.optim.warmup=2", "train.epochs=0"]
BASE = "runs/base"
MINUTES = 0.05
SHARDED = "fsdp"  # a trial of several processes
AIMED = 0.5  # part of the kills that wait for a save, until there are as many inside a save as are required
NOTICE = 0.1  # seconds after which the agent of torchrun ends the processes that are left


@dataclass(frozen=True)
class Trial:
    """A task with settings that are trained and killed."""

    name: str
    task: str
    settings: tuple[str, ...] = ()
    """in addition to those of the task"""
    steps: int = STEPS

    @property
    def from_base(self) -> bool:
        return any(setting.startswith("base=") for setting in self.settings)


def tuned(name: str, task: str, tune: str) -> Trial:
    return Trial(name, task, tuple(setting.format(tune) for setting in TUNED))


TRIALS = {
    trial.name: trial
    for trial in [
        *(Trial(name.rpartition(".")[2], name) for name in NAMES),
        Trial("adamw-average", "language_model", ("train.optim.kind=adamw", "train.average=0.99", "micro_batches=2")),
        Trial("muon-tied", "language_model", ("train.average=0.99", "model.tie_embeddings=true")),
        Trial(SHARDED, "language_model", ("train.parallel=fsdp", "micro_batches=2")),
        Trial("minutes", "language_model", (f"train.minutes={MINUTES}", "train.average=0.99"), steps=0),
        tuned("lora", "text_classification", "lora"),
        tuned("head", "text_classification", "head"),
        tuned("whole-encoder", "tagging", "all"),
        tuned("lora-masked", "masked_language_model", "lora"),
    ]
}


@dataclass
class Tally:
    """What happened to all the runs."""

    kills: int = 0
    stops: int = 0
    inside: int = 0
    """kills that left something half written"""
    required: int = 0
    """kills that must have done so"""
    failures: list[str] = field(default_factory=list)


@dataclass
class Victim:
    """One run that is killed and resumed until its kills are used up, then allowed to finish."""

    folder: Path
    trial: Trial
    root: str
    rng: random.Random
    tally: Tally
    agent: Agent
    size: int = 1
    """number of processes that train it together"""

    @property
    def run(self) -> Path:
        return self.folder / self.root / self.trial.name

    def newest(self) -> int:
        """Return the step of the newest checkpoint, by its name alone."""
        folder = self.run / "checkpoints"
        names = [path.name for path in folder.iterdir()] if folder.exists() else []
        return max((int(name[5:]) for name in names if "." not in name), default=0)

    def half_written(self) -> set[tuple[Path, int]]:
        """Return the files and folders that are being written, or were when the last kill came."""
        with contextlib.suppress(FileNotFoundError):  # a folder that is renamed at this moment
            return {(path, path.stat().st_ino) for path in self.run.rglob("*.tmp")}
        return set()

    def decided(self) -> bool:
        """Whether the time budget was converted to steps."""
        file = self.run / "budget.json"
        return file.exists() and json.loads(file.read_bytes())["total"] is not None

    def arguments(self) -> list[str]:
        """Return the command that trains, or resumes what the last kill has left."""
        trial, common = self.trial, ["--runs", self.root, "--quiet", "--json"]
        custom = ["--task", trial.task] if trial.task in EXAMPLES else []
        if (self.run / "run.json").exists():
            return ["resume", trial.name, *common, *custom]
        if self.run.exists():
            self.tally.failures.append(f"{trial.name}: a run folder without run.json")
        task = TaskTrial.of(trial.task)
        length = [f"train.steps={trial.steps}"] if trial.steps else []
        settings = [entry for entry in task.settings if not (trial.from_base and entry.startswith("vocabulary_size="))]
        data = next((self.folder / "data" / trial.task).iterdir())
        named = ["--task", trial.task, "--name", trial.name]
        return ["train", str(data), *named, *common, *settings, *LOOP, *trial.settings, *length]

    def interrupt(self, ready: Callable[[], bool], number: int) -> bool:
        """Start or resume, wait for the moment, send the signal to one process; False if the run was over before."""
        left = self.half_written()  # by the last kill, until this start clears it up
        children = self.agent.start(self.arguments(), self.folder, self.size, slow_down)
        victim = self.rng.randrange(self.size)
        while children[victim].poll() is None and not ready():
            time.sleep(0.001)
        if self.tally.inside < self.tally.required and self.rng.random() < AIMED:
            while children[victim].poll() is None and self.half_written() <= left:
                time.sleep(0.001)
        else:
            time.sleep(self.rng.uniform(0, 0.25))
        children[victim].send(number)
        code, _, err = children[victim].wait()
        inside = not self.half_written() <= left
        others = [child for child in children if child is not children[victim]]
        time.sleep(NOTICE if others else 0)
        for child in others:
            child.send(signal.SIGTERM)
        errors = [err, *(child.wait()[2] for child in others)]
        if any("Traceback" in text for text in errors) or any(child.code is None for child in others):
            self.tally.failures.append(f"{self.trial.name}: a traceback, or a process that did not end: {errors}")
        if code == -signal.SIGKILL:
            self.tally.kills += 1
            self.tally.inside += inside
            return True
        if code == 128 + signal.SIGTERM:
            self.tally.stops += 1
            return True
        if code != -signal.SIGTERM and code:  # before the first step a signal simply ends the process
            self.tally.failures.append(f"{self.trial.name}: exit {code} instead of a kill: {err.strip()}")
        return code == -signal.SIGTERM

    def finish(self) -> None:
        for code, _, err in [child.wait() for child in self.agent.start(self.arguments(), self.folder, self.size)]:
            if code:
                self.tally.failures.append(f"{self.trial.name}: exit {code} at the end: {err.strip()}")


def kill_repeatedly(victim: Victim, kills: int) -> None:
    """Interrupt a run at rising random steps (the first time while it is still preparing), then let it finish."""
    for number in range(kills):
        low, high = (STEPS * part // kills for part in (number, number + 1))
        step = victim.rng.randint(low, high) if number else 0
        done = victim.tally.kills + victim.tally.stops
        ready = victim.run.exists if number == 0 else lambda step=step: victim.newest() >= step - step % 5
        stop = victim.rng.random() < 0.25
        if not victim.interrupt(ready, signal.SIGTERM if stop else signal.SIGKILL):
            break
        if victim.tally.failures or victim.tally.kills + victim.tally.stops == done:
            break
    victim.finish()


def kill_timed(victim: Victim, kills: int) -> None:
    """Kill a run of a fixed time before and after its length is decided; from then on only the steps count."""
    copy = victim.folder / "reference" / victim.trial.name
    for number in range(kills):
        first = 5 * number + 5
        ready = victim.decided if number >= kills // 3 else lambda first=first: victim.newest() >= first
        if not victim.interrupt(ready, signal.SIGKILL):
            break
        if victim.decided() and not copy.exists():
            shutil.copytree(victim.run, copy)  # this one continues without a kill
    victim.finish()
    if not copy.exists():  # it was over before its length was decided and a kill came
        shutil.copytree(victim.run, copy)
    dataclasses.replace(victim, root="reference").finish()
    total = json.loads((victim.run / "budget.json").read_bytes())["total"]
    records = [json.loads(line) for line in (victim.run / "metrics.jsonl").read_text().splitlines()]
    steps = [record["step"] for record in records if "lr_scale" in record]
    if victim.newest() != total or steps != list(range(1, total + 1)):
        victim.tally.failures.append(
            f"minutes: ended at {victim.newest()}, logged {len(steps)} steps, expected {total}"
        )


def torment(victim: Victim, kills: int) -> None:
    """Interrupt runs of one trial until there were enough kills; compare each with one that was left alone."""
    folder, trial, tally = victim.folder, victim.trial, victim.tally
    target, number = tally.kills + kills, 0
    if trial.steps:
        dataclasses.replace(victim, root="reference").finish()
    while tally.kills < target and not tally.failures and number < 4 * kills:
        number += 1
        (kill_repeatedly if trial.steps else kill_timed)(victim, min(KILLS_A_RUN, target - tally.kills))
        if not tally.failures:
            found = differences(victim.run, folder / "reference" / trial.name)
            tally.failures += [f"{trial.name}: differs in {name}" for name in found]
        if not trial.steps:
            shutil.rmtree(folder / "reference" / trial.name)
        shutil.rmtree(victim.run)


def prepare(folder: Path, trials: list[Trial]) -> None:
    """Write the data of all tasks, and train the encoder that some start from."""
    for task in {trial.task for trial in trials} | {"masked_language_model"}:
        (folder / "data" / task).mkdir(parents=True)
        TaskTrial.of(task).write_data(folder / "data" / task)
    if any(trial.from_base for trial in trials):
        base = Trial("base", "masked_language_model", steps=2)
        victim = Victim(folder, base, "runs", random.Random(), Tally(), Agent())
        code, _, err = processes.run(victim.arguments(), folder)
        victim.agent.close()
        if code:
            raise SystemExit(f"the encoder to start from could not be trained: {err}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=8, help="of each trial")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1, help="that train each run together")
    parser.add_argument("--inside", type=int, default=0, help="kills that must be inside a save, of all trials")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--trials", nargs="+", choices=list(TRIALS), help="all by default; fsdp needs --processes 2")
    chosen = parser.parse_args()
    names = chosen.trials or [name for name in TRIALS if chosen.processes > 1 or name != SHARDED]
    tally, began, agent = Tally(required=chosen.inside), time.perf_counter(), Agent()
    os.chdir(ROOT)
    with temporary() as name:
        folder, trials = Path(name), [TRIALS[trial] for trial in names]
        prepare(folder, trials)
        for trial in trials:
            before = tally.kills
            rng = random.Random(f"{chosen.seed}/{trial.name}")
            torment(Victim(folder, trial, "killed", rng, tally, agent, chosen.processes), chosen.kills)
            print(f"{trial.name}: {tally.kills - before} kills", file=sys.stderr)
    agent.close()
    if tally.inside < tally.required:
        tally.failures.append(f"{tally.inside} kills were inside a save, but at least {tally.required} must be")
    print(*tally.failures, sep="\n", end="\n" if tally.failures else "", file=sys.stderr)
    seconds = time.perf_counter() - began
    print(f"{tally.stops} stops; {seconds:.0f} s", file=sys.stderr)
    together = f" in {chosen.processes} processes" if chosen.processes > 1 else ""
    required = f" (at least {tally.required} required)" if tally.required else ""
    text = (
        f"kills of {len(trials)} trials{together} survived, {tally.inside} inside a save{required}; every file of the "
        "run folder identical"
    )
    good = 0 if tally.failures else tally.kills
    return print_figure(Figure("kill", good, tally.kills, text, {"inside a save": tally.inside}), chosen.json)


if __name__ == "__main__":
    sys.exit(main())
