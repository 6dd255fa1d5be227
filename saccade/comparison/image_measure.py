"""Measurements of each trained image classifier of a comparison, and the pictures on which its attention is shown.

Shapes: H x W pixels.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from saccade import api
from saccade.atomic_io import read_json
from saccade.comparison.history import curve, losses, speed
from saccade.comparison.kind import OnProgress
from saccade.core import AttentionMaps, Split, Task
from saccade.core.serialize import image_url
from saccade.look.panels import panels
from saccade.metrics.alignment import mean_heads
from saccade.run import Run
from saccade.tasks import image_classification

UNIT = "images"
PICTURES = 4  # validation images that are shown
WARM_UP = 64  # images that are classified before the time is measured


def classifier(task: Task) -> image_classification.Task:
    """Return the task as what it is: an image classifier."""
    if not isinstance(task, image_classification.Task):
        raise TypeError(f"task must be an image classifier, but is {type(task).__module__}")
    return task


def measure_run(run: Run, settings: Mapping[str, Any], on_progress: OnProgress) -> dict[str, Any]:
    """Return all measurements of a trained image classifier, as JSON."""
    task = classifier(api.load(run.path).task)
    task.load_data(Path(settings["data"]))
    task.check_fingerprint(settings["fingerprint"], Path(settings["data"]), run.name)
    data, points = read_json(run.path / "data.json"), losses(run, UNIT)
    return {
        "scores": dict(run.metrics),
        "score": task.metric.name,
        "signatures": dict(run.evaluation.signatures),
        "parameters": sum(weight.numel() for weight in task.model.parameters()),
        **speed(run, UNIT),
        "epochs": points[-1][2] / len(task.splits[Split.TRAIN]),
        **_classify(task, on_progress),
        "curve": curve(run, UNIT),
        "losses": points,
        "pictures": [_predict(task, picture) for picture in settings["pictures"]],
        "assets": data["assets"],
        "fingerprint": data["fingerprint"],
    }


def _classify(task: image_classification.Task, on_progress: OnProgress) -> dict[str, Any]:
    """Classify all validation images, measure the time, and count the correct ones of each label."""
    examples = task.splits[Split.VALID]
    rows = list(range(len(examples)))
    task.logits(examples, rows[:WARM_UP])
    start = time.perf_counter()
    logits = task.logits(examples, rows, lambda fraction: on_progress("classifying", fraction))
    seconds = time.perf_counter() - start
    counts = {label: {"count": 0, "correct": 0} for label in task.labels}
    for label, number in zip(examples.rows.texts["label"], logits.argmax(-1).tolist(), strict=True):
        counts[label]["count"] += 1
        counts[label]["correct"] += label == task.labels[number]
    by_label = {label: count for label, count in counts.items() if count["count"]}
    return {"inference_images_per_second": len(rows) / max(seconds, 1e-9), "by_label": by_label}


def choose_pictures(task: image_classification.Task, files: Sequence[str]) -> list[dict[str, Any]]:
    """Return the pictures on which attention is shown, as the networks see them: files, or validation images."""
    (field,) = task.inputs
    examples = task.splits[Split.VALID]
    pictures: list[dict[str, Any]]
    if files:
        pictures = [{"name": Path(file).name, "label": "", "row": None, "file": file} for file in files]
        values = [field.read(file) for file in files]
    else:
        labels = examples.rows.texts["label"]
        rows = spread_rows(labels)
        pictures = [
            {"name": examples.rows.origins.describe(row), "label": labels[row], "row": row, "file": ""} for row in rows
        ]
        values = [examples.pixels([row])[0] for row in rows]
    return [
        {**picture, "image": image_url(task.format.read(value, picture["name"]))}
        for picture, value in zip(pictures, values, strict=True)
    ]


def spread_rows(labels: Iterable[str], count: int = PICTURES) -> list[int]:
    """Return the first row of each of some labels, which are spread evenly over the sorted ones."""
    first: dict[str, int] = {}
    for row, label in enumerate(labels):
        first.setdefault(label, row)
    names = sorted(first)
    chosen = np.unique(np.linspace(0, len(names) - 1, min(count, len(names))).round().astype(int))
    return [first[names[number]] for number in chosen.tolist()]


def _predict(task: image_classification.Task, picture: Mapping[str, Any]) -> dict[str, Any]:
    """Return the predicted label of a picture, its probability, and where the last attention looks."""
    (field,) = task.inputs
    value: bytes | Tensor
    if picture["row"] is None:
        value = field.read(picture["file"])
    else:
        value = task.splits[Split.VALID].pixels([picture["row"]])[0]  # (3, H, W)
    (prediction,) = task.predict([{"image": value}], task.Options(attention=True))
    return {
        "label": prediction.text,
        "probability": round(prediction.scores[prediction.text], 6),
        "attention": attention_to_json(prediction.attention),
    }


def attention_to_json(attention: AttentionMaps) -> dict[str, Any] | None:
    """Return the weights of the last layer over the image, the mean of its heads; None: there is no attention.

    The query is the class position where there is one, else the mean of all cells.
    """
    if not attention:
        return None
    layer = mean_heads(list(attention.values())[-1])
    panel = panels(layer)[0]
    weights = [[round(weight, 6) for weight in row] for row in panel.weights.tolist()]
    return {"name": layer.name, "query": panel.label, "weights": weights, "extra": dict(panel.extra)}
