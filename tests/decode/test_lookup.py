"""Prompt lookup and common beginnings: what a loop over the tokens finds, in a fraction of its time."""

import random
import time

import pytest

from saccade.decode.lookup import LONGEST, SHORTEST, guess
from saccade.decode.prefixes import Prefixes, common_length


def guess_by_loop(ids, count):
    for size in range(min(LONGEST, len(ids) - 1), SHORTEST - 1, -1):
        for at in range(len(ids) - size - 1, -1, -1):
            if ids[at : at + size] == ids[-size:]:
                return ids[at + size : at + size + count]
    return []


def common_by_loop(first, second):
    return next((at for at, pair in enumerate(zip(first, second, strict=True)) if pair[0] != pair[1]), len(first))


@pytest.mark.parametrize("vocabulary", [1, 2, 3, 6])
def test_the_guess_is_what_followed_the_longest_and_latest_occurrence(vocabulary):
    draw = random.Random(vocabulary)
    for _ in range(3000):
        ids = draw.choices(range(vocabulary), k=draw.randrange(14))
        assert guess(ids, 3) == guess_by_loop(ids, 3), ids


def test_the_common_beginning_of_two_lists():
    draw = random.Random(1)
    for _ in range(3000):
        size = draw.randrange(20)
        first, second = (draw.choices(range(2), k=size) for _ in range(2))
        same = draw.randrange(size + 1)
        second[:same] = first[:same]
        assert common_length(first, second) == common_by_loop(first, second), (first, second)


@pytest.mark.parametrize("chunk", [0, 1, 4])
def test_one_token_of_a_prompt_is_always_computed(chunk):
    prefixes, ids = Prefixes(1, chunk), [5, 6, 7, 8, 9, 5, 6, 7, 8]
    assert prefixes.common(ids, ids) == {0: 0, 1: 8, 4: 8}[chunk]
    assert prefixes.common(ids, ids[:7]) == {0: 0, 1: 7, 4: 4}[chunk]
    assert prefixes.common([], ids) == prefixes.common(ids, []) == 0


def seconds(function, *arguments):
    return min(_seconds(function, *arguments) for _ in range(20))


def _seconds(function, *arguments):
    started = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - started


def test_a_long_prompt_is_not_looped_over():
    draw = random.Random(2)
    ids = [draw.randrange(50_000) for _ in range(4096)]
    assert 3 * seconds(guess, ids, 8) < seconds(guess_by_loop, ids, 8)
    assert 3 * seconds(common_length, ids, [*ids[:-1], 0]) < seconds(common_by_loop, ids, [*ids[:-1], 0])
