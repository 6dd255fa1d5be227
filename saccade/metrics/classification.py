"""Metrics of classification and regression: accuracy, F1, confusion matrices and correlations."""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from saccade import __version__
from saccade.metrics.generation import Counts, Score

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Confusion:
    """Confusion matrix: how often each reference label (a row) was predicted as which label (a column)."""

    labels: tuple[str, ...]
    table: NDArray[np.int64]


@dataclass(frozen=True)
class LabelScores:
    """Predicted and reference labels, counted by label."""

    by_label: dict[str, Counts]

    @property
    def micro(self) -> Score:
        """Micro-averaged F1, 0 to 100; frequent labels weigh most."""
        total = sum(self.by_label.values(), Counts(0, 0, 0))
        return Score(total.f1, f"F1|average:micro|version:saccade-{__version__}")

    @property
    def macro(self) -> Score:
        """Macro-averaged F1, 0 to 100; every label weighs the same."""
        value = sum(counts.f1 for counts in self.by_label.values()) / len(self.by_label)
        return Score(value, f"F1|average:macro|version:saccade-{__version__}")

    def of(self, label: str) -> Score:
        """Return the F1 of one label, 0 to 100."""
        counts = self.by_label.get(label, Counts(0, 0, 0))
        return Score(counts.f1, f"F1|label:{label}|version:saccade-{__version__}")


def accuracy(predictions: Sequence[Hashable], references: Sequence[Hashable]) -> Score:
    """Accuracy: fraction of rows with exactly the reference label or labels, 0 to 100."""
    _check(predictions, references)
    correct = sum(predicted == expected for predicted, expected in zip(predictions, references, strict=True))
    return Score(100 * correct / len(references), f"accuracy|version:saccade-{__version__}")


def score_labels(predictions: Sequence[Collection[str]], references: Sequence[Collection[str]]) -> LabelScores:
    """Compare rows of one or several labels each, by label; labels that occur on neither side are left out."""
    _check(predictions, references)
    rows = [(set(predicted), set(expected)) for predicted, expected in zip(predictions, references, strict=True)]
    labels = sorted(set().union(*(predicted | expected for predicted, expected in rows)))
    if not labels:
        raise ValueError(f"a row must hold a label, but all {len(references)} rows are empty")
    return LabelScores(
        {
            label: Counts(
                hits=sum(label in predicted and label in expected for predicted, expected in rows),
                predicted=sum(label in predicted for predicted, _ in rows),
                expected=sum(label in expected for _, expected in rows),
            )
            for label in labels
        }
    )


def confusion(predictions: Sequence[str], references: Sequence[str], labels: Sequence[str] | None = None) -> Confusion:
    """Return the confusion matrix in the order of `labels` (None: the labels that occur, sorted)."""
    _check(predictions, references)
    names = tuple(sorted({*predictions, *references}) if labels is None else labels)
    index = {label: number for number, label in enumerate(names)}
    unknown = next((label for label in (*predictions, *references) if label not in index), None)
    if unknown is not None:
        raise ValueError(f"labels must name every label, but '{unknown}' is missing")
    table = np.zeros((len(names), len(names)), dtype=np.int64)
    np.add.at(table, ([index[label] for label in references], [index[label] for label in predictions]), 1)
    return Confusion(names, table)


def pearson(predictions: Sequence[float], references: Sequence[float]) -> Score:
    """Pearson correlation, -100 to 100; 0 where every prediction is the same."""
    return Score(100 * _correlation(*_numbers(predictions, references)), f"pearson|version:saccade-{__version__}")


def spearman(predictions: Sequence[float], references: Sequence[float]) -> Score:
    """Spearman rank correlation, -100 to 100; equal numbers share their mean rank."""
    predicted, expected = map(_ranks, _numbers(predictions, references))
    return Score(100 * _correlation(predicted, expected), f"spearman|ties:mean|version:saccade-{__version__}")


def _check(predictions: Sequence[object], references: Sequence[object]) -> None:
    if len(predictions) != len(references):
        lengths = f"{len(predictions)} and {len(references)}"
        raise ValueError(f"predictions and references must have the same length, but have {lengths}")
    if not len(references):
        raise ValueError("references must hold at least one row, but are empty")


def _numbers(predictions: Sequence[float], references: Sequence[float]) -> tuple[Numbers, Numbers]:
    _check(predictions, references)
    predicted, expected = np.asarray(predictions, dtype=np.float64), np.asarray(references, dtype=np.float64)
    for name, numbers in (("predictions", predicted), ("references", expected)):
        if not np.isfinite(numbers).all():
            raise ValueError(f"{name} must hold finite numbers, but one is {numbers[~np.isfinite(numbers)][0]}")
    if np.all(expected == expected[0]):
        raise ValueError(f"references must hold different numbers, but all {len(expected)} are {expected[0]:g}")
    return predicted, expected


def _ranks(numbers: Numbers) -> Numbers:
    """Return the rank of each number, from 1; equal numbers get the mean of their ranks."""
    _, inverse, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    means: Numbers = (last - (counts - 1) / 2)[inverse]
    return means


def _correlation(predicted: Numbers, expected: Numbers) -> float:
    if np.all(predicted == predicted[0]):
        return 0.0
    # Scaled first, so that squares of very large or small numbers stay finite.
    scaled = (predicted / np.abs(predicted).max(), expected / np.abs(expected).max())
    left, right = (side - side.mean() for side in scaled)
    value = (left / np.linalg.norm(left)) @ (right / np.linalg.norm(right))
    return float(np.clip(value, -1.0, 1.0))
