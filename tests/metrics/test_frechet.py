"""The Fréchet distance: equal to the formula with scipy's matrix square root; copies are told from new images."""

import numpy as np
import pytest

from saccade.metrics.frechet import Gaussian, frechet_distance, nearest_distances, novelty

linalg = pytest.importorskip("scipy.linalg", reason="the oracle; installed with the [test] extra")


def features(seed, rows=300, dim=12, shift=0.0):
    draw = np.random.default_rng(seed)
    return draw.standard_normal((rows, dim)) @ draw.standard_normal((dim, dim)) + shift


def by_scipy(first, second):
    root = linalg.sqrtm(first.covariance @ second.covariance).real
    return np.square(first.mean - second.mean).sum() + np.trace(first.covariance + second.covariance - 2 * root)


@pytest.mark.parametrize("shift", [0.0, 2.5])
def test_it_equals_the_formula_with_a_matrix_square_root(shift):
    first, second = Gaussian.of(features(1)), Gaussian.of(features(2, shift=shift))
    np.testing.assert_allclose(first.covariance, np.cov(features(1).T), rtol=1e-10)
    assert frechet_distance(first, second) == pytest.approx(by_scipy(first, second), rel=1e-6)
    assert frechet_distance(first, second) == pytest.approx(frechet_distance(second, first), rel=1e-9)


def test_equal_sets_have_distance_zero_also_with_singular_covariances():
    few = features(3, rows=5)  # fewer rows than features
    assert frechet_distance(Gaussian.of(few), Gaussian.of(few)) == pytest.approx(0, abs=1e-6)
    moved = Gaussian.of(few + 1.0)
    assert frechet_distance(Gaussian.of(few), moved) == pytest.approx(12, rel=1e-6)


def test_a_covariance_needs_two_rows():
    with pytest.raises(ValueError, match="at least 2 rows, but there are 1"):
        Gaussian.of(features(1, rows=1))


def test_the_nearest_distance_equals_that_of_all_pairs():
    first, second = features(4, rows=20), features(5, rows=5000)
    expected = np.sqrt(np.square(first[:, None] - second[None]).sum(-1)).min(1)
    np.testing.assert_allclose(nearest_distances(first, second), expected, rtol=1e-6)


def test_copies_are_told_from_new_images():
    draw = np.random.default_rng(6)
    training, held_out, new = (draw.standard_normal((400, 16)) for _ in range(3))
    honest, copied = novelty(new, held_out, training), novelty(training[:200] + 1e-3, held_out, training)
    assert honest.ratio == pytest.approx(1, abs=0.1) and honest.copies < 5
    assert copied.ratio < 0.01 and copied.copies == 100
