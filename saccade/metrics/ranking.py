"""Ranking: the area under the ROC curve, and errors of predicted numbers."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from saccade import __version__
from saccade.metrics.generation import Score


def roc_auc(scores: ArrayLike, references: Sequence[int]) -> Score:
    """Area under the ROC curve of scores (rows, classes), 0 to 1: how often a right row ranks above a wrong one.

    Of two classes that of the second; of more the mean over the classes, each against all others. Ties count half.
    """
    table, expected = np.asarray(scores, dtype=np.float64), np.asarray(references)
    if table.ndim != 2 or len(table) != len(expected):
        raise ValueError(f"scores must be (rows, classes) for {len(expected)} references, but are {table.shape}")
    classes = [1] if table.shape[1] == 2 else list(range(table.shape[1]))
    present = set(expected.tolist())
    if not all(label in present for label in range(table.shape[1])):
        raise ValueError(f"references must have every one of {table.shape[1]} classes, but have {sorted(present)}")
    areas = [_area(table[:, label], expected == label) for label in classes]
    average = "" if len(classes) == 1 else "|average:macro|multi:ovr"
    return Score(float(np.mean(areas)), f"roc_auc{average}|version:saccade-{__version__}")


def _area(scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    """Return the area under one curve, by the ranks of the positive rows (Mann-Whitney)."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (counts.cumsum() - (counts - 1) / 2)[inverse]
    right, wrong = int(positive.sum()), int((~positive).sum())
    return float((ranks[positive].sum() - right * (right + 1) / 2) / (right * wrong))


def rmse(predictions: Sequence[float], references: Sequence[float]) -> Score:
    """Root mean square error."""
    errors = np.asarray(predictions, dtype=np.float64) - np.asarray(references, dtype=np.float64)
    return Score(float(np.sqrt(np.mean(errors**2))), f"rmse|version:saccade-{__version__}")


def mae(predictions: Sequence[float], references: Sequence[float]) -> Score:
    """Mean absolute error."""
    errors = np.asarray(predictions, dtype=np.float64) - np.asarray(references, dtype=np.float64)
    return Score(float(np.mean(np.abs(errors))), f"mae|version:saccade-{__version__}")
