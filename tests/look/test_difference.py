"""Minimal pairs: aligned words with their gaps, differences by hand, and the changes that are largest."""

import pytest
import torch

from saccade.core import AttentionMap, AttentionMaps, Prediction, Role, TextOutput, TokenAxis
from saccade.errors import UsageError
from saccade.look import difference as module
from saccade.look.difference import align_labels, compare_predictions, largest_changes, paired_maps


def prediction(text, weights, name="self", words=(), role=Role.TEXT):
    axis = TokenAxis(role, tuple(text.split()), words)
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
LONGER = prediction("it was not tired .", planted(5, (1, 0, 2, 0.5)))


def ranked(first, second, count=20, **options):
    differences = compare_predictions(first, second)
    heads, changes = largest_changes(differences, count, **options)
    return differences, heads, changes


@pytest.mark.parametrize(
    ("first", "second", "pairs"),
    [
        ("it was tired", "it was wide", ((0, 0), (1, 1), (2, 2))),
        ("it was tired .", "it was not tired .", ((0, 0), (1, 1), (None, 2), (2, 3), (3, 4))),
        ("it was tired .", "it was very wide .", ((0, 0), (1, 1), (2, None), (None, 2), (None, 3), (3, 4))),
        ("It was", "it was", ((0, 0), (1, 1))),
        ("a b", "b", ((0, None), (1, 0))),
        ("", "a", ((None, 0),)),
        ("it didn ' t run", "it didn't walk .", ((0, 0), ((1, 2, 3), 1), (4, None), (None, 2), (None, 3))),
        ("it didn ' t run", "It didn't walk", ((0, 0), ((1, 2, 3), 1), (4, 2))),
        ("didn't", "did n't go", ((0, (0, 1)), (None, 2))),
        ("[CLS] cat [SEP]", "c a t", ((0, None), (1, (0, 1, 2)), (2, None))),
        ("don ' t", "didn't", ((0, None), (1, None), (2, None), (None, 0))),
    ],
)
def test_every_word_is_aligned_or_has_a_gap(first, second, pairs):
    aligned = align_labels(first.split(), second.split())
    numbers = [[None if span is None else tuple(span) for span in pair] for pair in aligned]
    assert numbers == [[(at,) if isinstance(at, int) else at for at in pair] for pair in pairs]


def test_what_changed_is_ranked_by_its_size():
    (difference,), heads, changes = ranked(TIRED, WIDE, 3)
    assert [abs(change.difference) for change in changes] == pytest.approx([0.6, 0.6, 0.2])
    lost = next(change for change in changes if change.difference < -0.5)
    assert (lost.maps, lost.head) == (("self", "self"), 1)
    assert difference.query_labels(lost.query) == ("it", "it")
    assert difference.key_labels(lost.key) == ("tired", "wide")
    assert (lost.before, lost.after) == pytest.approx((0.7, 0.1))
    assert heads == [pytest.approx([0.2 / 4, 0.6 / 4])], "mean over four queries"
    assert ranked(TIRED, TIRED)[1:] == ([[0, 0]], []), "what does not change is not in the list"


def test_a_gap_is_kept_and_the_weight_of_its_key_is_lost():
    (difference,), heads, changes = ranked(TIRED, LONGER)
    before, after = difference.weights(range(5), range(5), 1, 1)
    expected = torch.zeros(2, 5, 5)
    expected[0, 0, 0], expected[0, 0, 3], expected[1, 0, 0], expected[1, 0, 2] = 0.3, 0.7, 0.5, 0.5
    for at in (1, 3, 4):
        expected[:, at, at] = 1
    expected[1, 2, 2] = 1  # the query that only the second has
    torch.testing.assert_close(torch.stack([before, after]), expected)
    assert difference.query_labels(2) == difference.key_labels(2) == (None, "not")
    assert heads[0][1] == pytest.approx(0.7 / 4), "0.7 of the attention of one of four common queries moved"
    assert all(2 not in (change.query, change.key) for change in changes), "only weights that both have"
    part = difference.weights(range(2, 4), range(1, 3), 1, 1)
    torch.testing.assert_close(torch.stack(part), expected[:, 2:4, 1:3])


def test_words_leave_out_special_tokens_and_punctuation():
    first = prediction("[CLS] it .", planted(3, (0, 1, 0, 0.9)))
    second = prediction("[CLS] it .", planted(3, (0, 1, 2, 0.5)))
    _, _, every = ranked(first, second)
    _, _, words = ranked(first, second, words=True)
    assert [change.key for change in every] == [0, 2, 1]
    assert [(change.query, change.key) for change in words] == [(1, 1)]


def test_the_parts_of_long_maps_give_the_same(monkeypatch):
    whole = ranked(TIRED, LONGER, 5)
    monkeypatch.setattr(module, "TOGETHER", 1)
    parts = ranked(TIRED, LONGER, 5)
    assert whole[1:] == parts[1:]


def test_words_are_compared_whatever_their_pieces():
    one = prediction("the st ##reet", planted(3, (0, 0, 2, 0.4)), words=(0, 1, 1))
    other = prediction("the street", planted(2), words=(0, 1))
    (difference,) = compare_predictions(one, other)
    assert [difference.key_labels(at) for at in range(2)] == [("the", "the"), ("street", "street")]
    before, after = difference.weights(range(2), range(2), 0, 0)
    torch.testing.assert_close((after - before)[0], torch.tensor([0.4, -0.4]))
    (tokens,) = compare_predictions(one, other, words=False)
    assert [tokens.key_labels(at) for at in range(len(tokens.keys))] == [
        ("the", "the"),
        ("st", None),
        ("##reet", None),
        (None, "street"),
    ]


def test_words_that_one_model_splits_are_put_together():
    one = prediction("it didn ' t", planted(4, (0, 1, 3, 0.5), (0, 2, 0, 0.9), (0, 0, 2, 0.3)))
    other = prediction("it didn't", planted(2, (0, 1, 0, 0.3)))
    (difference,) = compare_predictions(one, other)
    assert difference.key_labels(1) == ("didn't", "didn't")
    before, after = difference.weights(range(2), range(2), 0, 0)
    torch.testing.assert_close(
        before, torch.tensor([[0.7, 0.3], [0.3, 0.7]]), msg="the mean of queries, the sum of keys"
    )
    torch.testing.assert_close(after, torch.tensor([[1.0, 0.0], [0.3, 0.7]]))


def test_any_head_of_the_first_is_compared_with_any_of_the_second():
    (difference,) = compare_predictions(TIRED, WIDE)
    before, after = difference.weights(range(4), range(4), 1, 0)
    assert (float(before[0, 2]), float(after[3, 1])) == pytest.approx((0.7, 0.2))
    mean, _ = difference.weights(range(4), range(4))
    assert float(mean[0, 2]) == pytest.approx(0.35)
    with pytest.raises(UsageError, match="head must be 0 to 1 in 'self', but is 2"):
        difference.weights(range(4), range(4), 2, 0)
    with pytest.raises(UsageError, match="rows must be within 0 to 4, but are 0 to 5"):
        difference.weights(range(5), range(4), 0, 0)


def test_maps_of_other_names_are_compared_in_their_order():
    first = {name: prediction("a b", planted(2), name).attention[name] for name in ("one", "two", "three")}
    second = {name: prediction("a b", planted(2), name).attention[name] for name in ("un", "deux")}
    assert paired_maps(first, second) == [("one", "un"), ("two", "deux")]
    assert paired_maps(first, {**second, "two": first["two"]}) == [("two", "two")]


def test_predictions_with_nothing_in_common_are_refused():
    with pytest.raises(UsageError, match="must have attention over the same kind of input, but have none in common"):
        compare_predictions(TIRED, prediction("it", torch.ones(1, 1, 1), "other", role=Role.SOURCE))
