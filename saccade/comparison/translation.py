"""Comparison of translation models: RNN, RNN with attention, convolution, Transformer, Universal Transformer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from saccade.comparison import MODELS, measure, probe, report, summary
from saccade.comparison.kind import ComparisonKind, OnProgress, minutes_per_model
from saccade.comparison.process import Job
from saccade.comparison.trial import Trial
from saccade.core import Split
from saccade.run import Run

QUANTILES = (0.2, 0.4, 0.6, 0.8, 0.95)  # of the source lengths: edges of the length classes
SHARED = ("train.seed=", "train.device=", "train.precision=")  # overrides that also apply to the probe
PROBES = {"copy": ": copying", "reverse": ": reversing"}
MEMORY = "attention_memory"


class TranslationComparison(ComparisonKind):
    """Quality by length, speed, memory, receptive field and alignment; and a probe that copies and reverses."""

    task: ClassVar[str] = "translation"
    models: ClassVar[tuple[str, ...]] = MODELS
    options: ClassVar[tuple[str, ...]] = ("probe_minutes", "sentence")

    def describe(self, task: Any, trial: Trial) -> dict[str, Any]:
        valid = task.splits[Split.VALID]
        lengths = valid.source.lengths
        edges = sorted({int(edge) for edge in np.quantile(lengths, QUANTILES)} - {0, int(lengths.min())})
        median = int(np.argsort(lengths, kind="stable")[len(lengths) // 2])
        source, target = valid.texts[median]
        return {
            "probe_minutes": trial.probe,
            "sentence": trial.sentence or source,
            "reference": "" if trial.sentence else target,
            "edges": edges,
        }

    def jobs(self, settings: Mapping[str, Any]) -> list[Job]:
        models, minutes = settings["models"], settings["probe_minutes"]
        train = [Job(model, "train", 66 * minutes_per_model(settings)) for model in models]
        probes = [Job(model, kind, 36 * minutes, label) for model in models for kind, label in PROBES.items()]
        return [*train, *(probes if minutes else []), Job("", MEMORY, 5, "memory of attention")]

    def training(self, job: Job, settings: Mapping[str, Any]) -> tuple[str, list[str]] | None:
        if job.stage == MEMORY:
            return None
        if job.stage == "train":
            return super().training(job, settings)
        shared = [override for override in settings["overrides"] if override.startswith(SHARED)]
        budget = [f"train.minutes={settings['probe_minutes'] / 2}", "train.optim.cooldown=0.3"]
        return probe.__name__, [*shared, *budget, f"model.architecture={job.model}", f"kind={job.stage}"]

    def measure(
        self, job: Job, run: Run | None, settings: Mapping[str, Any], on_progress: OnProgress
    ) -> dict[str, Any]:
        if run is None:
            return measure.attention_memory(lambda fraction: on_progress("measuring", fraction))
        if job.stage == "train":
            return measure.measure_run(run, settings, on_progress)
        return measure.probe_results(run, probe.LENGTHS)

    def summary(self, result: dict[str, Any]) -> list[str]:
        return summary.summary(result)

    def page(self, result: dict[str, Any]) -> str:
        return report.page(result)

    def text_table(self, result: dict[str, Any]) -> list[str]:
        return summary.text_table(result)
