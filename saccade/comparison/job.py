"""Job: one file, several architectures, each in a process of its own; what a kill interrupts goes on where it was."""

from __future__ import annotations

import contextlib
import datetime
import math
import platform
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from saccade import __version__, api, loading
from saccade.atomic_io import read_json, write, write_json
from saccade.comparison import report as reports
from saccade.comparison.process import Failure, Part, run_part
from saccade.comparison.progress import Overall
from saccade.config import to_json
from saccade.core.task import Split
from saccade.errors import DataError, SaccadeError, UsageError, suggest
from saccade.runs import folder as runs
from saccade.runs.folder import Run
from saccade.tasks import translation
from saccade.training.device import choose_device, describe_device
from saccade.training.loop import Callback, NullCallback

MODELS = ("rnn", "rnn+attention", "convolution", "transformer", "universal")
CLASSES = (0.2, 0.4, 0.6, 0.8, 0.95)  # shares of the validation pairs at which a new class of lengths begins
FILE = "compare.json"
FORMAT = 1
LEAST_PROBE = 0.3  # minutes


@dataclass(frozen=True)
class Trial:
    """What is compared, and for how long."""

    models: tuple[str, ...] = MODELS
    minutes: float = 5.0
    """training of each model on the file; a train.steps or train.epochs among the settings wins over it"""
    probe_minutes: float | None = None
    """training of each model to copy and to reverse, together; None: two fifths of `minutes`; 0: no probe"""
    sentence: str = ""
    """whose alignment is shown; default: a validation sentence of middle length"""

    def __post_init__(self) -> None:
        if not self.models:
            raise UsageError(f"models must name at least one architecture, but names none; known: {', '.join(MODELS)}")
        for model in self.models:
            if model not in MODELS:
                raise UsageError(f"no model '{model}'{suggest(model, list(MODELS))}")
        twice = sorted({model for model in self.models if self.models.count(model) > 1})
        if twice:
            raise UsageError(f"models must name each architecture once, but names {', '.join(twice)} again")
        if not (self.minutes > 0 and math.isfinite(self.minutes)):
            raise UsageError(f"minutes must be above 0, but is {self.minutes}")
        if self.probe_minutes is not None and not (self.probe_minutes >= 0 and math.isfinite(self.probe_minutes)):
            raise UsageError(f"probe-minutes must be 0 or more, but is {self.probe_minutes}")

    @property
    def probe(self) -> float:
        return max(LEAST_PROBE, 0.4 * self.minutes) if self.probe_minutes is None else self.probe_minutes


@dataclass(frozen=True)
class Comparison:
    """What a comparison leaves: its folder, and all its numbers."""

    folder: Path
    result: dict[str, Any]

    @property
    def page(self) -> Path:
        return self.folder / "report.html"


def compare(
    data: str | Path,
    words: Sequence[str] = (),
    trial: Trial | None = None,
    *,
    name: str = "",
    root: str | Path = api.RUNS,
    report: Callback | None = None,
    command: str = "",
) -> Comparison:
    """Train each model on the file for the same time, measure all alike, and write report.html and report.json.

    With the `name` of a comparison that was stopped or killed it goes on: what is finished is not done again.
    """
    trial, report, data, root = trial or Trial(), report or NullCallback(), Path(data), Path(root)
    words = list(words)
    if any(word.startswith("model.architecture=") for word in words):
        raise UsageError("model.architecture must not be set, since every model has its own; name them with --models")
    if not any(word.startswith(("train.minutes=", "train.steps=", "train.epochs=")) for word in words):
        words.append(f"train.minutes={trial.minutes}")
    found = survey(data, words, trial, report)
    folder = _folder(root, name, data, {**found, "command": command})
    with Run(folder).lock():
        job = read_json(folder / FILE)
        _same(folder, job, found)
        parts, failures = _parts(trial, found["settings"]["minutes"]), []
        report.say(f"comparing {len(trial.models)} models in {folder}")
        overall = Overall(report, [part.weight for part in parts])
        for number, part in enumerate(parts):
            with overall.part(number, str(part)):
                failure = None if part.file(folder).exists() else run_part(folder, part, overall)
            if failure:
                report.say(f"{part}: {failure.message}")
                failures.append(failure)
        return _finish(folder, job, failures)


def survey(data: Path, words: Sequence[str], trial: Trial, report: Callback) -> dict[str, Any]:
    """Everything that can be wrong with the file or the settings, before anything is trained; and what is in it."""
    configs = [api.configure(translation.Task, [*words, f"model.architecture={model}"]) for model in trial.models]
    config, training = configs[0]
    with tempfile.TemporaryDirectory(prefix="saccade-") as place:
        run = Run(Path(place))
        run.assets.mkdir()
        notes = translation.Task.prepare(config, data, run.assets, lambda share: report.advance("reading", share))
        with torch.device("meta"):  # shapes alone: whether a model fits the memory is its own affair
            opened, *_ = [translation.Task.open(one, run.assets) for one, _ in configs]
        notes += opened.load_data(data, lambda share: report.advance("tokenizing", share))
        for note in notes:
            report.say(note)
        valid = opened.parts[Split.VALID]
        hashes = loading.hashes(run)
    lengths = valid.source.lengths
    edges = sorted({int(edge) for edge in np.quantile(lengths, CLASSES)} - {0, int(lengths.min())})
    middle = int(np.argsort(lengths, kind="stable")[len(lengths) // 2])
    source, target = valid.texts[middle]
    return {
        "format": FORMAT,
        "data": str(data.resolve()),
        "models": list(trial.models),
        "words": list(words),
        "probe_minutes": trial.probe,
        "sentence": trial.sentence or source,
        "reference": "" if trial.sentence else target,
        "edges": edges,
        "fingerprint": opened.fingerprint,
        "assets": hashes,
        "notes": notes,
        "settings": to_json(training),
        "seed": training.seed,
    }


def _folder(root: Path, name: str, data: Path, described: dict[str, Any]) -> Path:
    """The folder of a new comparison, or of the one by that name."""
    if name and (root / name / FILE).is_file():
        return root / name
    about = {
        **described,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": _machine(described["settings"]["device"]),
    }
    free = runs.free_name(root, f"{data.name.split('.')[0]}-compare")
    return runs.create_folder(root, name or free, FILE, about).folder


def _machine(device: str) -> dict[str, str]:
    """What the numbers were made on and with."""
    return {
        "saccade": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": _processor(),
        "device": describe_device(choose_device(device)),
    }


def _processor() -> str:
    """The name of the processor, as far as the system tells it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _same(folder: Path, job: dict[str, Any], found: dict[str, Any]) -> None:
    """Refuse to go on with other data or settings than the comparison began with."""
    if job.get("format") != FORMAT:
        raise UsageError(f"{folder / FILE}: format must be {FORMAT}, but is {job.get('format')}; update saccade")
    for key in ("models", "words", "probe_minutes", "sentence", "data"):
        if job.get(key) != found[key]:
            raise UsageError(
                f"{key} must be {job.get(key)!r} to go on with the comparison '{folder.name}', but is {found[key]!r}; "
                "give the same words again, or another --name"
            )
    if (job.get("fingerprint"), job.get("assets")) != (found["fingerprint"], found["assets"]):
        raise DataError(
            f"{found['data']}: fingerprint {found['fingerprint']}, expected {job.get('fingerprint')}: the data have "
            f"changed since the comparison '{folder.name}' began; bring them back to go on, or choose another --name"
        )


def _parts(trial: Trial, minutes: float) -> list[Part]:
    """The processes of a comparison, in their order, and how long they may take; where steps are given, who knows."""
    train = [Part(model, "train", 66 * (minutes or 1.0)) for model in trial.models]
    kinds = ("copy", "reverse") if trial.probe else ()
    probes = [Part(model, kind, 36 * trial.probe) for model in trial.models for kind in kinds]
    return [*train, *probes, Part("", "memory", 5)]


def _finish(folder: Path, job: dict[str, Any], failures: list[Failure]) -> Comparison:
    """Put the parts together, check that they were made of the same data, and write the report."""
    if len([failure for failure in failures if failure.part.stage == "train"]) == len(job["models"]):
        first = failures[0]
        error = SaccadeError(f"no model could be trained; {first.part}: {first.message}")
        error.exit_code = first.exit_code
        raise error
    result = gather(folder, job, failures)
    write_json(folder / "report.json", result)
    aside = folder / "report.html.tmp"
    write(aside, reports.page(result).encode())
    aside.replace(folder / "report.html")
    return Comparison(folder, result)


def gather(folder: Path, job: dict[str, Any], failures: Sequence[Failure] = ()) -> dict[str, Any]:
    """All numbers of a comparison in one JSON object."""
    models = []
    for name in job["models"]:
        own = {"name": name}
        for stage in ("train", "copy", "reverse"):
            file = Part(name, stage).file(folder)
            if file.exists():
                own |= read_json(file) if stage == "train" else {stage: read_json(file)}
        failed = {failure.part.stage: failure.message for failure in failures if failure.part.model == name}
        models.append({**own, **({"failed": failed} if failed else {})})
    for model in models:
        if "assets" in model and (model["assets"], model["fingerprint"]) != (job["assets"], job["fingerprint"]):
            raise DataError(
                f"{job['data']}: {model['name']} was trained on data with fingerprint {model['fingerprint']}, expected "
                f"{job['fingerprint']}: the file has changed meanwhile; compare again under another --name"
            )
    memory = Part("", "memory").file(folder)
    result = {"run": job, "models": models, "attention_memory": read_json(memory) if memory.exists() else None}
    return {**result, "summary": reports.summary(result)}
