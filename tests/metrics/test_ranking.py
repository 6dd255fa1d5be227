"""Ranking metrics against scikit-learn."""

import numpy as np
import pytest

from saccade.metrics.ranking import mae, rmse, roc_auc

metrics = pytest.importorskip("sklearn.metrics", reason="the oracle; installed with the [test] extra")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("classes", [2, 3, 5])
def test_the_area_under_the_curve_equals_that_of_scikit_learn(classes, seed):
    draw = np.random.default_rng(seed)
    scores = draw.integers(0, 6, size=(80, classes)).astype(float) + 0.5  # with ties
    scores /= scores.sum(1, keepdims=True)
    expected = np.concatenate((np.arange(classes), draw.integers(0, classes, 80 - classes)))
    if classes == 2:
        reference = metrics.roc_auc_score(expected, scores[:, 1])
    else:
        reference = metrics.roc_auc_score(expected, scores, multi_class="ovr", average="macro")
    assert roc_auc(scores, expected.tolist()).value == pytest.approx(reference, abs=1e-12)


def test_a_perfect_a_reversed_and_a_constant_ranking():
    for column, area in (([0.1, 0.2, 0.8, 0.9], 1.0), ([0.9, 0.8, 0.2, 0.1], 0.0), ([0.5] * 4, 0.5)):
        assert roc_auc([[1 - value, value] for value in column], [0, 0, 1, 1]).value == area


def test_a_missing_class_and_a_wrong_shape_are_refused():
    with pytest.raises(ValueError, match=r"every one of 2 classes, but have \[1\]"):
        roc_auc([[0.5, 0.5]], [1])
    with pytest.raises(ValueError, match=r"\(rows, classes\) for 2 references, but are \(1, 2\)"):
        roc_auc([[0.5, 0.5]], [1, 0])


def test_errors_of_numbers_equal_those_of_scikit_learn():
    draw = np.random.default_rng(0)
    predicted, expected = draw.normal(size=50).tolist(), draw.normal(size=50).tolist()
    assert rmse(predicted, expected).value == pytest.approx(metrics.root_mean_squared_error(expected, predicted))
    assert mae(predicted, expected).value == pytest.approx(metrics.mean_absolute_error(expected, predicted))
