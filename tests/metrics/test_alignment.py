"""Alignment of words: merging, heads, alignments as text and the choice of a head, by values worked out by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from saccade.core import AttentionMaps, GridAxis, Role, TokenAxis
from saccade.errors import DataError, UsageError
from saccade.metrics import alignment
from tests.look.attention_maps import attention, axis, random_attention


def test_merging_adds_key_pieces_and_averages_query_pieces():
    queries = TokenAxis(Role.TEXT, (" Ha", "us", " da"), (0, 0, 1))
    keys = TokenAxis(Role.TEXT, (" the", " ho", "use"), (0, 1, 1))
    merged = alignment.merge_words(
        attention([[0.2, 0.3, 0.5], [0.4, 0.6, 0.0], [0.0, 0.0, 1.0]], queries=queries, keys=keys)
    )
    assert merged.queries == TokenAxis(Role.TEXT, ("Haus", "da"))
    assert merged.keys == TokenAxis(Role.TEXT, ("the", "house"))
    torch.testing.assert_close(merged.weights[0], torch.tensor([[0.3, 0.7], [0.0, 1.0]]))


def test_merged_wordpiece_tokens_lose_their_marker():
    words, _ = alignment.word_axis(TokenAxis(Role.TEXT, ("un", "##believ", "##able", "##"), (0, 0, 0, 1)))
    assert words.tokens == ("unbelievable", "##")
    others, _ = alignment.word_axis(TokenAxis(Role.TEXT, ("a", "##", "b"), (0, 0, 0)))
    assert others.tokens == ("a##b",), "where not every continuation is marked, it is text"


@pytest.mark.parametrize(
    ("tokens", "word"),
    [
        (("text", "-", "im", "##g"), "text-img"),
        (("did", "##n", "'", "t"), "didn't"),
        (("\u2019", "twas", "##n", "\u2019", "t"), "\u2019twasn\u2019t"),
        (("a", "-", "b", "##", "c"), "a-b##c"),  # no WordPiece, whose pieces are never the mark alone
    ],
)
def test_merged_wordpiece_tokens_with_punctuation_lose_their_marker_too(tokens, word):
    words, _ = alignment.word_axis(TokenAxis(Role.TEXT, (*tokens, "x"), (*[0] * len(tokens), 1)))
    assert words.tokens == (word, "x")


def test_a_word_of_white_space_keeps_it():
    assert alignment.word_axis(TokenAxis(Role.TEXT, ("a", "\n"), (0, 1)))[0].tokens == ("a", "\n")


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_merged_rows_still_sum_to_one(rows, columns):
    whole = random_attention(
        2, len(rows), len(columns), queries=axis(len(rows), rows), keys=axis(len(columns), columns)
    )
    merged = alignment.merge_words(whole)
    assert merged.weights.shape == (2, len(set(rows)), len(set(columns)))
    torch.testing.assert_close(merged.weights.sum(-1), torch.ones(2, len(set(rows))))


def test_merging_leaves_an_axis_without_words_alone():
    whole = random_attention(2, 3, 4)
    merged = alignment.merge_words(whole)
    assert (merged.queries, merged.keys) == (whole.queries, whole.keys)
    assert torch.equal(merged.weights, whole.weights)


def test_merging_refuses_words_that_do_not_fit():
    with pytest.raises(ValueError, match="each of 3 tokens, but has 2"):
        alignment.merge_words(random_attention(1, 3, 3, queries=axis(3, (0, 1))))


def test_one_head_and_mean_heads():
    whole = random_attention(3, 4, 5)
    assert torch.equal(alignment.one_head(whole, 2).weights, whole.weights[2:])
    torch.testing.assert_close(alignment.mean_heads(whole).weights, whole.weights.sum(0, keepdim=True) / 3)
    for head in (-1, 3):
        with pytest.raises(UsageError, match=f"head must be 0 to 2 in 'cross', but is {head}"):
            alignment.one_head(whole, head)


def test_alignment_takes_the_strongest_key_of_each_query():
    one = attention([[0.1, 0.9, 0.0], [0.6, 0.2, 0.2], [0.0, 0.0, 0.0]])
    assert alignment.align(one) == [(0, 1), (1, 0)]
    assert alignment.align(one, threshold=0.7) == [(1, 0)]
    with pytest.raises(ValueError, match="'cross' must have one head, but has 2"):
        alignment.align(random_attention(2, 2, 2))


@given(st.sets(st.tuples(st.integers(0, 30), st.integers(0, 30))))
def test_alignments_survive_writing_and_reading(pairs):
    assert alignment.parse_alignment(alignment.format_alignment(pairs)) == pairs


def test_alignments_are_written_by_source_then_target():
    assert alignment.format_alignment([(10, 0), (2, 1), (2, 0)]) == "2-0 2-1 10-0"


@pytest.mark.parametrize("word", ["1:2", "1-", "-1-2", "1-2-3", "a-b", "1-²"])
def test_a_wrong_pair_is_named(word):
    with pytest.raises(DataError, match="pair 2 is ") as caught:
        alignment.parse_alignment(f"0-0 {word} 3-3\n")
    assert f"'{word}'" in str(caught.value)


SIZE = 6


def constructed():
    """Heads of known quality: sharp and flat, aligned and uninformative."""
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
    choice = alignment.choose_alignment_head([[attention(heads)], [attention(heads)]])
    assert (choice.name, choice.head, choice.criterion) == ("cross", place, "information")
    assert choice.score == pytest.approx(1)


def test_information_ranks_heads():
    value = {name: alignment.information(weights) for name, weights in constructed().items()}
    assert value["diagonal"] == value["reversed"] == pytest.approx(1)
    assert value["last"] == pytest.approx(0, abs=1e-6)
    assert value["flat"] == pytest.approx(0, abs=1e-6)
    assert 0.2 < value["noisy"] < 0.8
    assert alignment.information(torch.ones(1, 3)) is None
    assert alignment.information(torch.cat([torch.eye(3), torch.zeros(4, 3)])) == pytest.approx(1), (
        "empty rows are ignored"
    )


def test_information_is_measured_on_words():
    pieces = axis(4, (0, 0, 1, 1))
    inside = torch.tensor([[0.5, 0.5, 0, 0]] * 2 + [[0, 0, 0.5, 0.5]] * 2)
    strayed = torch.eye(4)[[0, 2, 1, 3]]
    both = attention(torch.stack([strayed, inside]), queries=pieces, keys=pieces)
    assert alignment.choose_alignment_head([[both]]).head == 1, "sharp on pieces, but the words are mixed up"


def test_the_mean_of_a_layer_can_win():
    left, right = torch.eye(SIZE), torch.eye(SIZE)
    left[3:] = right[:3] = 0
    left[3:, -1] = right[:3, -1] = 0.6  # each head is right for one half only
    left[3:, 0] = right[:3, 0] = 0.4
    gold = [{(number, number) for number in range(SIZE)}]
    choice = alignment.choose_alignment_head([[attention(torch.stack([left, right]))]], gold)
    assert (choice.head, choice.score) == (None, 0.0)


def test_with_gold_the_lowest_alignment_error_wins():
    heads = torch.stack([torch.eye(SIZE), constructed()["reversed"], constructed()["noisy"]])
    gold = {(3, 0), (4, 1), (5, 2), (2, 3), (1, 4), (0, 5)}
    choice = alignment.choose_alignment_head([[attention(heads)]], [gold])
    assert choice == alignment.AlignmentHead("cross", 1, 0.0, "alignment error")
    part = alignment.choose_alignment_head([[attention(heads)]], [{(3, 0), (4, 1)}])
    assert (part.head, part.score) == (1, 1 - 2 * 2 / (6 + 2))


def test_a_choice_finds_its_map_over_words():
    layers = [random_attention(2, 3, 3, name="one"), random_attention(2, 3, 3, name="two", keys=axis(3, (0, 0, 1)))]
    mapped = alignment.AlignmentHead("two", 1, 0.5, "information").select(layers)
    torch.testing.assert_close(mapped.weights, alignment.merge_words(alignment.one_head(layers[1], 1)).weights)
    mean = alignment.AlignmentHead("one", None, 0.5, "information").select(layers)
    torch.testing.assert_close(mean.weights, layers[0].weights.mean(0, keepdim=True))
    with pytest.raises(UsageError, match="must include 'three'"):
        alignment.AlignmentHead("three", None, 0.5, "information").select(layers)


def test_choosing_needs_sentences_and_fitting_gold():
    with pytest.raises(DataError, match="a head can be chosen only from cross-attention, but there is none"):
        alignment.choose_alignment_head([], None)
    with pytest.raises(DataError, match="are 2 for 1 sentences"):
        alignment.choose_alignment_head([[random_attention(1, 2, 2)]], [set(), set()])
    with pytest.raises(DataError, match="all are empty"):
        alignment.choose_alignment_head([[random_attention(1, 2, 2)]], [set()])
    with pytest.raises(ValueError, match=r"same layers and heads \[\('cross', 1\)\]"):
        alignment.choose_alignment_head([[random_attention(1, 2, 2)], [random_attention(2, 2, 2)]])


def test_cross_attention_is_between_two_roles():
    source, target = axis(3, role=Role.SOURCE), axis(2, role=Role.TARGET)
    maps = AttentionMaps(
        [
            random_attention(1, 3, 3, name="encoder.0.self", queries=source, keys=source),
            random_attention(1, 2, 3, name="decoder.0.cross", queries=target, keys=source),
        ]
    )
    assert [one.name for one in alignment.cross_attention(maps)] == ["decoder.0.cross"]
    assert [one.name for one in alignment.cross_attention(maps.values())] == ["decoder.0.cross"]


def test_strip_ends_drops_the_last_token_of_both_axes():
    whole = random_attention(2, 3, 4, queries=axis(3, (0, 1, 1)), keys=axis(4))
    inner = alignment.strip_ends(whole)
    assert torch.equal(inner.weights, whole.weights[:, :-1, :-1])
    assert (inner.queries, inner.keys) == (TokenAxis(Role.TEXT, ("w0", "w1"), (0, 1)), axis(3))
    grid = GridAxis(Role.IMAGE, 2, 2)
    over_image = alignment.strip_ends(random_attention(1, 3, 4, queries=axis(3), keys=grid))
    assert (over_image.shape, over_image.keys) == ((1, 2, 4), grid), "a grid has no end"


def test_a_grid_has_no_words_to_merge():
    grid = GridAxis(Role.IMAGE, 2, 2)
    whole = random_attention(1, 3, 4, queries=axis(3, (0, 0, 1)), keys=grid)
    merged = alignment.merge_words(whole)
    assert merged.keys is grid and len(merged.queries) == 2
