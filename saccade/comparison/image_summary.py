"""Summary of a comparison of image classifiers in sentences and as a table, from measured numbers alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from saccade.comparison.summary import align_columns, enumerate_names, extremes, failures

Model = dict[str, Any]
NAMES = {"cnn": "CNN", "cnn+attention": "CNN + attention", "hybrid": "hybrid", "vit": "ViT"}
CONVOLUTIONAL = ("cnn", "cnn+attention", "hybrid")
SCORES = {"accuracy": "accuracy", "top5": "top-5", "calibration_error": "calibration error", "loss": "loss"}
HIGHER_IS_BETTER = ("accuracy", "top5")
TOP = 5  # labels of the top-5 accuracy, which is 100 where there are no more
Z = 1.96  # 95% of a normal distribution


def interval(percent: float, count: int) -> tuple[float, float]:
    """Return the 95% interval of an accuracy on `count` images, in percent (Wilson's score interval)."""
    p, weight = percent / 100, Z * Z / count
    centre = (p + weight / 2) / (1 + weight)
    half = Z * math.sqrt(p * (1 - p) / count + weight / count / 4) / (1 + weight)
    return max(0.0, 100 * (centre - half)), min(100.0, 100 * (centre + half))


def noise(first: float, second: float, count: int) -> float:
    """Return the difference of two accuracies on `count` images that is within noise, in percent.

    Half of the 95% interval of a difference of proportions, with one correct and one wrong image added to each
    (Agresti & Caffo 2000), so that it is not 0 for perfect models.
    """
    variance = 0.0
    for percent in (first, second):
        p = (percent / 100 * count + 1) / (count + 2)
        variance += p * (1 - p) / (count + 2)
    return 100 * Z * math.sqrt(variance)


def score_names(result: dict[str, Any]) -> list[str]:
    """Return the names of the scores, the main one first; top-5 only where there are more labels."""
    return [name for name in SCORES if name != "top5" or len(result["run"]["labels"]) > TOP]


def accuracy(model: Model) -> float:
    return float(model["scores"]["accuracy"])


def accuracy_interval(model: Model) -> tuple[float, float]:
    """Return the 95% interval of the accuracy of a model."""
    return interval(accuracy(model), round(model["scores"]["images"]))


def format_score(name: str, value: float) -> str:
    return f"{value:.3f}" if name == "loss" else f"{value:.1f}"


def summary(result: dict[str, Any]) -> list[str]:
    """Return sentences, the most important first."""
    done = [model for model in result["models"] if "scores" in model]
    sentences = failures(result["models"], NAMES)
    if len(done) < 2:
        return sentences
    return [*sentences, *_quality(done), *_parts(done), *_cost(done), *_calibration(done), LIMITS]


LIMITS = (
    "This is one run per model, from scratch: the noise above is that of the validation images alone; another seed, "
    "more time, more images or pretrained weights may change the order."
)


def _quality(done: list[Model]) -> list[str]:
    """Return the best and the last model, and which of the others are within noise of the best."""
    best, *others = sorted(done, key=lambda model: -accuracy(model))
    last, count = others[-1], round(best["scores"]["images"])
    gap = accuracy(best) - accuracy(others[0])
    below = f"{gap:.1f} points above {_article(others[0])}" if gap else f"the same as {_article(others[0])}"
    sentence = f"{_capital(best)} is best with {accuracy(best):.1f}% accuracy, {below}"
    if len(others) > 1:
        sentence += f"; {_article(last)} is last with {accuracy(last):.1f}%"
    margin = noise(accuracy(best), accuracy(others[0]), count)
    close = [_article(model) for model in others if accuracy(best) - accuracy(model) < margin]
    verdict = (
        f"{enumerate_names(close)} cannot be told from the best" if close else "the best is better than all others"
    )
    return [
        f"{sentence}. Always predicting the most frequent label scores {majority(best):.1f}%.",
        f"On {count:,} validation images differences below {margin:.1f} points are within noise (95%): {verdict}.",
    ]


def majority(model: Model) -> float:
    """Return the accuracy of always predicting the most frequent label of the validation images, in percent."""
    counts = [label["count"] for label in model["by_label"].values()]
    return float(100 * max(counts) / sum(counts))


def within_noise(first: Model, second: Model) -> bool:
    """Whether chance explains the difference of two models on the same number of images."""
    return abs(accuracy(first) - accuracy(second)) < noise(
        accuracy(first), accuracy(second), round(first["scores"]["images"])
    )


def _parts(done: list[Model]) -> list[str]:
    """Return what convolutions and what attention are worth, by the pairs of models that differ in them."""
    named, sentences = {model["name"]: model for model in done}, []
    convolutional = [model for model in done if model["name"] in CONVOLUTIONAL]
    if "vit" in named and convolutional:
        versus = _versus(named["vit"], max(convolutional, key=accuracy))
        sentences.append(
            f"Without convolutions the ViT reaches {accuracy(named['vit']):.1f}% with the same budget, {versus}."
        )
    if {"cnn", "cnn+attention"} <= named.keys():
        versus = _versus(named["cnn+attention"], named["cnn"])
        sentences.append(f"Self-attention between its convolutions: the CNN + attention is {versus}.")
    if {"hybrid", "vit"} <= named.keys():
        versus = _versus(named["hybrid"], named["vit"])
        sentences.append(f"Convolutions before the Transformer: the hybrid is {versus}.")
    return sentences


def _versus(model: Model, reference: Model) -> str:
    """Return how much a model is above or below another one, in words."""
    points = accuracy(model) - accuracy(reference)
    if not points:
        return f"as accurate as {_article(reference)}"
    direction = "above" if points > 0 else "below"
    hedge = ", which is within noise" if within_noise(reference, model) else ""
    return f"{abs(points):.1f} points {direction} {_article(reference)}{hedge}"


def _cost(done: list[Model]) -> list[str]:
    slow, fast = extremes(done, lambda model: model["images_per_second"])
    slowest, fastest = extremes(done, lambda model: model["inference_images_per_second"])
    least, most = extremes(done, lambda model: model["peak_bytes"])
    ratio = fast["images_per_second"] / max(slow["images_per_second"], 1e-9)
    return [
        f"{_capital(fast)} trains on {fast['images_per_second']:,.0f} images per second, {ratio:.1f} times as many as "
        f"{_article(slow)}: {fast['epochs']:.1f} and {slow['epochs']:.1f} epochs.",
        f"{_capital(fastest)} classifies {fastest['inference_images_per_second']:,.0f} images per second, "
        f"{_article(slowest)} {slowest['inference_images_per_second']:,.0f}; peak memory ranges from "
        f"{least['peak_bytes'] / 1e6:,.0f} MB ({NAMES[least['name']]}) to {most['peak_bytes'] / 1e6:,.0f} MB "
        f"({NAMES[most['name']]}).",
    ]


def _calibration(done: list[Model]) -> list[str]:
    best, worst = extremes(done, lambda model: model["scores"]["calibration_error"])
    low, high = (model["scores"]["calibration_error"] for model in (best, worst))
    return [
        f"The probabilities of {_article(best)} are calibrated best, with an expected error of {low:.1f} points; those "
        f"of {_article(worst)} worst, with {high:.1f}."
    ]


def _capital(model: Model) -> str:
    return f"The {NAMES[model['name']]}"


def _article(model: Model) -> str:
    return f"the {NAMES[model['name']]}"


COLUMNS: dict[str, Callable[[Model], str]] = {
    "parameters": lambda model: f"{model['parameters']:,}",
    "training images/s": lambda model: f"{model['images_per_second']:,.0f}",
    "steps": lambda model: f"{model['steps']:,}",
    "epochs": lambda model: f"{model['epochs']:.1f}",
    "inference images/s": lambda model: f"{model['inference_images_per_second']:,.0f}",
    "peak MB": lambda model: f"{model['peak_bytes'] / 1e6:,.0f}",
}
"""costs of a model by their title"""


def format_interval(model: Model) -> str:
    low, high = accuracy_interval(model)
    return f"{low:.1f}-{high:.1f}"


def score_cells(model: Model, names: Sequence[str]) -> list[str]:
    """Return the scores of a model as text, the interval of the accuracy after it."""
    scores = [format_score(name, model["scores"][name]) for name in names]
    return [scores[0], format_interval(model), *scores[1:]]


def text_table(result: dict[str, Any]) -> list[str]:
    """Return the table of the models as lines of text."""
    names = score_names(result)
    titles = [SCORES[name] for name in names]
    rows = [["model", titles[0], "95% interval", *titles[1:], *COLUMNS]]
    for model in result["models"]:
        if "scores" not in model:
            rows.append([model["name"], "failed", *[""] * (len(rows[0]) - 2)])
            continue
        rows.append([model["name"], *score_cells(model, names), *(cost(model) for cost in COLUMNS.values())])
    return align_columns(rows)
