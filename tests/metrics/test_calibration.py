"""Calibration error: equal to a plain loop over the bins; 0 of a calibrated model, large of an over-confident one."""

from itertools import pairwise

import numpy as np
import pytest

from saccade import __version__
from saccade.metrics.calibration import calibration_error


def by_loop(probabilities, references, bins):
    """The definition, one row and one bin at a time."""
    edges = np.linspace(0, 1, bins + 1)
    error = 0.0
    for low, high in pairwise(edges):
        rows = [row for row, line in enumerate(probabilities) if low < max(line) <= high]
        if rows:
            confidence = np.mean([max(probabilities[row]) for row in rows])
            accuracy = np.mean([int(np.argmax(probabilities[row])) == references[row] for row in rows])
            error += len(rows) / len(references) * abs(confidence - accuracy)
    return 100 * error


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_the_error_is_that_of_the_definition(bins):
    generator = np.random.default_rng(bins)
    for classes in (2, 5, 20):
        probabilities = generator.dirichlet(np.full(classes, 0.4), 300)
        references = generator.integers(classes, size=300)
        ours = calibration_error(probabilities, references.tolist(), bins)
        assert ours.value == pytest.approx(by_loop(probabilities, references, bins), abs=1e-9)
        assert ours.value > 5
        assert ours.signature == f"calibration:expected|bins:{bins}|version:saccade-{__version__}"


def test_edges_belong_to_the_bin_below():
    # With two bins, 0.5 is in the first and 1 in the second: |0.5 - 0| / 2 + |1 - 1| / 2
    assert calibration_error([[0.5, 0.5], [1.0, 0.0]], [1, 0], bins=2).value == pytest.approx(25)


def rows(confidence, correct, wrong):
    return [[confidence, 1 - confidence]] * (correct + wrong), [0] * correct + [1] * wrong


def test_a_calibrated_model_has_no_error():
    first, second = rows(0.8, 8, 2), rows(0.6, 6, 4)
    assert calibration_error(first[0] + second[0], first[1] + second[1]).value == pytest.approx(0, abs=1e-9)


def test_an_over_confident_model_has_the_difference():
    probabilities, references = rows(0.99, 60, 40)
    assert calibration_error(probabilities, references).value == pytest.approx(39)
    assert calibration_error(*rows(0.6, 10, 0)).value == pytest.approx(40)  # and so has a timid one


@pytest.mark.parametrize(
    "probabilities, references, bins, message",
    [
        ([[0.5, 0.5]], [0], 0, "bins must be at least 1, but is 0"),
        ([[1.0, 0.0], [2.0, 1.0]], [0, 1], 15, "probabilities must be at least 0 and sum to 1, but row 1 sums to 3"),
        ([[1.5, -0.5]], [0], 15, "probabilities must be at least 0 and sum to 1, but row 0 sums to 1"),
        ([[1.0, 0.0]], [2], 15, "references must be classes from 0 to 1, but one is 2"),
    ],
)
def test_what_cannot_be_scored_is_refused(probabilities, references, bins, message):
    with pytest.raises(ValueError) as caught:
        calibration_error(probabilities, references, bins)
    assert str(caught.value) == message
