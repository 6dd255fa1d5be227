"""Agreement: how well found labels and numbers agree with the wanted ones, for classification and regression."""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from saccade import __version__
from saccade.metrics.generation import Counts, Score


@dataclass(frozen=True)
class Confusion:
    """How often each wanted label (a row) was found as which label (a column)."""

    labels: tuple[str, ...]
    table: NDArray[np.int64]


@dataclass(frozen=True)
class LabelScores:
    """Labels found and wanted, each and all together."""

    by_label: dict[str, Counts]

    @property
    def micro(self) -> Score:
        """F1 over all labels together, 0 to 100; frequent labels weigh most."""
        total = sum(self.by_label.values(), Counts(0, 0, 0))
        return Score(total.f1, f"F1|average:micro|version:saccade-{__version__}")

    @property
    def macro(self) -> Score:
        """The mean of the F1 of each label, 0 to 100; every label weighs the same."""
        value = sum(counts.f1 for counts in self.by_label.values()) / len(self.by_label)
        return Score(value, f"F1|average:macro|version:saccade-{__version__}")

    def of(self, label: str) -> Score:
        """The F1 of one label, 0 to 100."""
        counts = self.by_label.get(label, Counts(0, 0, 0))
        return Score(counts.f1, f"F1|label:{label}|version:saccade-{__version__}")


def accuracy(found: Sequence[Hashable], wanted: Sequence[Hashable]) -> Score:
    """Share of rows with the right label, or with all the right labels and no other, 0 to 100."""
    _check(found, wanted)
    right = sum(ours == theirs for ours, theirs in zip(found, wanted, strict=True))
    return Score(100 * right / len(wanted), f"accuracy|version:saccade-{__version__}")


def score_labels(found: Sequence[Collection[str]], wanted: Sequence[Collection[str]]) -> LabelScores:
    """Compare rows of one or several labels each, by label; labels that are neither found nor wanted are left out."""
    _check(found, wanted)
    rows = [(set(ours), set(theirs)) for ours, theirs in zip(found, wanted, strict=True)]
    labels = sorted(set().union(*(ours | theirs for ours, theirs in rows)))
    if not labels:
        raise ValueError(f"found and wanted must hold at least one label, but all {len(wanted)} rows are empty")
    return LabelScores(
        {
            label: Counts(
                hits=sum(label in ours and label in theirs for ours, theirs in rows),
                found=sum(label in ours for ours, _ in rows),
                wanted=sum(label in theirs for _, theirs in rows),
            )
            for label in labels
        }
    )


def confusion(found: Sequence[str], wanted: Sequence[str], labels: Sequence[str] | None = None) -> Confusion:
    """The table of wanted against found labels, in the order of `labels` (None: sorted, those that occur)."""
    _check(found, wanted)
    names = tuple(sorted({*found, *wanted}) if labels is None else labels)
    places = {label: place for place, label in enumerate(names)}
    foreign = next((label for label in (*found, *wanted) if label not in places), None)
    if foreign is not None:
        raise ValueError(f"labels must name every label, but '{foreign}' is missing")
    table = np.zeros((len(names), len(names)), dtype=np.int64)
    np.add.at(table, ([places[label] for label in wanted], [places[label] for label in found]), 1)
    return Confusion(names, table)


def matthews(found: Sequence[str], wanted: Sequence[str]) -> Score:
    """Matthews' correlation of two or more labels, -100 to 100; 0 where one side has only one label.

    J. Gorodkin, Comparing two K-category assignments by a K-category correlation coefficient, 2004.
    """
    table = confusion(found, wanted).table.astype(np.float64)
    rows, columns, total = table.sum(axis=1), table.sum(axis=0), table.sum()
    spread = (total**2 - rows @ rows) * (total**2 - columns @ columns)
    value = (np.trace(table) * total - rows @ columns) / np.sqrt(spread) if spread > 0 else 0.0
    return Score(100 * float(value), f"matthews|version:saccade-{__version__}")


def pearson(found: Sequence[float], wanted: Sequence[float]) -> Score:
    """Linear correlation of two lists of numbers, -100 to 100; 0 where every number found is the same."""
    return Score(100 * _correlation(*_numbers(found, wanted)), f"pearson|version:saccade-{__version__}")


def spearman(found: Sequence[float], wanted: Sequence[float]) -> Score:
    """Correlation of the ranks of two lists of numbers, -100 to 100; equal numbers share their mean rank."""
    ours, theirs = _numbers(found, wanted)
    return Score(100 * _correlation(_ranks(ours), _ranks(theirs)), f"spearman|ties:mean|version:saccade-{__version__}")


def _check(found: Sequence[object], wanted: Sequence[object]) -> None:
    if len(found) != len(wanted):
        raise ValueError(f"found and wanted must be as many, but are {len(found)} and {len(wanted)}")
    if not len(wanted):
        raise ValueError("wanted must hold at least one row, but is empty")


def _numbers(found: Sequence[float], wanted: Sequence[float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    _check(found, wanted)
    ours, theirs = np.asarray(found, dtype=np.float64), np.asarray(wanted, dtype=np.float64)
    for name, numbers in (("found", ours), ("wanted", theirs)):
        if not np.isfinite(numbers).all():
            raise ValueError(f"{name} must hold finite numbers, but one is {numbers[~np.isfinite(numbers)][0]}")
    if np.all(theirs == theirs[0]):
        raise ValueError(f"wanted must hold different numbers, but all {len(theirs)} are {theirs[0]:g}")
    return ours, theirs


def _ranks(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rank of each number, from 1; equal numbers get the mean of the ranks they take together."""
    _, places, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    means: NDArray[np.float64] = (last - (counts - 1) / 2)[places]
    return means


def _correlation(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> float:
    if np.all(ours == ours[0]):
        return 0.0
    # Scaled first, so that squares of very large or small numbers stay numbers.
    left, right = ((side - side.mean()) for side in (ours / np.abs(ours).max(), theirs / np.abs(theirs).max()))
    value = (left / np.linalg.norm(left)) @ (right / np.linalg.norm(right))
    return float(np.clip(value, -1.0, 1.0))
