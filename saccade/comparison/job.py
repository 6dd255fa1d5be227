"""Job: train and compare several architectures on the same data; an interrupted comparison can be continued."""

from __future__ import annotations

import contextlib
import datetime
import platform
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from saccade import __version__, api
from saccade.atomic_io import read_json, write_json, write_text
from saccade.comparison import MODELS as MODELS
from saccade.comparison.kind import ComparisonKind
from saccade.comparison.kinds import KINDS, choose_kind
from saccade.comparison.process import FILE, Failure, Job, run_job
from saccade.comparison.progress import OverallProgress
from saccade.comparison.trial import Trial
from saccade.config import to_json
from saccade.core import Callback
from saccade.errors import DataError, ResourceError, SaccadeError, UsageError
from saccade.runs import folder as runs
from saccade.runs.folder import Run
from saccade.runs.provenance import hash_assets
from saccade.tasks import load_task
from saccade.training.device import choose_device, describe_device

FORMAT = 3


@dataclass(frozen=True)
class Comparison:
    """A finished comparison: its folder and all its numbers."""

    path: Path
    result: dict[str, Any]

    @property
    def page(self) -> Path:
        """The report as an HTML file."""
        return self.path / "report.html"

    def text_table(self) -> list[str]:
        """Return the table of the models as lines of text."""
        return KINDS[self.result["run"]["task"]].text_table(self.result)

    def __repr__(self) -> str:
        return f"<saccade.Comparison {self.page}>"


def compare(
    data: str | Path,
    trial: Trial | None = None,
    *,
    overrides: Sequence[str] = (),
    name: str = "",
    root: str | Path = api.RUNS,
    callback: Callback | None = None,
    command: str = "",
) -> Comparison:
    """Train each model on the data for the same time, measure all of them, and write report.html and report.json.

    The `name` of an interrupted comparison continues it: finished jobs are not repeated.
    """
    trial, callback, data, root = trial or Trial(), callback or Callback(), Path(data), Path(root)
    overrides = list(overrides)
    kind = choose_kind(data, overrides, trial.task)
    kind.check(trial, overrides)
    if not any(override.startswith(api.BUDGETS) for override in overrides):
        overrides.append(f"train.minutes={trial.minutes}")
    description = survey(kind, data, overrides, trial, callback)
    folder = _folder(root, name, data, {**description, "command": command})
    with Run(folder).lock():
        settings = read_json(folder / FILE)
        _check_unchanged(folder, settings, description, kind)
        callback.log(f"comparing {len(settings['models'])} models in {folder}")
        jobs = kind.jobs(settings)
        try:
            return _finish(folder, settings, _run_all(folder, jobs, callback))
        except (OSError, ResourceError) as error:
            raise _stopped(folder, jobs, error) from error


def _run_all(folder: Path, jobs: Sequence[Job], callback: Callback) -> list[Failure]:
    """Run the jobs that are not finished; return those that failed."""
    failures = []
    overall = OverallProgress(callback, [job.weight for job in jobs])
    for number, job in enumerate(jobs):
        with overall.job(number, str(job)):
            failure = None if job.file(folder).exists() else run_job(folder, job, overall)
        if failure:
            callback.log(f"{job}: {failure.message}")
            failures.append(failure)
    return failures


def _stopped(folder: Path, jobs: Sequence[Job], error: Exception) -> ResourceError:
    """Return the error for a comparison that ran out of space or the like; one that has trained nothing is removed."""
    if any(job.file(folder).exists() or (folder / job.run).exists() for job in jobs if job.model):
        return ResourceError(f"{error}; the comparison continues with the same command and --name {folder.name}")
    shutil.rmtree(folder, ignore_errors=True)
    return ResourceError(f"{error}; nothing was trained and nothing is left: run the same command again")


def survey(
    kind: ComparisonKind, data: Path, overrides: Sequence[str], trial: Trial, callback: Callback
) -> dict[str, Any]:
    """Check the data and the settings before training, and return a description of both as JSON."""
    models, task_class = trial.models or kind.models, load_task(kind.task)
    configs = [api.configure(task_class, [*overrides, f"model.architecture={model}"]) for model in models]
    training = configs[0][1]
    with tempfile.TemporaryDirectory(prefix="saccade-") as temporary:
        run = Run(Path(temporary))
        run.assets.mkdir()
        progress = partial(callback.on_progress, "reading")
        task, notes = kind.open([config for config, _ in configs], data, run.assets, progress)
        notes += task.load_data(data, progress=partial(callback.on_progress, "loading data"))
        for note in notes:
            callback.log(note)
        hashes = kind.shared_assets(hash_assets(run))
    return {
        "format": FORMAT,
        "task": kind.task,
        "data": str(data.resolve()),
        "models": list(models),
        "overrides": list(overrides),
        **kind.describe(task, trial),
        "fingerprint": task.fingerprint,
        "assets": hashes,
        "notes": notes,
        "settings": to_json(training),
        "seed": training.seed,
    }


def _folder(root: Path, name: str, data: Path, description: dict[str, Any]) -> Path:
    """Return the folder of a new comparison, or of the existing one of that name."""
    if name and (root / name / FILE).is_file():
        return root / name
    description = {
        **description,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": _machine(description["settings"]["device"]),
    }
    free = runs.free_name(root, f"{data.name.split('.')[0]}-compare")
    return runs.create_folder(root, name or free, FILE, description).folder


def _machine(device: str) -> dict[str, str]:
    """Return the hardware and software versions of the measurements."""
    return {
        "saccade": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": _processor(),
        "device": describe_device(choose_device(device)),
    }


def _processor() -> str:
    """Return the name of the processor, if the system reports it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _check_unchanged(folder: Path, settings: dict[str, Any], description: dict[str, Any], kind: ComparisonKind) -> None:
    """Refuse to continue with other data or settings than the comparison was started with."""
    if settings.get("format") != FORMAT:
        raise UsageError(f"{folder / FILE}: format must be {FORMAT}, but is {settings.get('format')}; update saccade")
    for key in ("task", "models", "overrides", *kind.options, "data"):
        if settings.get(key) != description[key]:
            raise UsageError(
                f"{key} must be {settings.get(key)!r} to continue the comparison '{folder.name}', but is "
                f"{description[key]!r}; give the same settings again, or another --name"
            )
    if (settings.get("fingerprint"), settings.get("assets")) != (description["fingerprint"], description["assets"]):
        raise DataError(
            f"{description['data']}: fingerprint {description['fingerprint']}, expected "
            f"{settings.get('fingerprint')}: the data have changed since the comparison '{folder.name}' started; "
            "restore them to continue, or choose another --name"
        )


def _finish(folder: Path, settings: dict[str, Any], failures: list[Failure]) -> Comparison:
    """Collect the results, check that all are from the same data, and write the report."""
    if len([failure for failure in failures if failure.job.stage == "train"]) == len(settings["models"]):
        first = failures[0]
        message = f"no model could be trained; {first.job}: {first.message}"
        if first.exit_code == ResourceError.exit_code:
            raise ResourceError(message)
        error = SaccadeError(message)
        error.exit_code = first.exit_code
        raise error
    result = gather(folder, settings, failures)
    write_json(folder / "report.json", result)
    write_text(folder / "report.html", KINDS[settings["task"]].page(result))
    return Comparison(folder, result)


def gather(folder: Path, settings: dict[str, Any], failures: Sequence[Failure] = ()) -> dict[str, Any]:
    """Return all numbers of a comparison as one JSON object."""
    kind = KINDS[settings["task"]]
    models: dict[str, dict[str, Any]] = {name: {"name": name} for name in settings["models"]}
    shared: dict[str, Any] = {}
    for job in kind.jobs(settings):
        results = read_json(job.file(folder)) if job.file(folder).exists() else None
        if not job.model:
            shared[job.stage] = results
        elif results is not None:
            models[job.model] |= results if job.stage == "train" else {job.stage: results}
    for failure in failures:
        if failure.job.model:
            models[failure.job.model].setdefault("failed", {})[failure.job.stage] = failure.message
    for model in models.values():
        _check_same_data(model, settings, kind)
    result = {"run": settings, "models": list(models.values()), **shared}
    return {**result, "summary": kind.summary(result)}


def _check_same_data(model: dict[str, Any], settings: dict[str, Any], kind: ComparisonKind) -> None:
    """Refuse the results of a model that was trained on other data than the comparison was started with."""
    expected = (settings["assets"], settings["fingerprint"])
    if "assets" in model and (kind.shared_assets(model["assets"]), model["fingerprint"]) != expected:
        raise DataError(
            f"{settings['data']}: {model['name']} was trained on data with fingerprint "
            f"{model['fingerprint']}, expected {settings['fingerprint']}: the file has changed meanwhile; "
            "compare again under another --name"
        )
