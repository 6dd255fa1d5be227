"""Lengths: the middle, nine in ten and the longest, and their orders of magnitude."""

import pytest

from saccade.data.lengths import Spread, load_room, save_room, table


def test_the_spread_of_lengths():
    assert Spread.of([5]) == Spread(5, 5, 5)
    assert Spread.of(list(range(1, 101))) == Spread(50, 90, 100)
    assert Spread.of([3, 1, 2]) == Spread(2, 3, 3)


@pytest.mark.parametrize(
    ("median", "most", "order"),
    [(0, 0, "10^0"), (9, 9, "10^0"), (10, 99, "10^1"), (99, 100, "10^1-10^2"), (1000, 1000, "10^3")],
)
def test_orders_of_magnitude(median, most, order):
    assert Spread(median, most, most).order() == order


def test_the_table_in_full():
    assert table([(120, 9)] * 9 + [(3456, 40)]) == [
        "tokens            median       90%   max_length",
        "source               120       120     3,456",
        "target                 9         9        40",
        "your data     in 10^2, out 10^0, 10^1 examples",
        "Gigaword      in 10^1, out 10^1, 10^6 examples",
        "CNN/DailyMail in 10^2-10^3, out 10^1, 10^5 examples",
        "WikiSum       in 10^2-10^6, out 10^1-10^3, 10^6 examples",
    ]


def test_the_room_for_a_target_is_kept(tmp_path):
    save_room([10] * 90 + [1000] * 10, tmp_path)
    assert load_room(tmp_path) == 25
