"""Order of the data: a permutation, a pure function, the same by seeking as by walking."""

import gzip
import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from saccade.data.batching import BucketedBatches, Buckets, WindowBatches, Windows, key, mix, shuffle

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
    computed = shuffle(positions, size, seed)
    assert (computed < size).all()
    assert len(set(computed.tolist())) == len(positions)


@fair
@given(st.integers(30, 500), SEEDS)
def test_a_shuffle_stirs_and_follows_its_seed(size: int, seed: int) -> None:
    first, second = order(size, seed), order(size, seed + 7)
    assert first != second
    assert first != list(range(size))
    assert first == order(size, seed)


def test_every_position_is_reached_from_every_other() -> None:
    counts = np.zeros((12, 12))
    for seed in range(3000):
        counts[np.arange(12), order(12, key(seed))] += 1
    assert counts.min() > 250 * 0.7
    assert counts.max() < 250 * 1.3


def test_keys_depend_on_every_part_and_their_order() -> None:
    parts = [(1,), (2,), (1, 2), (2, 1), (1, 2, 0), (0, 1, 2), (0,), (0, 0), (-1,)]
    computed = [key(*part) for part in parts]
    assert len(set(computed)) == len(computed)
    assert all(0 <= number < 2**63 for number in computed)


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


def test_epochs_cut_at_different_positions() -> None:
    data = Windows(1000, 10, 1)
    phases = {int(data.starts(epoch * data.per_epoch, 1)[0]) % 10 for epoch in range(60)}
    assert len(phases) >= 8


# --- rows of like length together ---


def buckets(source: list[int], target: list[int], budget: int, seed: int = 0) -> Buckets:
    return Buckets(np.array(source), np.array(target), budget, seed)


LENGTHS = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=200)


@fair
@given(LENGTHS, st.integers(1, 600), SEEDS, st.integers(0, 4))
def test_every_row_is_in_one_batch_of_an_epoch(
    lengths: list[tuple[int, int]], budget: int, seed: int, epoch: int
) -> None:
    data = buckets(*zip(*lengths, strict=True), budget, seed)  # type: ignore[arg-type]
    batches = [data.rows(epoch * data.per_epoch + place).tolist() for place in range(data.per_epoch)]
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        wide, tall = (max(lengths[row][side] for row in batch) for side in (0, 1))
        assert len(batch) == 1 or len(batch) * (wide + tall) <= budget


@fair
@given(LENGTHS, st.integers(50, 600), SEEDS, st.lists(st.integers(0, 3000), min_size=1, max_size=8))
def test_a_batch_is_a_pure_function_of_its_step(
    lengths: list[tuple[int, int]], budget: int, seed: int, steps: list[int]
) -> None:
    source, target = zip(*lengths, strict=True)
    seeking, walking = (buckets(source, target, budget, seed) for _ in range(2))  # type: ignore[arg-type]
    computed = {step: seeking.rows(step).tolist() for step in steps}
    for step in sorted(steps):
        assert walking.rows(step).tolist() == computed[step]
        fresh = buckets(source, target, budget, seed)  # type: ignore[arg-type]
        assert fresh.rows(step).tolist() == computed[step] and fresh.per_epoch == walking.per_epoch


def like_multi30k(count: int = 4000) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lengths such as captions have: about 14 tokens, the target as long as the source, give or take three."""
    chance = np.random.default_rng(1)
    source = np.clip(chance.gamma(9, 1.6, count), 4, 45).astype(np.int64)
    return source, np.clip(source + chance.normal(0, 3, count), 4, 45).astype(np.int64)


def test_epochs_and_seeds_order_and_mix_anew() -> None:
    source, target = like_multi30k()
    data, other = Buckets(source, target, 1000, 1), Buckets(source, target, 1000, 2)
    size = data.per_epoch
    first, second, third = (
        [frozenset(which.rows(start + step).tolist()) for step in range(size)]
        for which, start in ((data, 0), (data, size), (other, 0))
    )
    for one, two in ((first, second), (first, third), (second, third)):
        assert [len(batch) for batch in one] != [len(batch) for batch in two]  # another order of the batches
        assert len(set(one) & set(two)) < 0.1 * size  # with other rows in them


def test_short_and_long_batches_come_in_turn() -> None:
    source, target = like_multi30k()
    data = Buckets(source, target, 1000, 3)
    means = np.array([target[data.rows(step)].mean() for step in range(10 * data.per_epoch)])
    assert abs(np.corrcoef(np.tile(np.arange(data.per_epoch), 10), means)[0, 1]) < 0.1
    assert abs(np.corrcoef(means[:-1], means[1:])[0, 1]) < 0.1


def padding_share(source: NDArray[np.int64], target: NDArray[np.int64], budget: int) -> float:
    """Return the fraction of positions that are padding."""
    data, positions = Buckets(source, target, budget, 1), 0
    for step in range(data.per_epoch):
        rows = data.rows(step)
        positions += len(rows) * int(source[rows].max() + target[rows].max())
    return 1 - int(source.sum() + target.sum()) / positions


@pytest.mark.parametrize("budget", [1000, 3000])
def test_little_padding_with_lengths_such_as_captions_have(budget: int) -> None:
    source, target = like_multi30k(29_000)
    assert padding_share(source, target, budget) < 0.1
    chance = np.random.default_rng(0).permutation(len(source))[: budget // 40 * 100].reshape(100, -1)
    positions = sum(chance.shape[1] * int(source[rows].max() + target[rows].max()) for rows in chance)
    unsorted = 1 - int(source[chance].sum() + target[chance].sum()) / positions
    assert unsorted > 0.3  # what rows by chance would cost


def test_little_padding_on_multi30k(dataset: Callable[[str], Path]) -> None:
    sides = []
    for side in ("en", "de"):
        with gzip.open(dataset(f"translation/multi30k/train.{side}.gz"), "rt", encoding="utf-8") as lines:
            sides.append(np.array([len(line.split()) + 1 for line in lines]))
    assert len(sides[0]) == len(sides[1]) > 5000
    assert padding_share(sides[0], sides[1], 3000) < 0.1


# --- sources ---


@dataclass(frozen=True)
class Rows:
    """A batch that only knows its rows."""

    numbers: tuple[int, ...]

    @property
    def count(self) -> int:
        return len(self.numbers)

    @property
    def units(self) -> int:
        return len(self.numbers)

    @property
    def rows(self) -> list[str]:
        return [str(number) for number in self.numbers]

    def to(self, device: Any) -> "Rows":
        return self


@dataclass(frozen=True)
class Lengths:
    lengths: NDArray[np.int64]


def collate(rows: list[int]) -> Rows:
    assert all(type(row) is int for row in rows)
    return Rows(tuple(rows))


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("micro_batches", [1, 3])
def test_bucketed_batches_are_the_buckets_in_micro_batches(pairs: bool, micro_batches: int) -> None:
    source, target = like_multi30k(500)
    target = target if pairs else np.zeros_like(source)
    lengths = np.stack([source, target], axis=1) if pairs else source
    data = BucketedBatches(Lengths(lengths), collate, budget=300, seed=4, micro_batches=micro_batches)
    order = Buckets(source, target, 300, 4)
    assert data.per_epoch == order.per_epoch and data.state() is None
    for step in (0, 7, order.per_epoch + 2, 3):
        rows = order.rows(step)
        parts = [part.tolist() for part in np.array_split(rows, min(micro_batches, len(rows)))]
        assert [list(batch.numbers) for batch in data.at(step)] == parts


def test_a_batch_smaller_than_its_micro_batches_is_not_split_into_empty_ones() -> None:
    data = BucketedBatches(Lengths(np.array([5, 6])), collate, budget=1, seed=0, micro_batches=4)
    assert [batch.count for step in range(2) for batch in data.at(step)] == [1, 1]


def test_window_batches_are_the_windows_in_micro_batches() -> None:
    windows = Windows(1000, 7, 3)
    data = WindowBatches(windows, collate, batch_size=12, micro_batches=3)
    assert data.per_epoch == windows.per_epoch // 12
    for step in (0, 5, 400, 63, 64, 5):  # also over the borders of the blocks that are computed together
        starts = windows.starts(step * 12, 12).reshape(3, 4).tolist()
        assert [list(batch.numbers) for batch in data.at(step)] == starts
    assert WindowBatches(Windows(20, 7, 3), collate, batch_size=64, micro_batches=1).per_epoch == 1


def test_the_order_is_what_it_always_was() -> None:
    source, target = like_multi30k(1000)
    pairs = BucketedBatches(Lengths(np.stack([source, target], axis=1)), collate, budget=500, seed=9)
    text = WindowBatches(Windows(5000, 16, 9), collate, batch_size=8, micro_batches=1)
    numbers = [[batch.numbers for step in range(200) for batch in data.at(step)] for data in (pairs, text)]
    assert [hashlib.sha256(repr(one).encode()).hexdigest()[:16] for one in numbers] == [
        "6499b96762ba61a5",
        "8c0e64e206f8b85c",
    ]


def test_several_threads_get_the_same_batches() -> None:
    source, target = like_multi30k(300)
    data = BucketedBatches(Lengths(np.stack([source, target], axis=1)), collate, budget=200, seed=1)
    steps = [(37 * step) % (5 * data.per_epoch) for step in range(400)]
    expected = [data.at(step) for step in steps]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(data.at, steps)) == expected


@pytest.mark.parametrize("size", [1, 2, 5, 37])
def test_a_position_outside_a_permutation_is_refused(size):
    inside = np.arange(size, dtype=np.uint64)
    assert sorted(shuffle(inside, size, 3).tolist()) == list(range(size))
    with pytest.raises(ValueError, match=f"positions must be below the size {size}, but the largest is {size + 4}"):
        shuffle(inside + np.uint64(5), size, 3)
