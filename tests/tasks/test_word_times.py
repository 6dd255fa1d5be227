"""Times of words: the cheapest monotone path, normalized and smoothed attention, and words as OpenAI splits them."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from saccade.data.text.alphabets import BYTES
from saccade.data.text.vocabularies import byte_level_bpe
from saccade.tasks._speech.word_times import attention_to_costs, split_words, time_words, warp

PAIRS = [("Ġ", '"'), ("Ġ", "(")]
TOKENS = [*sorted(BYTES), *("".join(pair) for pair in PAIRS)]
TOKENIZER = byte_level_bpe("bytes", {token: number for number, token in enumerate(TOKENS)}, PAIRS, ["<|endoftext|>"])


def paths(rows, columns):
    """Every monotone path through a table, from one corner to the other."""
    steps = ((1, 0), (0, 1), (1, 1))
    found, open_ones = [], [[(0, 0)]]
    while open_ones:
        path = open_ones.pop()
        if path[-1] == (rows - 1, columns - 1):
            found.append(path)
            continue
        for down, right in steps:
            cell = (path[-1][0] + down, path[-1][1] + right)
            if cell[0] < rows and cell[1] < columns:
                open_ones.append([*path, cell])
    return found


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_path_is_the_cheapest_of_all(data):
    shape = (data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5)))
    costs = data.draw(arrays(np.float64, shape, elements=st.floats(-1, 1, width=16)))
    every = {tuple(path): sum(costs[cell] for cell in path) for path in paths(*shape)}
    cheapest = min(every.values())
    best = {
        tuple(min(column for row, column in path if row == number) for number in range(shape[0]))
        for path, total in every.items()
        if total <= cheapest + 1e-9
    }
    assert tuple(warp(costs)) in best


def test_a_diagonal_is_followed():
    costs = np.stack([np.roll(-np.array([1.0, 1, 1] + [0] * 9), 3 * row) for row in range(4)])
    assert warp(costs).tolist() == [0, 3, 6, 9]


def test_path_and_smoothing_are_those_of_transformers():
    generation = pytest.importorskip("transformers.models.whisper.generation_whisper", reason="the oracle")
    draw = torch.Generator().manual_seed(1)
    weights = torch.rand(3, 9, 40, generator=draw).softmax(-1)
    costs = attention_to_costs(weights, 40, 7)
    deviation, mean = torch.std_mean(weights.double(), dim=-2, keepdim=True, correction=0)
    smooth = generation._median_filter((weights.double() - mean) / deviation, 7).mean(0)
    np.testing.assert_allclose(costs, -smooth.numpy(), atol=1e-6)
    text, time = generation._dynamic_time_warping(costs)
    expected = [int(time[list(text).index(row)]) for row in range(9)]
    assert warp(costs).tolist() == expected
    part = attention_to_costs(weights, 25, 7)  # positions of silence do not count
    assert part.shape == (9, 25)
    cut = weights[..., :25] / weights[..., :25].sum(-1, keepdim=True)
    np.testing.assert_allclose(part, attention_to_costs(cut, 25, 7), atol=1e-5)
    assert attention_to_costs(weights, 2, 7).shape == (9, 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (" Enter 928.", [" Enter", " 928."]),
        (" E-Rays, then", [" E", "-Rays,", " then"]),
        (' He said "yes" (once).', [" He", " said", ' "yes"', " (once)."]),
        ("naïve 日本", ["naïve", " 日本"]),
        ("", []),
    ],
)
def test_words_have_their_marks(text, words):
    ids = TOKENIZER.encode(text)
    found = split_words(TOKENIZER, ids)
    assert [word.text for word in found] == words
    assert all(a.end <= b.first for a, b in itertools.pairwise(found))


def test_a_language_without_spaces_is_split_into_characters():
    ids = TOKENIZER.encode("日本。")
    assert [word.text for word in split_words(TOKENIZER, ids, "ja")] == ["日", "本。"]
    assert [word.text for word in split_words(TOKENIZER, ids[:-1], "ja")] == ["日", "本", "\ufffd"]


def test_punctuation_does_not_change_when_a_word_ends():
    ids = TOKENIZER.encode(" go. (so)")
    first = [float(number) for number in range(len(ids) + 1)]
    words = time_words(TOKENIZER, ids, first, "en", 10.0)
    assert [(word.text, word.start, word.end) for word in words] == [("go.", 10.0, 13.0), ("(so)", 14.0, 17.0)]
