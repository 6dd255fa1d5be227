"""Metrics of classification and regression: accuracy, F1, confusion matrices and correlations."""

import re
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from saccade import __version__
from saccade.metrics.generation import Counts, Score

Numbers = NDArray[np.float64]

# Names of the positive and the negative class of two, in lower case without spaces and hyphens.
POSITIVE = {
    *("yes", "true", "positive", "pos", "correct", "relevant", "present", "match", "duplicate", "paraphrase"),
    *("equivalent", "entailment", "acceptable", "spam", "phishing", "fraud", "fake", "toxic", "hate", "hateful"),
    *("abusive", "offensive", "offense", "off", "sarcastic", "sarcasm", "irony", "ironic", "subjective"),
}
NEGATIVE = {
    *("no", "false", "negative", "neg", "none", "neither", "absent", "ham", "legit", "legitimate", "normal", "neutral"),
    *("clean", "benign", "other", "rest", "real", "objective", "not"),
}
NEGATIONS = ("not", "non", "no", "un", "in", "ir", "dis", "anti")


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
        """Return the F1 of one label, the positive class, 0 to 100."""
        counts = self.by_label.get(label, Counts(0, 0, 0))
        return Score(counts.f1, f"F1|positive:{label}|version:saccade-{__version__}")


def positive_label(labels: Sequence[str]) -> str:
    """Return the positive class of two labels by their names, or of two numbers the larger one; empty if unclear."""
    first, second = labels
    if _is_number(first) and _is_number(second):
        return max(labels, key=float)
    plain = {label: re.sub(r"[\s_-]+", "", label.lower()) for label in labels}
    positive = [label for label in labels if plain[label] in POSITIVE]
    negative = [
        label
        for label, other in ((first, second), (second, first))
        if plain[label] in NEGATIVE or any(plain[label] == prefix + plain[other] for prefix in NEGATIONS)
    ]
    if len(negative) == 1:
        return second if negative[0] == first else first
    return positive[0] if len(positive) == 1 and not negative else ""


def accuracy(predictions: Sequence[Hashable], references: Sequence[Hashable]) -> Score:
    """Accuracy: fraction of rows with exactly the reference label or labels, 0 to 100."""
    _check(predictions, references)
    correct = sum(predicted == expected for predicted, expected in zip(predictions, references, strict=True))
    return Score(100 * correct / len(references), f"accuracy|version:saccade-{__version__}")


def top_accuracy(scores: ArrayLike, references: Sequence[int], k: int = 5) -> Score:
    """Top-k accuracy of logits or probabilities (rows, classes): the right class is among the k highest, 0 to 100.

    Equal scores count as if in random order: constant scores give k / classes, not 100.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, but is {k}")
    table, expected = class_scores(scores, references)
    right = table[np.arange(len(table)), expected][:, None]
    higher, equal = (table > right).sum(1), (table == right).sum(1)
    value = 100 * float(np.clip((k - higher) / equal, 0, 1).mean())
    return Score(value, f"accuracy|top:{k}|ties:random|version:saccade-{__version__}")


def class_scores(scores: ArrayLike, references: Sequence[int]) -> tuple[Numbers, NDArray[np.int64]]:
    """Return checked scores (rows, classes) and the reference class of each row as arrays."""
    table, expected = np.asarray(scores, dtype=np.float64), np.asarray(references, dtype=np.int64)
    if table.ndim != 2:
        raise ValueError(f"scores must have the shape (rows, classes), but have {table.shape}")
    if len(table) != len(expected):
        lengths = f"{len(table)} and {len(expected)}"
        raise ValueError(f"scores and references must have the same length, but have {lengths}")
    if not table.size:
        raise ValueError("scores must hold at least one row and class, but are empty")
    if not np.isfinite(table).all():
        raise ValueError(f"scores must be finite, but one is {table[~np.isfinite(table)][0]}")
    if expected.min() < 0 or expected.max() >= table.shape[1]:
        wrong = expected[(expected < 0) | (expected >= table.shape[1])][0]
        raise ValueError(f"references must be classes from 0 to {table.shape[1] - 1}, but one is {wrong}")
    return table, expected


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


def _is_number(label: str) -> bool:
    try:
        float(label)
    except ValueError:
        return False
    return True


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
