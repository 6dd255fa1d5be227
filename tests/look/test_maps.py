"""Maps: words, means, rollout, entropy and alignments, against values that can be worked out by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from saccade.core.task import AttentionMap, Axis
from saccade.errors import DataError, UsageError
from saccade.look import maps


def axis(count, words=()):
    return Axis("words", tuple(f"w{number}" for number in range(count)), tuple(words))


def read(weights, name="cross", queries=None, keys=None):
    weights = torch.as_tensor(weights, dtype=torch.float32)
    weights = weights if weights.dim() == 3 else weights[None]
    return AttentionMap(name, weights, queries or axis(weights.shape[1]), keys or axis(weights.shape[2]))


def random_read(heads, rows, columns, **more):
    return read(torch.rand(heads, rows, columns).softmax(-1), **more)


def test_merging_adds_key_pieces_and_averages_query_pieces():
    queries = Axis("words", (" Ha", "us", " da"), (0, 0, 1))
    keys = Axis("words", (" the", " ho", "use"), (0, 1, 1))
    merged = maps.merge(read([[0.2, 0.3, 0.5], [0.4, 0.6, 0.0], [0.0, 0.0, 1.0]], queries=queries, keys=keys))
    assert merged.queries == Axis("words", ("Haus", "da"))
    assert merged.keys == Axis("words", ("the", "house"))
    torch.testing.assert_close(merged.weights[0], torch.tensor([[0.3, 0.7], [0.0, 1.0]]))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_merged_rows_still_sum_to_one(rows, columns):
    whole = random_read(2, len(rows), len(columns), queries=axis(len(rows), rows), keys=axis(len(columns), columns))
    merged = maps.merge(whole)
    assert merged.weights.shape == (2, len(set(rows)), len(set(columns)))
    torch.testing.assert_close(merged.weights.sum(-1), torch.ones(2, len(set(rows))))


def test_merging_leaves_an_axis_without_words_alone():
    whole = random_read(2, 3, 4)
    merged = maps.merge(whole)
    assert (merged.queries, merged.keys) == (whole.queries, whole.keys)
    assert torch.equal(merged.weights, whole.weights)


def test_merging_refuses_words_that_do_not_fit():
    with pytest.raises(ValueError, match="each of 3 labels, but has 2"):
        maps.merge(random_read(1, 3, 3, queries=axis(3, (0, 1))))


def test_one_head_and_mean_heads():
    whole = random_read(3, 4, 5)
    assert torch.equal(maps.one_head(whole, 2).weights, whole.weights[2:])
    torch.testing.assert_close(maps.mean_heads(whole).weights, whole.weights.sum(0, keepdim=True) / 3)
    for head in (-1, 3):
        with pytest.raises(UsageError, match=f"head must be 0 to 2 in 'cross', but is {head}"):
            maps.one_head(whole, head)


def test_mean_is_over_layers_and_heads():
    one, two = random_read(1, 2, 3), random_read(3, 2, 3)
    expected = (one.weights.sum(0) + two.weights.sum(0)) / 4
    torch.testing.assert_close(maps.mean([one, two]).weights, expected[None])
    with pytest.raises(UsageError, match="'cross' is 2 x 3 and 'self' is 2 x 2"):
        maps.mean([one, random_read(1, 2, 2, name="self")])
    with pytest.raises(UsageError, match="at least one, but there is none"):
        maps.mean([])


def test_rollout_multiplies_the_layers_with_their_residual():
    one, two = random_read(2, 4, 4), random_read(3, 4, 4)
    first, second = (0.5 * layer.weights.mean(0) + 0.5 * torch.eye(4) for layer in (one, two))
    rolled = maps.rollout([one, two])
    torch.testing.assert_close(rolled.weights[0], second @ first)
    torch.testing.assert_close(rolled.weights.sum(-1), torch.ones(1, 4))


def test_rollout_keeps_what_a_row_without_attention_holds():
    empty = read(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    torch.testing.assert_close(maps.rollout([empty]).weights[0], torch.eye(2))


def test_rollout_needs_self_attention():
    with pytest.raises(UsageError, match="'cross' looks from one text at another"):
        maps.rollout([random_read(1, 2, 3)])


def test_entropy_is_0_for_sharp_and_1_for_flat_heads():
    flat, sharp = torch.full((4, 4), 0.25), torch.eye(4)
    half = torch.tensor([[0.5, 0.5, 0, 0]] * 4)
    padded = torch.cat([flat[:2], torch.zeros(2, 4)])
    values = maps.entropy(read(torch.stack([sharp, flat, half, padded, torch.zeros(4, 4)])))
    assert values[:4] == pytest.approx([0, 1, 0.5, 1])
    assert math.isnan(values[4])
    assert maps.entropy(read([[1.0]])) == [0]


def test_alignment_takes_the_strongest_key_of_each_query():
    one = read([[0.1, 0.9, 0.0], [0.6, 0.2, 0.2], [0.0, 0.0, 0.0]])
    assert maps.align(one) == [(0, 1), (1, 0)]
    assert maps.align(one, threshold=0.7) == [(1, 0)]
    with pytest.raises(ValueError, match="'cross' must be one map, but has 2 heads"):
        maps.align(random_read(2, 2, 2))


@given(st.sets(st.tuples(st.integers(0, 30), st.integers(0, 30))))
def test_alignments_survive_writing_and_reading(pairs):
    assert maps.parse(maps.written(pairs)) == pairs


def test_alignments_are_written_by_source_then_target():
    assert maps.written([(10, 0), (2, 1), (2, 0)]) == "2-0 2-1 10-0"


@pytest.mark.parametrize("word", ["1:2", "1-", "-1-2", "1-2-3", "a-b", "1-²"])
def test_a_wrong_pair_is_named(word):
    with pytest.raises(DataError, match="pair 2 is ") as caught:
        maps.parse(f"0-0 {word} 3-3\n")
    assert f"'{word}'" in str(caught.value)


SIZE = 6


def constructed():
    """Heads of known worth, sharp and flat, right and useless."""
    eye = torch.eye(SIZE)
    last = torch.zeros(SIZE, SIZE)
    last[:, -1] = 1
    block = torch.zeros(SIZE, SIZE)
    block[:3, 3:], block[3:, :3] = torch.eye(3), torch.eye(3).flip(0)
    flat = torch.full((SIZE, SIZE), 1 / SIZE)
    return {"diagonal": eye, "reversed": block, "last": last, "flat": flat, "noisy": 0.6 * eye + 0.4 * flat}


@pytest.mark.parametrize("winner", ["diagonal", "reversed"])
@pytest.mark.parametrize("place", [0, 3])
def test_without_gold_the_head_that_tells_words_apart_wins(winner, place):
    others = [weights for name, weights in constructed().items() if name not in ("diagonal", "reversed")]
    heads = torch.stack([*others[:place], constructed()[winner], *others[place:]])
    choice = maps.choose([[read(heads)], [read(heads)]])
    assert (choice.name, choice.head, choice.by) == ("cross", place, "information")
    assert choice.score == pytest.approx(1)


def test_information_ranks_heads():
    value = {name: maps.information(weights) for name, weights in constructed().items()}
    assert value["diagonal"] == value["reversed"] == pytest.approx(1)
    assert value["last"] == pytest.approx(0, abs=1e-6)
    assert value["flat"] == pytest.approx(0, abs=1e-6)
    assert 0.2 < value["noisy"] < 0.8
    assert maps.information(torch.ones(1, 3)) is None
    assert maps.information(torch.cat([torch.eye(3), torch.zeros(4, 3)])) == pytest.approx(1), "empty rows are ignored"


def test_information_is_measured_on_words():
    pieces = axis(4, (0, 0, 1, 1))
    inside = torch.tensor([[0.5, 0.5, 0, 0]] * 2 + [[0, 0, 0.5, 0.5]] * 2)
    strayed = torch.eye(4)[[0, 2, 1, 3]]
    both = read(torch.stack([strayed, inside]), queries=pieces, keys=pieces)
    assert maps.choose([[both]]).head == 1, "sharp on pieces, but the words are mixed up"


def test_the_mean_of_a_layer_can_win():
    left, right = torch.eye(SIZE), torch.eye(SIZE)
    left[3:] = right[:3] = 0
    left[3:, -1] = right[:3, -1] = 0.6  # each head is right for one half only
    left[3:, 0] = right[:3, 0] = 0.4
    gold = [{(number, number) for number in range(SIZE)}]
    choice = maps.choose([[read(torch.stack([left, right]))]], gold)
    assert (choice.head, choice.score) == (None, 0.0)


def test_with_gold_the_lowest_alignment_error_wins():
    heads = torch.stack([torch.eye(SIZE), constructed()["reversed"], constructed()["noisy"]])
    gold = {(3, 0), (4, 1), (5, 2), (2, 3), (1, 4), (0, 5)}
    choice = maps.choose([[read(heads)]], [gold])
    assert choice == maps.Choice("cross", 1, 0.0, "alignment error")
    part = maps.choose([[read(heads)]], [{(3, 0), (4, 1)}])
    assert (part.head, part.score) == (1, 1 - 2 * 2 / (6 + 2))


def test_a_choice_finds_its_map_over_words():
    layers = [random_read(2, 3, 3, name="one"), random_read(2, 3, 3, name="two", keys=axis(3, (0, 0, 1)))]
    mapped = maps.Choice("two", 1, 0.5, "information").of(layers)
    torch.testing.assert_close(mapped.weights, maps.merge(maps.one_head(layers[1], 1)).weights)
    mean = maps.Choice("one", None, 0.5, "information").of(layers)
    torch.testing.assert_close(mean.weights, layers[0].weights.mean(0, keepdim=True))
    with pytest.raises(UsageError, match="must include 'three'"):
        maps.Choice("three", None, 0.5, "information").of(layers)


def test_choosing_needs_sentences_and_fitting_gold():
    with pytest.raises(DataError, match="there is none to choose a head from"):
        maps.choose([], None)
    with pytest.raises(DataError, match="are 2 for 1 sentences"):
        maps.choose([[random_read(1, 2, 2)]], [set(), set()])
    with pytest.raises(DataError, match="all are empty"):
        maps.choose([[random_read(1, 2, 2)]], [set()])
    with pytest.raises(ValueError, match=r"same layers and heads \[\('cross', 1\)\]"):
        maps.choose([[random_read(1, 2, 2)], [random_read(2, 2, 2)]])
