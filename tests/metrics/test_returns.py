"""Returns: mean and deviation as numpy's, and an interval that covers the mean as often as it says."""

import numpy as np
import pytest

from saccade.metrics.returns import summarise


def test_mean_and_deviation_are_those_of_numpy():
    returns = [500.0, 480.0, 12.0, 500.0]
    score = summarise(returns)
    assert (score.mean, score.deviation, score.episodes) == (np.mean(returns), np.std(returns), 4)
    assert score.low < score.mean < score.high
    assert summarise(returns) == score, "the seed of the resamples is fixed"


def test_the_interval_equals_that_of_scipy():
    stats = pytest.importorskip("scipy.stats")
    returns = np.random.default_rng(0).normal(400, 50, 100)
    score = summarise(returns)
    theirs = stats.bootstrap((returns,), np.mean, method="percentile", n_resamples=20_000, rng=1).confidence_interval
    assert score.low == pytest.approx(theirs.low, abs=1) and score.high == pytest.approx(theirs.high, abs=1)


def test_the_interval_covers_the_true_mean_about_19_times_of_20():
    draw = np.random.default_rng(0)
    covered = [score.low <= 7 <= score.high for score in (summarise(draw.exponential(7, 100)) for _ in range(200))]
    assert 0.88 <= np.mean(covered) <= 0.99


def test_episodes_of_one_return_have_no_spread():
    score = summarise([500.0] * 100)
    assert (score.low, score.high, score.deviation) == (500, 500, 0)
    assert score.describe() == "500.0 ± 0.0 (95% interval 500.0 to 500.0, 100 episodes)"
    with pytest.raises(ValueError, match="at least one episode"):
        summarise([])
