"""Calibration: does a model that is 80% sure give the right answer in 80% of the cases?"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from saccade import __version__
from saccade.metrics.classification import class_scores
from saccade.metrics.generation import Score

BINS = 15
TOLERANCE = 1e-3  # of a row's sum; probabilities may have been rounded to half precision


def calibration_error(probabilities: ArrayLike, references: Sequence[int], bins: int = BINS) -> Score:
    """Expected calibration error of probabilities (rows, classes), 0 to 100; 0 is perfectly calibrated.

    Rows are grouped by the probability of their most probable class into bins of equal width; the result is the mean
    distance between the mean probability and the accuracy of a bin, weighted by its rows.

    C. Guo et al., On calibration of modern neural networks, ICML 2017.
    """
    if bins < 1:
        raise ValueError(f"bins must be at least 1, but is {bins}")
    table, expected = class_scores(probabilities, references)
    invalid = (table < 0).any(1) | (np.abs(table.sum(1) - 1) > TOLERANCE)
    if invalid.any():
        wrong = int(np.argmax(invalid))
        raise ValueError(
            f"probabilities must be at least 0 and sum to 1, but row {wrong} sums to {table[wrong].sum():g}"
        )
    confidence = table.max(1)
    correct = table.argmax(1) == expected
    # A bin includes its upper edge: 1.0 belongs to the last one.
    member = np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], confidence, side="left")
    difference = np.bincount(member, weights=confidence - correct, minlength=bins)
    value = 100 * float(np.abs(difference).sum()) / len(expected)
    return Score(value, f"calibration:expected|bins:{bins}|version:saccade-{__version__}")
