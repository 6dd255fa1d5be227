"""Minimal pairs: aligned tokens, differences by hand, and the changes that are largest."""

import pytest
import torch

from saccade.core import AttentionMap, AttentionMaps, Prediction, Role, TextOutput, TokenAxis
from saccade.errors import UsageError
from saccade.look.compare import align, compare, largest_changes


def prediction(text, weights, name="self", words=()):
    axis = TokenAxis(Role.TEXT, tuple(text.split()), words)
    return Prediction(
        {"text": text}, TextOutput(""), attention=AttentionMaps([AttentionMap(name, weights, axis, axis)])
    )


def planted(size, *cells):
    """Two heads that look at themselves, but for some weights (head, query, key, weight)."""
    weights = torch.eye(size).repeat(2, 1, 1)
    for head, query, key, weight in cells:
        weights[head, query, query] -= weight
        weights[head, query, key] += weight
    return weights


TIRED = prediction("it was tired .", planted(4, (1, 0, 2, 0.7)))
WIDE = prediction("it was wide .", planted(4, (1, 0, 2, 0.1), (0, 3, 1, 0.2)))


@pytest.mark.parametrize(
    ("first", "second", "pairs"),
    [
        ("it was tired", "it was wide", ((0, 0), (1, 1), (2, 2))),
        ("it was tired .", "it was very wide .", ((0, 0), (1, 1), (3, 4))),
        ("a b", "c b", ((0, 0), (1, 1))),
        ("", "a", ()),
    ],
)
def test_equal_tokens_are_aligned_and_as_many_in_their_place(first, second, pairs):
    assert align(first.split(), second.split()) == pairs


def test_what_changed_is_ranked_by_its_size():
    (comparison,) = compare(TIRED, WIDE)
    changes = largest_changes([comparison], 3)
    first = changes[0]
    assert (first.name, first.head, first.query) == ("self", 1, ("it", "it"))
    assert {change.key for change in changes[:2]} == {("tired", "wide"), ("it", "it")}, "what one loses another gains"
    assert [abs(change.difference) for change in changes] == pytest.approx([0.6, 0.6, 0.2])
    lost = next(change for change in changes if change.key == ("tired", "wide"))
    assert (lost.before, lost.after) == pytest.approx((0.7, 0.1))


def test_the_difference_is_a_matrix_for_each_head():
    (comparison,) = compare(TIRED, WIDE)
    expected = torch.zeros(4, 4)
    expected[0, 0], expected[0, 2] = 0.6, -0.6
    torch.testing.assert_close(comparison.difference(1), expected)
    torch.testing.assert_close(comparison.difference(), (comparison.difference(0) + expected) / 2)
    assert comparison.changed() == pytest.approx([0.2 / 4, 0.6 / 4])
    (same,) = compare(TIRED, TIRED)
    assert same.changed() == [0, 0]


def test_texts_of_different_lengths_are_compared_where_they_are_alike():
    longer = prediction("it was very wide .", planted(5, (1, 0, 4, 0.5)))
    (comparison,) = compare(TIRED, longer)
    assert comparison.difference(0).shape == (3, 3), "it, was and the full stop"
    changes = largest_changes([comparison], 1)
    assert changes[0].key in ((".", "."), ("it", "it")) and abs(changes[0].difference) == pytest.approx(0.5)


def test_words_are_compared_whatever_their_pieces():
    one = prediction("the st ##reet", planted(3, (0, 0, 2, 0.4)), words=(0, 1, 1))
    other = prediction("the street", planted(2), words=(0, 1))
    (comparison,) = compare(one, other)
    assert comparison.keys == ((0, 0), (1, 1))
    torch.testing.assert_close(comparison.difference(0)[0], torch.tensor([0.4, -0.4]))
    (tokens,) = compare(one, other, words=False)
    assert tokens.keys == ((0, 0),)


def test_predictions_with_nothing_in_common_are_refused():
    with pytest.raises(UsageError, match="must share a map with the same number of heads, but share none; predict"):
        compare(TIRED, prediction("it", torch.ones(1, 1, 1)))
    with pytest.raises(UsageError, match="must have tokens in common, but have none in 'self'; compare inputs that"):
        compare(TIRED, prediction("x y", planted(2)))
