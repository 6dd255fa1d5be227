"""Order of the data: a permutation, a pure function, the same by seeking as by walking."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.data.batches import Windows, key, mix, shuffle

fair = settings(deadline=None, derandomize=True, max_examples=60)
SEEDS = st.integers(0, 2**63 - 1)


def order(size: int, seed: int) -> list[int]:
    return [int(place) for place in shuffle(np.arange(size, dtype=np.uint64), size, seed)]


@fair
@given(st.integers(1, 3000), SEEDS)
def test_a_shuffle_is_a_permutation(size: int, seed: int) -> None:
    assert sorted(order(size, seed)) == list(range(size))


@fair
@given(st.integers(1, 10**12), SEEDS, st.lists(st.integers(0, 10**12), max_size=20))
def test_a_shuffle_of_a_huge_size_stays_inside_and_does_not_collide(size: int, seed: int, wishes: list[int]) -> None:
    positions = np.array(sorted({wish % size for wish in wishes}), dtype=np.uint64)
    found = shuffle(positions, size, seed)
    assert (found < size).all()
    assert len(set(found.tolist())) == len(positions)


@fair
@given(st.integers(30, 500), SEEDS)
def test_a_shuffle_stirs_and_follows_its_seed(size: int, seed: int) -> None:
    first, second = order(size, seed), order(size, seed + 7)
    assert first != second
    assert first != list(range(size))
    assert first == order(size, seed)


def test_every_place_is_reached_from_everywhere() -> None:
    counts = np.zeros((12, 12))
    for seed in range(3000):
        counts[np.arange(12), order(12, key(seed))] += 1
    assert counts.min() > 250 * 0.7
    assert counts.max() < 250 * 1.3


def test_keys_depend_on_every_part_and_their_order() -> None:
    parts = [(1,), (2,), (1, 2), (2, 1), (1, 2, 0), (0, 1, 2), (0,), (0, 0), (-1,)]
    found = [key(*part) for part in parts]
    assert len(set(found)) == len(found)
    assert all(0 <= number < 2**63 for number in found)


def test_mixing_is_one_to_one() -> None:
    assert len(np.unique(mix(np.arange(100_000, dtype=np.uint64), 5))) == 100_000


windows = st.builds(
    lambda width, extra, seed: Windows(width + 2 + extra, width, seed),
    st.integers(1, 40),
    st.integers(0, 2000),
    SEEDS,
)


@fair
@given(windows, st.integers(0, 5))
def test_every_epoch_covers_every_window_once(data: Windows, epoch: int) -> None:
    starts = np.sort(data.starts(epoch * data.per_epoch, data.per_epoch))
    assert len(starts) == data.per_epoch
    assert (np.diff(starts) == data.width).all()  # side by side: no token is predicted twice, none left out between
    assert starts[0] >= 0
    assert starts[-1] + data.width + 1 <= data.tokens


@fair
@given(windows, st.integers(0, 10_000), st.integers(1, 50))
def test_seeking_equals_walking(data: Windows, first: int, count: int) -> None:
    walked = [int(data.starts(position, 1)[0]) for position in range(first, first + count)]
    assert data.starts(first, count).tolist() == walked


@fair
@given(windows, st.integers(0, 1000))
def test_starts_are_a_pure_function(data: Windows, first: int) -> None:
    before = data.starts(first, 9).tolist()
    data.starts(first + 123, 4)
    np.random.default_rng(0).random(5)
    assert Windows(data.tokens, data.width, data.seed).starts(first, 9).tolist() == before


@fair
@given(st.integers(2, 20), SEEDS)
def test_two_epochs_differ_and_so_do_two_seeds(width: int, seed: int) -> None:
    data, other = Windows(60 * width, width, seed), Windows(60 * width, width, seed + 1)
    size = data.per_epoch
    assert data.starts(0, size).tolist() != data.starts(size, size).tolist()
    assert data.starts(0, size).tolist() != other.starts(0, size).tolist()


def test_epochs_cut_at_different_places() -> None:
    data = Windows(1000, 10, 1)
    phases = {int(data.starts(epoch * data.per_epoch, 1)[0]) % 10 for epoch in range(60)}
    assert len(phases) >= 8
