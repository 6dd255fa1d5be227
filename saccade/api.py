"""The functions behind every verb: train, resume, load, evaluate, predict, and the runs and tasks there are."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from saccade.atomic_io import read_json, sync_folder, sync_tree, write_json
from saccade.config import from_json, override, settings, to_json
from saccade.core.task import GeneratedToken, Prediction, Progress, Split, Task, quiet
from saccade.errors import DataError, ModelFileError, UsageError, suggest
from saccade.loading import Which, hashes, kind_of, load_run, open_run
from saccade.look.figure import AttentionFigure
from saccade.pretrained import catalogue, opening, pickles
from saccade.pretrained import tasks as foreign
from saccade.runs import folder as runs
from saccade.runs.folder import Run
from saccade.runs.journal import read_journal
from saccade.tasks import guess_task, load_task, task_names
from saccade.training.device import choose_device
from saccade.training.loop import Callback, NullCallback, TrainConfig, Trainer

RUNS = Path("runs")
BUDGETS = ("train.steps=", "train.minutes=", "train.epochs=")


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
    report: Callback | None = None,
) -> Trained:
    """Train a task on a file; `words` are settings such as `model.dim=128` or `train.minutes=10`.

    Without a `task` the file decides: pairs are translated, labels learnt, any other text is a language to model.
    """
    report, root, data = report or NullCallback(), Path(root), Path(data)
    if not task:
        task = guess_task(data, words)
        report.say(f"task: {task}")
    kind = load_task(task)
    config, training = configure(kind, [_at_home(word, root) for word in words], preset)
    described = {"config": to_json(config), "train": to_json(training)}
    run = _create(root, name, task, described, data)
    with run.lock():
        try:
            trainer = _trainer(run, data, report, task)
        except BaseException:
            shutil.rmtree(run.folder)  # nothing was trained: leave no half-made run behind
            raise
        return _finish(run, trainer, task)


def resume(word: str | Path, *, root: str | Path = RUNS, report: Callback | None = None, task: str = "") -> Trained:
    """Go on with a run where it stopped; the end is the same as if it had never stopped."""
    run = runs.find(Path(root), str(word))
    with run.lock():
        return _finish(run, _trainer(run, Path(run.describe()["data"]), report or NullCallback(), task), task)


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
    return _placed(load_run(run, which=which, task=task, say=say), device)


def exists(word: str | Path, root: str | Path = RUNS) -> bool:
    """Whether a word means a run, or can mean a model from elsewhere."""
    try:
        runs.find(Path(root), str(word))
    except UsageError:
        return foreign.is_foreign(str(word))
    return True


def _placed(opened: Task, device: str) -> Task:
    """A task with its networks on a device, ready to answer."""
    for player in opened.networks().values():
        player.to(choose_device(device)).eval()
    return opened


def evaluate(opened: Task, data: str | Path, *, whole: bool = False, advance: Progress = quiet) -> dict[str, float]:
    """Scores of a loaded task on the validation part of the file it was trained on, or on all of another file."""
    opened.load_data(Path(data), whole=whole)
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
) -> AttentionFigure:
    """The answer to one input with what was looked at: the best aligned attention, or a named layer and head."""
    return AttentionFigure.of(predict(opened, text, [*words, "maps=true"]), layer, head, pieces=pieces)


def alignment(found: Prediction) -> str:
    """Which source word each output word comes from, in the usual form `0-0 1-2`."""
    return AttentionFigure.of(found).alignment


def follow(opened: Task, text: str, words: Sequence[str] = ()) -> Iterator[GeneratedToken]:
    """The answer token by token with what was looked at, as it is made."""
    return opened.follow(text, override(opened.Options(), words))


def options(opened: Task) -> list[dict[str, Any]]:
    """What can be said to `predict`: name, kind, default and help of each."""
    return [vars(setting) for setting in settings(opened.Options)]


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


def free_name(root: str | Path, stem: str) -> str:
    """A name that no run has yet."""
    return runs.free_name(Path(root), stem)


def list_runs(root: str | Path = RUNS) -> list[dict[str, Any]]:
    """One line a run: name, task, step, best score, whether it is being trained, whether it is finished."""
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
    advice = kind.train_defaults(config)
    if any(word.startswith(BUDGETS) for word in loop):  # only one of them may be said
        advice = [word for word in advice if not word.startswith(BUDGETS)]
    return config, override(TrainConfig(), [*advice, *loop], "train.")


def _at_home(word: str, root: Path) -> str:
    """A setting; the name of a run as a base becomes its folder, which means the same from anywhere."""
    name, _, value = word.partition("=")
    if name != "base":
        return word
    with contextlib.suppress(UsageError):  # no run: a model from elsewhere, which is looked for later
        return f"base={runs.find(root, value).folder.resolve()}"
    return word


def _create(root: Path, name: str, task: str, described: dict[str, Any], data: Path) -> Run:
    """A run by the name that was given, or by the next free one after the file."""
    while not name:
        with contextlib.suppress(UsageError):  # another process took the name a moment ago
            return runs.create(root, runs.free_name(root, data.name.split(".")[0]), task, described, data)
    return runs.create(root, name, task, described, data)


def _prepare(run: Run, data: Path, report: Callback, task: str) -> None:
    """Learn from the data what must be learnt, wholly or not at all: a kill on the way is made good by resuming."""
    if run.assets.is_dir():
        return
    kind, aside = kind_of(run, task), run.folder / "assets.tmp"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    config = from_json(kind.Config, run.describe()["config"])
    for note in kind.prepare(config, data, aside, lambda share: report.advance("reading", share)):
        report.say(note)
    sync_tree(aside)
    aside.rename(run.assets)
    sync_folder(run.folder)


def _trainer(run: Run, data: Path, report: Callback, task: str) -> Trainer:
    """A trainer with its data, at the step where the run stands."""
    _prepare(run, data, report, task)
    opened, training = open_run(run, task)
    for note in opened.load_data(data, lambda share: report.advance("tokenizing", share)):
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


def _finish(run: Run, trainer: Trainer, task: str) -> Trained:
    """Train to the end, then score the best checkpoint on all the validation data."""
    trainer.fit()
    report = trainer.report
    opened = load(run.folder, device=str(trainer.device), task=task, say=report.say)
    scores = evaluate(opened, data_of(run.folder), advance=lambda share: report.advance("evaluating", share))
    write_json(run.folder / "analysis.json", opened.analyse())
    run.write_card(scores, opened.explained, opened.remarks)
    return Trained(run, scores, opened.explained)


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
        "finished": run.finished(),
    }
