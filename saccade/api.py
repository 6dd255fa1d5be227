"""The functions behind every verb: train, resume, load, evaluate, predict, and the runs and tasks there are."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from saccade import runs
from saccade.config import from_json, override, settings, to_json
from saccade.errors import ModelFileError, UsageError, suggest
from saccade.runs import Run
from saccade.task import Advance, Prediction, Split, Task, quiet
from saccade.tasks import load_task, task_names
from saccade.train import checkpoint
from saccade.train.device import choose_device
from saccade.train.loop import Report, Silent, TrainConfig, Trainer
from saccade.train.state import restore

RUNS = Path("runs")
Which = Literal["best", "last"]


@dataclasses.dataclass(frozen=True)
class Trained:
    """What training leaves: the run and the scores of its best checkpoint on all validation data."""

    run: Run
    scores: dict[str, float]


def train(
    data: str | Path,
    words: Sequence[str] = (),
    *,
    task: str = "language_model",
    preset: str = "",
    name: str = "",
    root: str | Path = RUNS,
    report: Report | None = None,
) -> Trained:
    """Train a task on a file; `words` are settings such as `model.dim=128` or `train.minutes=10`."""
    report, root, data = report or Silent(), Path(root), Path(data)
    kind = load_task(task)
    config, training = configure(kind, words, preset)
    described = {"config": to_json(config), "train": to_json(training)}
    run = runs.create(root, name or runs.free_name(root, data.name.split(".")[0]), task, described, data)
    with run.lock():
        try:
            trainer = _trainer(run, data, report)
        except BaseException:
            shutil.rmtree(run.folder)  # nothing was trained: leave no half-made run behind
            raise
        return _finish(run, trainer)


def resume(word: str | Path, *, root: str | Path = RUNS, report: Report | None = None) -> Trained:
    """Go on with a run where it stopped; the end is the same as if it had never stopped."""
    run = runs.find(Path(root), str(word))
    with run.lock():
        return _finish(run, _trainer(run, Path(run.describe()["data"]), report or Silent()))


def load(word: str | Path, *, root: str | Path = RUNS, device: str = "auto", which: Which = "best") -> Task:
    """The trained task of a run, from its best (or last) checkpoint; needs no data."""
    run = runs.find(Path(root), str(word))
    opened, _ = _open(run)
    found = _checkpoint(run, which)
    restore(opened.players(), found.parts.get("average") or found.parts["model"], run.name)
    for player in opened.players().values():
        player.to(choose_device(device)).eval()
    return opened


def evaluate(
    word: str | Path, *, data: str | Path | None = None, root: str | Path = RUNS, advance: Advance = quiet
) -> dict[str, float]:
    """Scores of a run on the validation part of its own data, or of a given file."""
    run = runs.find(Path(root), str(word))
    opened = load(run.folder)
    opened.attach(Path(data or run.describe()["data"]))
    return opened.evaluate(Split.VALID, advance=advance)


def predict(word: str | Path | Task, text: str, words: Sequence[str] = (), *, root: str | Path = RUNS) -> Prediction:
    """The answer of a run (or a loaded task) to one input; `words` are options such as `temperature=0.5`."""
    opened = word if isinstance(word, Task) else load(word, root=root)
    return opened.predict(text, override(opened.Options(), words))


def stream(opened: Task, text: str, words: Sequence[str] = ()) -> Iterator[str]:
    """The answer piece by piece, as it is made."""
    return opened.stream(text, override(opened.Options(), words))


def describe_task(name: str) -> dict[str, Any]:
    """Everything that can be set for a task: presets, settings, options of predict; each with default and help."""
    kind = load_task(name)
    return {
        "name": name,
        "summary": kind.summary,
        "presets": list(kind.presets),
        "settings": [vars(setting) for setting in [*settings(kind.Config), *settings(TrainConfig, "train.")]],
        "options": [vars(setting) for setting in settings(kind.Options)],
    }


def list_tasks() -> list[dict[str, str]]:
    """Name and summary of the built-in tasks."""
    return [{"name": name, "summary": load_task(name).summary} for name in task_names()]


def list_runs(root: str | Path = RUNS) -> list[dict[str, Any]]:
    """One line a run: name, task, step, best score, whether it is being trained."""
    return [_summary(run) for run in runs.list_runs(Path(root))]


def configure(kind: type[Task], words: Sequence[str], preset: str = "") -> tuple[Any, TrainConfig]:
    """The task's config and the loop's, from a preset and dotted words."""
    config = kind.Config()
    if preset:
        if preset not in kind.presets:
            raise UsageError(f"no preset '{preset}'{suggest(preset, list(kind.presets))}")
        config = from_json(kind.Config, kind.presets[preset])
    loop = [word for word in words if word.startswith("train.")]
    rest = [word for word in words if not word.startswith("train.")]
    return override(config, rest), override(TrainConfig(), loop, "train.")


def _open(run: Run) -> tuple[Task, TrainConfig]:
    """The task of a run with fresh weights, which depend on the seed alone."""
    described = run.describe()
    kind, training = load_task(described["task"]), from_json(TrainConfig, described["train"], "train.")
    torch.manual_seed(training.seed)
    return kind.open(from_json(kind.Config, described["config"]), run.assets), training


def _prepare(run: Run, data: Path, report: Report) -> None:
    """Learn from the data what must be learnt, wholly or not at all: a kill on the way is made good by resuming."""
    if run.assets.is_dir():
        return
    described, aside = run.describe(), run.folder / "assets.tmp"
    kind = load_task(described["task"])
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    config = from_json(kind.Config, described["config"])
    for note in kind.prepare(config, data, aside, lambda share: report.advance("reading", share)):
        report.say(note)
    aside.rename(run.assets)


def _trainer(run: Run, data: Path, report: Report) -> Trainer:
    """A trainer with its data, at the step where the run stands."""
    _prepare(run, data, report)
    opened, training = _open(run)
    for note in opened.attach(data, lambda share: report.advance("tokenizing", share)):
        report.say(note)
    return Trainer(opened, training, run.folder, report)


def _finish(run: Run, trainer: Trainer) -> Trained:
    """Train to the end, then score the best checkpoint on all the validation data."""
    best = trainer.fit()
    opened = load(run.folder, device=str(trainer.device))
    opened.attach(Path(run.describe()["data"]))
    advance: Advance = lambda share: trainer.report.advance("evaluating", share)  # noqa: E731
    return Trained(run, {"step": best["step"], **opened.evaluate(Split.VALID, advance=advance)})


def _checkpoint(run: Run, which: Which) -> checkpoint.Checkpoint:
    """The weights of a run's best or last checkpoint that is whole."""
    parts = ("model", "average")
    last = checkpoint.newest(run.checkpoints, lambda message: None, parts)
    if last is None:
        raise ModelFileError(f"run '{run.name}' has no checkpoint yet; train it with `saccade resume {run.folder}`")
    step = last.state["best"].get("step", last.step)
    if which == "last" or step == last.step:
        return last
    return checkpoint.read(checkpoint.at(run.checkpoints, int(step)), parts)


def _summary(run: Run) -> dict[str, Any]:
    described, records = run.describe(), run.records()
    scored = [record for record in records if "loss" in record and "seconds" not in record]
    return {
        "name": run.name,
        "task": described["task"],
        "created": described["created"],
        "step": max((record["step"] for record in records), default=0),
        "best": min((record["loss"] for record in scored), default=None),
        "running": run.running(),
    }
