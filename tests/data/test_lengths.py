"""Lengths: median, 90th percentile and maximum, and their orders of magnitude."""

import numpy as np
import pytest

from saccade.data.lengths import (
    LengthSummary,
    length_table,
    load_max_target_length,
    load_token_rate,
    save_max_target_length,
)


def test_the_spread_of_lengths():
    assert LengthSummary.of([5]) == LengthSummary(5, 5, 5)
    assert LengthSummary.of(list(range(1, 101))) == LengthSummary(50, 90, 100)
    assert LengthSummary.of([3, 1, 2]) == LengthSummary(2, 3, 3)


@pytest.mark.parametrize(
    ("median", "most", "order"),
    [(0, 0, "10^0"), (9, 9, "10^0"), (10, 99, "10^1"), (99, 100, "10^1-10^2"), (1000, 1000, "10^3")],
)
def test_orders_of_magnitude(median, most, order):
    assert LengthSummary(median, most, most).order() == order


def test_the_table_in_full():
    assert length_table([(120, 9)] * 9 + [(3456, 40)]) == [
        "tokens            median       90%   longest",
        "source               120       120     3,456",
        "target                 9         9        40",
        "your data     in 10^2, out 10^0, 10^1 examples",
        "Gigaword      in 10^1, out 10^1, 10^6 examples",
        "CNN/DailyMail in 10^2-10^3, out 10^1, 10^5 examples",
        "WikiSum       in 10^2-10^6, out 10^1-10^3, 10^6 examples",
    ]


def test_the_room_for_a_target_is_kept(tmp_path):
    save_max_target_length([10] * 90 + [1000] * 10, tmp_path)
    assert load_max_target_length(tmp_path) == 25 and load_token_rate(tmp_path) == 0


def test_the_highest_rate_of_tokens_is_kept(tmp_path):
    save_max_target_length([10, 30, 8], tmp_path, np.array([1.0, 2.0, 0.5]))
    assert load_token_rate(tmp_path) == 16
    save_max_target_length([10, 30, 8], tmp_path, np.array([1.0, 2.0, 0.01]))
    assert load_token_rate(tmp_path) == 50, "a wrong text of a short recording"
