"""The functions behind every verb: train, resume, load, evaluate, predict, and the runs and tasks there are."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from saccade import foreign, runs
from saccade.adapt import catalogue, opening, pickles
from saccade.config import from_json, override, settings, to_json
from saccade.durable import read_json, sync_folder, sync_tree, write_json
from saccade.errors import DataError, ModelFileError, UsageError, suggest
from saccade.look.seen import Seen
from saccade.runs import Run
from saccade.task import Advance, Prediction, Split, Task, quiet
from saccade.tasks import guess_task, load_task, task_names
from saccade.train import checkpoint
from saccade.train.device import choose_device
from saccade.train.journal import read_journal
from saccade.train.loop import Report, Silent, TrainConfig, Trainer
from saccade.train.state import check, check_settings, restore

RUNS = Path("runs")
BUDGETS = ("train.steps=", "train.minutes=", "train.epochs=")
Which = Literal["best", "last", "mean"]


@dataclasses.dataclass(frozen=True)
class Trained:
    """What training leaves: the run and the scores of its best checkpoint on all validation data."""

    run: Run
    scores: dict[str, float]
    explained: Mapping[str, str]
    """how scores were computed: signatures by name"""


def train(
    data: str | Path,
    words: Sequence[str] = (),
    *,
    task: str = "",
    preset: str = "",
    name: str = "",
    root: str | Path = RUNS,
    report: Report | None = None,
) -> Trained:
    """Train a task on a file; `words` are settings such as `model.dim=128` or `train.minutes=10`.

    Without a `task` the file decides: pairs are translated, labels learnt, any other text is a language to model.
    """
    report, root, data = report or Silent(), Path(root), Path(data)
    if not task:
        task = guess_task(data, words)
        report.say(f"task: {task}")
    kind = load_task(task)
    config, training = configure(kind, words, preset)
    described = {"config": to_json(config), "train": to_json(training)}
    run = _create(root, name, task, described, data)
    with run.lock():
        try:
            trainer = _trainer(run, data, report, task)
        except BaseException:
            shutil.rmtree(run.folder)  # nothing was trained: leave no half-made run behind
            raise
        return _finish(run, trainer, task)


def resume(word: str | Path, *, root: str | Path = RUNS, report: Report | None = None, task: str = "") -> Trained:
    """Go on with a run where it stopped; the end is the same as if it had never stopped."""
    run = runs.find(Path(root), str(word))
    with run.lock():
        return _finish(run, _trainer(run, Path(run.describe()["data"]), report or Silent(), task), task)


def load(
    word: str | Path,
    *,
    root: str | Path = RUNS,
    device: str = "auto",
    which: Which = "best",
    task: str = "",
    say: Callable[[str], None] = warnings.warn,
) -> Task:
    """The trained task of a run, from its best or last checkpoint or the mean of all kept ones; or a foreign model.

    A run may name a task that is not built in, which is code: it is imported only if `task` names it too.
    """
    try:
        run = runs.find(Path(root), str(word))
    except UsageError:
        if not foreign.is_foreign(str(word)):
            raise
        return _placed(foreign.open_task(str(word)), device)
    _kind(run, task)
    found = _checkpoint(run, which, say)
    weights = found.parts.get("average") or found.parts["model"]
    with torch.device("meta"):  # before memory is taken for shapes that so far only run.json claims
        check(_open(run, task)[0].players(), weights, run.name)
    opened, _ = _open(run, task)
    check_settings(found.state, opened.config, run.name)
    restore(opened.players(), weights, run.name)
    if (run.folder / "findings.json").exists():
        opened.findings = read_json(run.folder / "findings.json")
    return _placed(opened, device)


def _placed(opened: Task, device: str) -> Task:
    """A task with its networks on a device, ready to answer."""
    for player in opened.players().values():
        player.to(choose_device(device)).eval()
    return opened


def evaluate(opened: Task, data: str | Path, *, whole: bool = False, advance: Advance = quiet) -> dict[str, float]:
    """Scores of a loaded task on the validation part of the file it was trained on, or on all of another file."""
    opened.attach(Path(data), whole=whole)
    return opened.evaluate(Split.VALID, advance=advance)


def data_of(word: str | Path, root: str | Path = RUNS) -> Path:
    """The file that a run was trained on."""
    return Path(runs.find(Path(root), str(word)).describe()["data"])


def predict(opened: Task, text: str, words: Sequence[str] = ()) -> Prediction:
    """The answer of a loaded task to one input; `words` are options such as `temperature=0.5`."""
    return opened.predict(text, override(opened.Options(), words))


def predict_all(opened: Task, texts: Sequence[str], words: Sequence[str] = ()) -> Iterator[Prediction]:
    """The answers to many inputs, in their order."""
    return opened.predict_all(texts, override(opened.Options(), words))


def stream(opened: Task, text: str, words: Sequence[str] = ()) -> Iterator[str]:
    """The answer piece by piece, as it is made."""
    return opened.stream(text, override(opened.Options(), words))


def look(
    opened: Task,
    text: str,
    words: Sequence[str] = (),
    *,
    layer: str = "",
    head: int | None = None,
    pieces: bool = False,
) -> Seen:
    """The answer to one input with what was looked at: the best aligned attention, or a named layer and head."""
    return Seen.of(predict(opened, text, [*words, "maps=true"]), layer, head, pieces=pieces)


def alignment(found: Prediction) -> str:
    """Which source word each output word comes from, in the usual form `0-0 1-2`."""
    return Seen.of(found).alignment


def option_names(opened: Task) -> list[str]:
    """The names of what can be said to `predict`."""
    return [setting.name for setting in settings(opened.Options)]


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


def list_models() -> list[dict[str, Any]]:
    """The models of the catalogue: name, what it is, licence, bytes, whether it is here already."""
    return [model.describe() for model in catalogue.CATALOGUE.values()]


def get_model(name: str) -> Path:
    """A model of the catalogue, fetched if it is not here yet."""
    return catalogue.get(name)


def describe_model(word: str) -> dict[str, Any]:
    """A model by its folder, file, name or hub id, wholly read and checked: its family, shape and vocabulary."""
    return opening.describe(word)


def convert_model(folder: str | Path, *, allow_pickle: bool = False) -> Path:
    """Make a safetensors file of a folder's pytorch_model.bin, once and only if pickles are allowed."""
    return pickles.convert(Path(folder), allow_pickle=allow_pickle)


def configure(kind: type[Task], words: Sequence[str], preset: str = "") -> tuple[Any, TrainConfig]:
    """The task's config and the loop's, from a preset and dotted words."""
    config = kind.Config()
    if preset:
        if preset not in kind.presets:
            raise UsageError(f"no preset '{preset}'{suggest(preset, list(kind.presets))}")
        config = from_json(kind.Config, kind.presets[preset])
    loop = [word for word in words if word.startswith("train.")]
    rest = [word for word in words if not word.startswith("train.")]
    config = override(config, rest)
    advice = kind.advice(config)
    if any(word.startswith(BUDGETS) for word in loop):  # only one of them may be said
        advice = [word for word in advice if not word.startswith(BUDGETS)]
    return config, override(TrainConfig(), [*advice, *loop], "train.")


def _create(root: Path, name: str, task: str, described: dict[str, Any], data: Path) -> Run:
    """A run by the name that was given, or by the next free one after the file."""
    while not name:
        with contextlib.suppress(UsageError):  # another process took the name a moment ago
            return runs.create(root, runs.free_name(root, data.name.split(".")[0]), task, described, data)
    return runs.create(root, name, task, described, data)


def _kind(run: Run, task: str) -> type[Task]:
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


def _open(run: Run, task: str) -> tuple[Task, TrainConfig]:
    """The task of a run with fresh weights, which depend on the seed alone."""
    described, kind = run.describe(), _kind(run, task)
    try:
        training = from_json(TrainConfig, described["train"], "train.")
        config = from_json(kind.Config, described["config"])
    except UsageError as error:
        raise ModelFileError(f"{run.folder / 'run.json'}: {error}") from error
    _check_assets(run)
    with torch.random.fork_rng(devices=[]):  # networks are made on the CPU
        torch.manual_seed(training.seed)
        return kind.open(config, run.assets), training


def _prepare(run: Run, data: Path, report: Report, task: str) -> None:
    """Learn from the data what must be learnt, wholly or not at all: a kill on the way is made good by resuming."""
    if run.assets.is_dir():
        return
    kind, aside = _kind(run, task), run.folder / "assets.tmp"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    config = from_json(kind.Config, run.describe()["config"])
    for note in kind.prepare(config, data, aside, lambda share: report.advance("reading", share)):
        report.say(note)
    sync_tree(aside)
    aside.rename(run.assets)
    sync_folder(run.folder)


def _trainer(run: Run, data: Path, report: Report, task: str) -> Trainer:
    """A trainer with its data, at the step where the run stands."""
    _prepare(run, data, report, task)
    opened, training = _open(run, task)
    for note in opened.attach(data, lambda share: report.advance("tokenizing", share)):
        report.say(note)
    _same_data(run, data, opened.fingerprint)
    return Trainer(opened, training, run.folder, report)


def _same_data(run: Run, data: Path, found: str) -> None:
    """Refuse to go on with other data than the run began with."""
    path = run.folder / "data.json"
    if not path.exists():
        write_json(path, {"fingerprint": found, "assets": hashes(run)})
        return
    before = read_json(path).get("fingerprint")
    if before != found:
        raise DataError(
            f"{data}: fingerprint {found}, expected {before}: the data have changed since run '{run.name}' began; "
            "bring them back to go on, or train a new run on them"
        )


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


def _finish(run: Run, trainer: Trainer, task: str) -> Trained:
    """Train to the end, then score the best checkpoint on all the validation data."""
    trainer.fit()
    report = trainer.report
    opened = load(run.folder, device=str(trainer.device), task=task, say=report.say)
    scores = evaluate(opened, data_of(run.folder), advance=lambda share: report.advance("evaluating", share))
    write_json(run.folder / "findings.json", opened.study())
    run.write_card(scores, opened.explained, opened.remarks)
    return Trained(run, scores, opened.explained)


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


def _summary(run: Run) -> dict[str, Any]:
    try:
        described, records = run.describe(), read_journal(run.folder / "metrics.jsonl")
    except ModelFileError as error:
        return {"name": run.name, "error": str(error)}
    return {
        "name": run.name,
        "task": described["task"],
        "created": described["created"],
        "step": max((record["step"] for record in records), default=0),
        "best": next((record["best"] for record in reversed(records) if "best" in record), None),
        "running": run.running(),
    }
