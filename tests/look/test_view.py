"""Views: any rectangle is the same part of the whole map; small pictures and habits say what heads do."""

import math

import pytest
import torch

from saccade.core.task import AttentionMap, Axis
from saccade.errors import UsageError
from saccade.look.maps import merge
from saccade.look.view import View, habits, thumbnails
from saccade.nn.attention import Attention
from saccade.nn.masks import Causal
from saccade.nn.probe import RecordedRow, watch

TOKENS = 11
PIECES = Axis("words", tuple(f" {n}" if n % 3 else f"x{n}" for n in range(TOKENS)), (0, 0, 1, 1, 1, 2, 3, 4, 4, 5, 5))


@pytest.fixture
def read():
    """A map that is computed when it is asked for."""
    attention = Attention(12, 3).eval()
    with torch.no_grad(), watch(attention) as maps:
        attention(3 * torch.randn(1, TOKENS, 12), mask=Causal())
    return AttentionMap("self", RecordedRow(maps[""], 0), PIECES, PIECES)


@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("head", [None, 0, 2])
def test_a_rectangle_is_a_part_of_the_whole(read, words, head):
    whole = (merge(read) if words else read).weights
    whole = whole.mean(0) if head is None else whole[head]
    view = View(read, words)
    assert (len(view.queries.labels), len(view.keys.labels)) == tuple(whole.shape)
    torch.testing.assert_close(view.cells(range(1, 5), range(2, 6), head), whole[1:5, 2:6])
    torch.testing.assert_close(view.cells(range(len(whole)), range(len(whole)), head), whole)


def test_steps_leave_rows_out_and_keep_the_strongest_column(read):
    found = View(read, False).cells(range(0, TOKENS, 3), range(0, TOKENS, 4), 1)
    whole = read.weights[1, ::3]
    wanted = torch.stack([whole[:, first : first + 4].amax(1) for first in range(0, TOKENS, 4)], dim=1)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(
    ("rows", "columns", "head", "says"),
    [
        (range(0, 12), range(0, 2), None, r"rows must be within 0 to 11, but are 0 to 12"),
        (range(0, 2), range(-1, 2), None, r"columns must be within 0 to 11, but are -1 to 2"),
        (range(0, 2), range(0, 2), 3, r"head must be 0 to 2 in 'self', but is 3"),
    ],
)
def test_what_is_outside_is_refused(read, rows, columns, head, says):
    with pytest.raises(UsageError, match=says):
        View(read, False).cells(rows, columns, head)


def test_thumbnails_are_small_and_as_strong_as_they_can_be(read):
    small = thumbnails(read, 4)
    assert small.shape == (3, 4, 4)
    torch.testing.assert_close(small.amax(-1), torch.ones(3, 4))
    torch.testing.assert_close(thumbnails(read, 20), read.weights / read.weights.amax(-1, keepdim=True))


def test_habits_of_heads_made_by_hand():
    eye = torch.eye(6)
    before = torch.cat((eye[:1], eye[:-1]))  # the first token has none before it
    first = torch.zeros(6, 6)
    first[:, 0] = 1
    flat = torch.full((6, 6), 1 / 6)
    axis = Axis("words", tuple("abcdef"))
    found = habits(AttentionMap("self", torch.stack((eye, before, first, flat)), axis, axis))
    assert [one.kind for one in found] == ["itself", "previous token", "first token", "broad"]
    assert found[0].entropy == 0 and found[0].distance == 0 and found[0].itself == 1
    assert found[1].previous == 1 and found[1].distance == pytest.approx(5 / 6)
    assert found[2].distance == pytest.approx(2.5)
    assert found[3].entropy == pytest.approx(1) and not math.isnan(found[3].first)
