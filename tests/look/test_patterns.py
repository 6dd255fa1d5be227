"""Patterns of heads: planted heads are recognised, whatever the text; the others are broad, peaked or mixed."""

import pytest
import torch

from saccade.core import AttentionMap, Role, TokenAxis
from saccade.look.patterns import head_patterns, head_pictures
from tests.look.attention_maps import attention, axis

TEXT = TokenAxis(Role.TEXT, ("[CLS]", "a", "cat", "##s", "ran", ".", "a", "dog", "[SEP]"), (0, 1, 2, 2, 3, 4, 5, 6, 7))
COUNT = len(TEXT)


def looking_at(target):
    """Return a head that attends from query i to key target(i), and to itself where that is None."""
    weights = torch.zeros(COUNT, COUNT)
    for query in range(COUNT):
        key = target(query)
        weights[query, query if key is None else key] = 1
    return weights


PLANTED = {
    "same token": looking_at(lambda query: query),
    "previous token": looking_at(lambda query: query - 1 if query else None),
    "next token": looking_at(lambda query: query + 1 if query + 1 < COUNT else None),
    "first token": looking_at(lambda query: 0),
    "special token": looking_at(lambda query: COUNT - 1),
    "punctuation": looking_at(lambda query: 5),
    "same word": looking_at(lambda query: {2: 3, 3: 2}.get(query, 4)),
    "repeated token": looking_at(lambda query: {1: 6, 6: 1}.get(query, 4)),
    "induction": looking_at(lambda query: {6: 2}.get(query, 4)),
    "broad": torch.full((COUNT, COUNT), 1 / COUNT),
    "peaked": looking_at(lambda query: 4),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_head_is_recognised(name):
    (pattern,) = head_patterns(AttentionMap("self", PLANTED[name][None], TEXT, TEXT))
    assert pattern.name == name
    assert all(0 <= score <= 1.0001 for score in pattern.scores.values())


def test_between_two_sequences_only_the_kind_of_the_key_counts():
    source = axis(3, role=Role.SOURCE)
    weights = torch.eye(3)[None]
    (pattern,) = head_patterns(attention(weights, "cross", axis(3, role=Role.TARGET), source))
    assert set(pattern.scores) == {"first token"} and pattern.name == "peaked"


def test_a_head_of_several_kinds_is_mixed():
    weights = (0.45 * PLANTED["previous token"] + 0.45 * PLANTED["next token"] + 0.1 * PLANTED["peaked"])[None]
    (pattern,) = head_patterns(AttentionMap("self", weights, TEXT, TEXT))
    assert pattern.name == "mixed"
    assert pattern.scores["previous token"] == pytest.approx(0.45, abs=0.05)


def test_small_pictures_keep_the_size_of_weights():
    weights = torch.rand(2, 9, 9).softmax(-1)
    whole = AttentionMap("self", weights, TEXT, TEXT)
    torch.testing.assert_close(head_pictures(whole, 9), weights)
    small = head_pictures(whole, 3)
    assert small.shape == (2, 3, 3)
    torch.testing.assert_close(small, weights[:, ::3].unflatten(2, (3, 3)).amax(-1))
    assert head_pictures(attention(torch.zeros(2, 0, 4)), 3).shape == (2, 0, 0)
