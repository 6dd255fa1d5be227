"""Loading: the task of a run with the weights of one of its checkpoints, after all of it was checked."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from typing import Literal

import torch

from saccade.atomic_io import read_json
from saccade.config import from_json
from saccade.core.task import Task
from saccade.errors import ModelFileError, UsageError
from saccade.runs import checkpoint
from saccade.runs.folder import Run
from saccade.runs.weights import check, check_settings, restore
from saccade.tasks import load_task
from saccade.training.loop import TrainConfig

Which = Literal["best", "last", "mean"]


def load_run(run: Run, *, which: Which = "best", task: str = "", say: Callable[[str], None] = warnings.warn) -> Task:
    """The trained task of a run, from its best or last checkpoint or the mean of all kept ones, on the CPU.

    A run may name a task that is not built in, which is code: it is imported only if `task` names it too.
    """
    kind_of(run, task)
    found = _checkpoint(run, which, say)
    weights = found.parts.get("average") or found.parts["model"]
    with torch.device("meta"):  # before memory is taken for shapes that so far only run.json claims
        check(open_run(run, task)[0].networks(), weights, run.name)
    opened, _ = open_run(run, task)
    check_settings(found.state, opened.config, run.name)
    restore(opened.networks(), weights, run.name)
    if (run.folder / "analysis.json").exists():
        opened.analysis = read_json(run.folder / "analysis.json")
    return opened


def kind_of(run: Run, task: str) -> type[Task]:
    """The task class a run names; one that is not built in only if `task` says so too."""
    name = run.describe()["task"]
    if "." in name and name != task:
        raise ModelFileError(
            f"run '{run.name}' names the task '{name}', which is not built in and would run code; "
            f"if you trust it, add --task {name}"
        )
    try:
        return load_task(name)
    except UsageError as error:
        raise ModelFileError(f"{run.folder / 'run.json'}: {error}") from error


def open_run(run: Run, task: str) -> tuple[Task, TrainConfig]:
    """The task of a run with fresh weights, which depend on the seed alone."""
    described, kind = run.describe(), kind_of(run, task)
    try:
        training = from_json(TrainConfig, described["train"], "train.")
        config = from_json(kind.Config, described["config"])
    except UsageError as error:
        raise ModelFileError(f"{run.folder / 'run.json'}: {error}") from error
    _check_assets(run)
    with torch.random.fork_rng(devices=[]):  # networks are made on the CPU
        torch.manual_seed(training.seed)
        return kind.open(config, run.assets), training


def hashes(run: Run) -> dict[str, str]:
    """What the assets of a run are, by name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(run.assets.iterdir())}


def _check_assets(run: Run) -> None:
    """Refuse a vocabulary or other asset that is not the one the run was trained with."""
    path = run.folder / "data.json"
    if not path.exists():
        return
    expected, found = read_json(path).get("assets"), hashes(run)
    if expected != found:
        changed = sorted(name for name in found if not isinstance(expected, dict) or expected.get(name) != found[name])
        raise ModelFileError(f"{run.assets}: {', '.join(changed) or 'a file'} has changed since the run was trained")


def _checkpoint(run: Run, which: Which, say: Callable[[str], None]) -> checkpoint.Checkpoint:
    """The weights of a run's best or last checkpoint that is whole."""
    parts = ("model", "average")
    last = checkpoint.newest(run.checkpoints, say, parts)
    if last is None:
        raise ModelFileError(f"run '{run.name}' has no checkpoint yet; train it with `saccade resume {run.folder}`")
    if which == "mean":
        return _mean(run, last, say)
    step = int(last.state["best"].get("step", last.step))
    if which == "last" or step == last.step:
        return last
    try:
        return checkpoint.read(checkpoint.at(run.checkpoints, step), parts)
    except ModelFileError as error:
        say(f"the best checkpoint is damaged: {error}; using the one of step {last.step}")
        return last


def _mean(run: Run, last: checkpoint.Checkpoint, say: Callable[[str], None]) -> checkpoint.Checkpoint:
    """The mean of the weights of all checkpoints that were kept (train.keep says how many) and are whole."""
    total = {name: value.double() for name, value in last.parts["model"].items()}
    steps = [step for step in checkpoint.steps(run.checkpoints) if step < last.step]
    for step in steps:
        found = checkpoint.read(checkpoint.at(run.checkpoints, step), ("model",)).parts["model"]
        for name, value in total.items():
            value += found[name]
    say(f"mean of the checkpoints of the steps {', '.join(map(str, [*steps, last.step]))}")
    mean = {name: (value / (len(steps) + 1)).to(last.parts["model"][name].dtype) for name, value in total.items()}
    return checkpoint.Checkpoint(last.step, {"model": mean}, last.state)
