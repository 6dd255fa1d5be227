"""Comparison of image classifiers: CNN, CNN with self-attention, convolutions before a Transformer, ViT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch

from saccade.comparison import IMAGE_MODELS, image_measure, image_report, image_summary
from saccade.comparison.kind import ComparisonKind, OnProgress, minutes_per_model
from saccade.comparison.process import Job
from saccade.comparison.trial import Trial
from saccade.core import Progress, Split, Task
from saccade.errors import UsageError
from saccade.models.vision.architectures import ENCODERS, shape
from saccade.run import Run
from saccade.tasks._vision.encoders import ENCODER, WEIGHTS


class ImageComparison(ComparisonKind):
    """Accuracy overall, over time and by label, calibration, speed, and where each model looks."""

    task: ClassVar[str] = "image_classification"
    models: ClassVar[tuple[str, ...]] = IMAGE_MODELS
    options: ClassVar[tuple[str, ...]] = ("images",)
    own_assets: ClassVar[tuple[str, ...]] = (ENCODER, WEIGHTS)

    def check(self, trial: Trial, overrides: Sequence[str]) -> None:
        super().check(trial, overrides)
        base = next((entry.removeprefix("base=") for entry in overrides if entry.startswith("base=")), "")
        if base:
            raise UsageError(
                f"base must be empty, since every model of a comparison is trained from scratch, but is {base}; "
                "leave it out, or train it by itself: saccade train"
            )

    def open(self, configs: Sequence[Any], data: Path, assets: Path, progress: Progress) -> tuple[Task, list[str]]:
        task, notes = super().open(configs[:1], data, assets, progress)
        size = image_measure.classifier(task).format.size
        with torch.device("meta"):  # the assets describe the encoder of the first model only
            for config in configs[1:]:
                _, create = ENCODERS[config.model.architecture]
                create(shape(config.model, size), size)
        return task, notes

    def describe(self, task: Any, trial: Trial) -> dict[str, Any]:
        files = [str(Path(image).resolve()) for image in trial.images]
        return {
            "images": files,
            "pictures": image_measure.choose_pictures(task, files),
            "labels": list(task.labels),
            "size": task.format.size,
            "counts": {str(split): len(task.splits[split]) for split in (Split.TRAIN, Split.VALID)},
        }

    def jobs(self, settings: Mapping[str, Any]) -> list[Job]:
        return [Job(model, "train", 66 * minutes_per_model(settings)) for model in settings["models"]]

    def measure(
        self, job: Job, run: Run | None, settings: Mapping[str, Any], on_progress: OnProgress
    ) -> dict[str, Any]:
        assert run is not None  # every job trains a model
        return image_measure.measure_run(run, settings, on_progress)

    def summary(self, result: dict[str, Any]) -> list[str]:
        return image_summary.summary(result)

    def page(self, result: dict[str, Any]) -> str:
        return image_report.page(result)

    def text_table(self, result: dict[str, Any]) -> list[str]:
        return image_summary.text_table(result)
