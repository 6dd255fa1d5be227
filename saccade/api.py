"""The public functions: train, resume and load, and lists of runs, tasks and models."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from saccade.atomic_io import sync_folder, sync_tree, write_sealed
from saccade.config import from_json, override, settings, to_json
from saccade.core import Callback, Split, Task
from saccade.errors import UsageError, suggest
from saccade.loading import find_task_class, open_base, open_ref, open_run
from saccade.model import Model
from saccade.pretrained import catalogue, opening, pickles
from saccade.pretrained.references import is_pretrained
from saccade.progress import reporting
from saccade.run import Run
from saccade.runs import folder as runs
from saccade.runs import provenance
from saccade.runs.selection import Which
from saccade.starting import divided, open_or_create
from saccade.summaries import describe_metrics as describe_metrics
from saccade.summaries import summarize_run as summarize_run
from saccade.tasks import guess_task, load_task, task_names
from saccade.training import distributed
from saccade.training.distributed import Processes
from saccade.training.loop import Trainer
from saccade.training.settings import TrainConfig

RUNS = Path("runs")
Ref = str | os.PathLike[str]
"""a run by its folder or name, or a pretrained model by its folder, file, catalogue name or owner/name"""

SHORTCUTS = {
    "steps": "train.steps",
    "minutes": "train.minutes",
    "epochs": "train.epochs",
    "seed": "train.seed",
    "device": "train.device",
    "valid": "data.valid",
    "encoding": "data.encoding",
    "header": "data.header",
    "text_column": "data.text_column",
    "second_column": "data.second_column",
    "label_column": "data.label_column",
    "source": "data.source",
    "target": "data.target",
}
"""settings that can be given without the name of their group"""
BUDGETS = ("train.steps=", "train.minutes=", "train.epochs=")


def train(
    data: str | Path,
    /,  # so that the settings can have the group `data` too
    *,
    task: str = "",
    preset: str = "",
    name: str = "",
    root: str | Path = RUNS,
    overrides: Sequence[str] = (),
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    **settings: Any,
) -> Run:
    """Train a model on a data file and return the run, evaluated on its validation data.

    Under torchrun all processes train one run together; callbacks are called by that of rank 0.

        saccade.train("pairs.tsv", minutes=10, model={"transformer": {"dim": 256}})
        saccade.train("mails.csv", task="text_classification", base="minilm", epochs=3)

    Settings are keywords and nested mappings, or `key=value` overrides, which come last; `saccade tasks TASK` lists
    them. Without a `task` the data decide: pairs are translated, labels classified, other text is modelled.
    Progress is shown at a terminal and in a notebook; `progress` True or False shows it everywhere or nowhere.
    """
    data, root = Path(data), Path(root)
    given = [*to_overrides(settings), *overrides]
    with distributed.joined() as processes, _reporting(processes, callbacks, progress) as callback:
        run, task, created = _start(root, name, (task, preset), given, data, processes, callback)
        with _locked(run, processes):
            try:
                trainer = _trainer(run, data, callback, task, processes)
            except BaseException:
                if created:  # nothing was trained: leave no incomplete run behind
                    shutil.rmtree(run.folder, ignore_errors=True)
                raise
            return _finish(run, trainer)


def resume(
    ref: Ref,
    *,
    root: str | Path = RUNS,
    task: str = "",
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> Run:
    """Continue a run where it stopped; the result is the same as if it had never stopped.

    A task that is not built in is code, which is imported only if `task` names it too.
    """
    with distributed.joined() as processes, _reporting(processes, callbacks, progress) as callback:
        if processes.main:
            run = runs.find(Path(root), os.fspath(ref))
            processes.share((str(run.folder), task))
        else:
            run, task = _follow(processes)
        with _locked(run, processes):
            return _finish(run, _trainer(run, Path(run.describe()["data"]), callback, task, processes))


def load(
    ref: Ref,
    *,
    root: str | Path = RUNS,
    device: str = "auto",
    checkpoint: Which = "best",
    task: str = "",
    dtype: str = "auto",
    base: Ref = "",
    log: Callable[[str], None] = warnings.warn,
) -> Model:
    """Load a run (its best or last checkpoint, the one of a step, or the mean of all) or a pretrained model.

    `dtype` of the weights of a language model: float32, float16, int8 or int4, which is faster and less exact; auto:
    as they are. `base` is the model of an adapter of peft, if not the one that the adapter names. A task that is not
    built in is code, which is imported only if `task` names it too.
    """
    source = {"device": device, "task": task, "base": os.fspath(base), "dtype": dtype}
    opened = open_ref(os.fspath(ref), root=Path(root), checkpoint=checkpoint, log=log, **source)
    try:
        run = runs.find(Path(root), os.fspath(ref))
    except UsageError:  # a pretrained model
        return Model(opened, name=os.fspath(ref))
    recorded = provenance.read(run) or {}
    return Model(opened, name=run.name, data=Path(run.describe()["data"]), fingerprint=recorded.get("fingerprint", ""))


def exists(ref: Ref, root: str | Path = RUNS) -> bool:
    """Whether a ref names a run, or can name a pretrained model."""
    try:
        runs.find(Path(root), os.fspath(ref))
    except UsageError:
        return is_pretrained(os.fspath(ref))
    return True


def list_tasks() -> list[dict[str, str]]:
    """Return name and summary of the built-in tasks."""
    return [{"name": name, "summary": load_task(name).summary} for name in task_names()]


def describe_task(name: str) -> dict[str, Any]:
    """Return presets, settings and prediction options of a task, each with default and help."""
    task_class = load_task(name)
    return {
        "name": name,
        "summary": task_class.summary,
        "presets": list(task_class.presets),
        "settings": [vars(entry) for entry in [*settings(task_class.Config), *settings(TrainConfig, "train.")]],
        "options": [vars(entry) for entry in settings(task_class.Options)],
    }


def has_environment(task: str, config: Mapping[str, Any]) -> bool:
    """Whether a model of a built-in task with some settings can replay episodes in an environment."""
    if task not in task_names():  # its code runs only if the user names it
        return False
    setting = load_task(task).environment_setting
    return bool(setting) and bool(config.get(setting))


def list_runs(root: str | Path = RUNS) -> list[dict[str, Any]]:
    """Return a summary of each run: name, task, step, best score, whether it is being trained or finished."""
    return [summarize_run(run) for run in runs.list_runs(Path(root))]


def free_name(root: str | Path, stem: str) -> str:
    """Return a run name that is not taken yet."""
    return runs.free_name(Path(root), stem)


def list_models() -> list[dict[str, Any]]:
    """Return the models of the catalogue: name, summary, licence, bytes, whether it is in the cache."""
    return [model.describe() for model in catalogue.CATALOGUE.values()]


def get_model(name: str) -> Path:
    """Return the folder of a model of the catalogue; download it if it is not in the cache."""
    return catalogue.get(name)


def describe_model(ref: str) -> dict[str, Any]:
    """Read and check a pretrained model and return its family, config and vocabulary size."""
    return opening.describe(ref)


def convert_model(folder: str | Path, *, allow_pickle: bool = False) -> Path:
    """Convert the pytorch_model.bin of a folder to safetensors; pickles must be allowed explicitly."""
    return pickles.convert(Path(folder), allow_pickle=allow_pickle)


def configure(task_class: type[Task], overrides: Sequence[str], preset: str = "") -> tuple[Any, TrainConfig]:
    """Return the config of the task and of the training loop, from a preset and `key=value` overrides."""
    config = task_class.Config()
    if preset:
        if preset not in task_class.presets:
            raise UsageError(f"no preset '{preset}'{suggest(preset, list(task_class.presets))}")
        config = from_json(task_class.Config, task_class.presets[preset])
    config = override(config, [entry for entry in overrides if not entry.startswith("train.")])
    training = [entry for entry in overrides if entry.startswith("train.")]
    defaults = task_class.train_defaults(config)
    if any(entry.startswith(BUDGETS) for entry in training):  # only one of them may be set
        defaults = [entry for entry in defaults if not entry.startswith(BUDGETS)]
    return config, override(TrainConfig(), [*defaults, *training], "train.")


def choose_task(
    data: Path, task: str, preset: str, overrides: Sequence[str], root: Path, callback: Callback
) -> tuple[str, type[Task], Any, TrainConfig]:
    """Return name, class, config and training config of a task for some data; without a name the data decide."""
    guessed = not task
    if guessed:
        task = guess_task(data, overrides)
        callback.log(f"task: {task}")
    task_class = load_task(task)
    _check_base(task, task_class, overrides, guessed)
    config, training = configure(task_class, [_absolute_base(entry, root) for entry in overrides], preset)
    return task, task_class, config, training


def to_overrides(settings: Mapping[str, Any]) -> list[str]:
    """Return keyword settings and nested mappings as `key=value` overrides; shortcuts get the name of their group."""
    return [
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for key, setting in settings.items()
        for name, value in _flatten(SHORTCUTS.get(key, key), setting)
    ]


def _flatten(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield dotted names and plain values of nested mappings."""
    if isinstance(value, Mapping):
        for key, nested in value.items():
            yield from _flatten(f"{name}.{key}", nested)
    else:
        yield name, os.fspath(value) if isinstance(value, os.PathLike) else value


def _check_base(task: str, task_class: type[Task], overrides: Sequence[str], guessed: bool) -> None:
    """Refuse a pretrained model for a task that is always trained from scratch; `guessed`: by the data."""
    ref = next((entry.removeprefix("base=") for entry in reversed(overrides) if entry.startswith("base=")), "")
    if not ref or hasattr(task_class.Config(), "base"):
        return
    able = {name: load_task(name) for name in task_names() if hasattr(load_task(name).Config(), "base")}
    choices = ", ".join(f"{name} ({able_class.needs})" for name, able_class in able.items())
    raise UsageError(
        f"task '{task}'{', chosen by the data,' if guessed else ''} is trained from scratch and cannot use --from {ref}"
        f"; say with --task what to train: {choices}"
    )


def _absolute_base(entry: str, root: Path) -> str:
    """Return an override; a run given as `base` becomes its absolute folder, so that it is found from anywhere."""
    name, _, value = entry.partition("=")
    if name == "base":
        with contextlib.suppress(UsageError):  # not a run: a pretrained model, which is looked for later
            return f"base={runs.find(root, value).folder.resolve()}"
    return entry


def _reporting(
    processes: Processes, callbacks: Sequence[Callback], progress: bool | None
) -> contextlib.AbstractContextManager[Callback]:
    """Return the callbacks as one: of several processes rank 0 reports for all."""
    return reporting(callbacks, progress) if processes.main else reporting((), False)


@contextlib.contextmanager
def _locked(run: runs.Run, processes: Processes) -> Iterator[None]:
    """Lock a run for this process, or for all through rank 0, and clear up what a kill has left."""
    with run.lock() if processes.main else contextlib.nullcontext():
        if processes.main:
            run.sweep()
        processes.wait()
        yield


def _start(
    root: Path,
    name: str,
    chosen: tuple[str, str],
    given: Sequence[str],
    data: Path,
    processes: Processes,
    callback: Callback,
) -> tuple[runs.Run, str, bool]:
    """Return the run to train, its task, and whether it was created now; `chosen`: task and preset.

    Rank 0 decides. Processes that torchrun has started again continue the run that they have created.
    """
    if not processes.main:
        return *_follow(processes), False
    task, preset = chosen
    task, _, config, training = choose_task(data, task, preset, given, root, callback)
    config = divided(config, given, processes.size)
    described = {"config": to_json(config), "train": to_json(training)}
    run, created = open_or_create(root, name, task, described, data, restarted=processes.restarted)
    processes.share((str(run.folder), task))
    return run, task, created


def _follow(processes: Processes) -> tuple[runs.Run, str]:
    """Return the run of rank 0 and its task, whether rank 0 trains or resumes it."""
    folder, task = processes.share(("", ""))
    return runs.Run(Path(folder)), task


def _prepare(run: runs.Run, data: Path, callback: Callback, task: str) -> None:
    """Write the assets of a run, all or nothing: resuming repairs what a kill interrupted."""
    if run.assets.is_dir():
        return
    task_class, temporary = find_task_class(run, task), run.folder / "assets.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    config = from_json(task_class.Config, run.describe()["config"])
    ref = getattr(config, "base", "")
    base = open_base(ref, run.folder.parent) if ref else None
    for note in task_class.prepare(
        config, data, temporary, base=base, progress=partial(callback.on_progress, "reading")
    ):
        callback.log(note)
    sync_tree(temporary)
    temporary.rename(run.assets)
    sync_folder(run.folder)


def _trainer(run: runs.Run, data: Path, callback: Callback, task: str, processes: Processes) -> Trainer:
    """Return a trainer with its data, at the step of the last checkpoint."""
    with processes.rank_by_rank():  # the first one prepares the run and caches the data
        _prepare(run, data, callback, task)
        opened, training = open_run(run, task)
        for note in opened.load_data(data, progress=partial(callback.on_progress, "loading data")):
            callback.log(note)
        recorded = provenance.read(run)
        if recorded is None:
            provenance.record(run, opened.fingerprint)
        else:
            opened.check_fingerprint(recorded.get("fingerprint"), data, run.name)
    return Trainer(opened, training, run.folder, callback, processes=processes)


def _finish(run: runs.Run, trainer: Trainer) -> Run:
    """Train to the end and evaluate the best checkpoint on all the validation data, unless that was just done."""
    trainer.fit()
    evaluation = trainer.best_evaluation
    if trainer.processes.main:
        task, callback = trainer.restore_best(), trainer.callback
        evaluation = trainer.best_evaluation
        if evaluation is None or not evaluation.complete:
            evaluation = task.evaluate(Split.VALID, progress=partial(callback.on_progress, "evaluating"))
        write_sealed(run.folder / "analysis.json", task.analyse())
        run.write_card(evaluation, task.metric)
    evaluation = trainer.processes.share(evaluation)
    assert evaluation is not None
    return Run(run.folder, evaluation)
