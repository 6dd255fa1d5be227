"""Job: train and compare several architectures on one file; an interrupted comparison can be continued."""

from __future__ import annotations

import contextlib
import datetime
import math
import platform
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from saccade import __version__, api
from saccade.atomic_io import read_json, write_json, write_text
from saccade.comparison import MODELS
from saccade.comparison import report as reports
from saccade.comparison.process import Failure, Job, run_job
from saccade.comparison.progress import OverallProgress
from saccade.config import to_json
from saccade.core import Callback, Split
from saccade.errors import DataError, ResourceError, SaccadeError, UsageError, suggest
from saccade.runs import folder as runs
from saccade.runs.folder import Run
from saccade.runs.provenance import hash_assets
from saccade.tasks import translation
from saccade.training.device import choose_device, describe_device

QUANTILES = (0.2, 0.4, 0.6, 0.8, 0.95)  # of the source lengths: edges of the length classes
FILE = "compare.json"
FORMAT = 2
MIN_PROBE = 0.3  # minutes


@dataclass(frozen=True)
class Trial:
    """Settings of a comparison: the models and their training time."""

    models: tuple[str, ...] = MODELS
    minutes: float = 5.0
    """training time of each model; a train.steps or train.epochs among the overrides takes precedence"""
    probe_minutes: float | None = None
    """training time of each model to copy and to reverse, together; None: two fifths of `minutes`; 0: no probe"""
    sentence: str = ""
    """the sentence whose alignment is shown; default: a validation sentence of median length"""

    def __post_init__(self) -> None:
        if not self.models:
            raise UsageError(
                f"models must name at least one architecture, but names none; there are: {', '.join(MODELS)}"
            )
        for model in self.models:
            if model not in MODELS:
                raise UsageError(f"no model '{model}'{suggest(model, list(MODELS))}")
        repeated = sorted({model for model in self.models if self.models.count(model) > 1})
        if repeated:
            raise UsageError(f"models must name each architecture once, but names {', '.join(repeated)} again")
        if not (self.minutes > 0 and math.isfinite(self.minutes)):
            raise UsageError(f"minutes must be above 0, but is {self.minutes}")
        if self.probe_minutes is not None and not (self.probe_minutes >= 0 and math.isfinite(self.probe_minutes)):
            raise UsageError(f"probe-minutes must be 0 or more, but is {self.probe_minutes}")

    @property
    def probe(self) -> float:
        """Training time of the probe in minutes."""
        return max(MIN_PROBE, 0.4 * self.minutes) if self.probe_minutes is None else self.probe_minutes


@dataclass(frozen=True)
class Comparison:
    """A finished comparison: its folder and all its numbers."""

    path: Path
    result: dict[str, Any]

    @property
    def page(self) -> Path:
        """The report as an HTML file."""
        return self.path / "report.html"

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
    """Train each model on the file for the same time, measure all of them, and write report.html and report.json.

    The `name` of an interrupted comparison continues it: finished jobs are not repeated.
    """
    trial, callback, data, root = trial or Trial(), callback or Callback(), Path(data), Path(root)
    overrides = list(overrides)
    if any(override.startswith("model.architecture=") for override in overrides):
        raise UsageError("model.architecture must not be set, since every model has its own; name them with --models")
    if not any(override.startswith(("train.minutes=", "train.steps=", "train.epochs=")) for override in overrides):
        overrides.append(f"train.minutes={trial.minutes}")
    description = survey(data, overrides, trial, callback)
    folder = _folder(root, name, data, {**description, "command": command})
    jobs = _jobs(trial, description["settings"]["minutes"])
    with Run(folder).lock():
        settings = read_json(folder / FILE)
        _check_unchanged(folder, settings, description)
        callback.log(f"comparing {len(trial.models)} models in {folder}")
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
    if any(job.file(folder).exists() or (folder / job.run).exists() for job in jobs if job.stage != "memory"):
        return ResourceError(f"{error}; the comparison continues with the same command and --name {folder.name}")
    shutil.rmtree(folder, ignore_errors=True)
    return ResourceError(f"{error}; nothing was trained and nothing is left: run the same command again")


def survey(data: Path, overrides: Sequence[str], trial: Trial, callback: Callback) -> dict[str, Any]:
    """Check the file and the settings before training, and return a description of both as JSON."""
    configs = [api.configure(translation.Task, [*overrides, f"model.architecture={model}"]) for model in trial.models]
    config, training = configs[0]
    with tempfile.TemporaryDirectory(prefix="saccade-") as temporary:
        run = Run(Path(temporary))
        run.assets.mkdir()
        progress = partial(callback.on_progress, "reading")
        notes = translation.Task.prepare(config, data, run.assets, progress=progress)
        with torch.device("meta"):  # only shapes: each model is allocated in its own process
            task, *_ = [translation.Task.open(config, run.assets) for config, _ in configs]
        notes += task.load_data(data, progress=partial(callback.on_progress, "tokenizing"))
        for note in notes:
            callback.log(note)
        valid = task.splits[Split.VALID]
        hashes = hash_assets(run)
    lengths = valid.source.lengths
    edges = sorted({int(edge) for edge in np.quantile(lengths, QUANTILES)} - {0, int(lengths.min())})
    median = int(np.argsort(lengths, kind="stable")[len(lengths) // 2])
    source, target = valid.texts[median]
    return {
        "format": FORMAT,
        "data": str(data.resolve()),
        "models": list(trial.models),
        "overrides": list(overrides),
        "probe_minutes": trial.probe,
        "sentence": trial.sentence or source,
        "reference": "" if trial.sentence else target,
        "edges": edges,
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


def _check_unchanged(folder: Path, settings: dict[str, Any], description: dict[str, Any]) -> None:
    """Refuse to continue with other data or settings than the comparison was started with."""
    if settings.get("format") != FORMAT:
        raise UsageError(f"{folder / FILE}: format must be {FORMAT}, but is {settings.get('format')}; update saccade")
    for key in ("models", "overrides", "probe_minutes", "sentence", "data"):
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


def _jobs(trial: Trial, minutes: float) -> list[Job]:
    """Return the jobs of a comparison in order, with estimates of their time."""
    train = [Job(model, "train", 66 * (minutes or 1.0)) for model in trial.models]
    kinds = ("copy", "reverse") if trial.probe else ()
    probes = [Job(model, kind, 36 * trial.probe) for model in trial.models for kind in kinds]
    return [*train, *probes, Job("", "memory", 5)]


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
    write_text(folder / "report.html", reports.page(result))
    return Comparison(folder, result)


def gather(folder: Path, settings: dict[str, Any], failures: Sequence[Failure] = ()) -> dict[str, Any]:
    """Return all numbers of a comparison as one JSON object."""
    models = []
    for name in settings["models"]:
        model = {"name": name}
        for stage in ("train", "copy", "reverse"):
            file = Job(name, stage).file(folder)
            if file.exists():
                model |= read_json(file) if stage == "train" else {stage: read_json(file)}
        failed = {failure.job.stage: failure.message for failure in failures if failure.job.model == name}
        models.append({**model, **({"failed": failed} if failed else {})})
    for model in models:
        if "assets" in model and (model["assets"], model["fingerprint"]) != (
            settings["assets"],
            settings["fingerprint"],
        ):
            raise DataError(
                f"{settings['data']}: {model['name']} was trained on data with fingerprint "
                f"{model['fingerprint']}, expected {settings['fingerprint']}: the file has changed meanwhile; "
                "compare again under another --name"
            )
    memory = Job("", "memory").file(folder)
    result = {"run": settings, "models": models, "attention_memory": read_json(memory) if memory.exists() else None}
    return {**result, "summary": reports.summary(result)}
