"""Views: any rectangle is the same part of the whole map; thumbnails and statistics describe heads."""

import math

import pytest
import torch

from saccade.core import AttentionMap, Role, TokenAxis
from saccade.errors import UsageError
from saccade.look.view import MapView, grid_thumbnails, head_statistics, thumbnails
from saccade.metrics.alignment import merge_words
from saccade.nn.attention import Attention
from saccade.nn.masks import Causal
from saccade.nn.probe import RecordedRow, watch
from tests.look.image_maps import self_map, word_map

TOKENS = 11
PIECES = TokenAxis(
    Role.TEXT, tuple(f" {n}" if n % 3 else f"x{n}" for n in range(TOKENS)), (0, 0, 1, 1, 1, 2, 3, 4, 4, 5, 5)
)


@pytest.fixture
def attention():
    """A map that is computed when it is asked for."""
    layer = Attention(12, 3).eval()
    with torch.no_grad(), watch(layer) as maps:
        layer(3 * torch.randn(1, TOKENS, 12), mask=Causal())
    return AttentionMap("self", RecordedRow(maps[""], 0), PIECES, PIECES)


@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("head", [None, 0, 2])
def test_a_rectangle_is_a_part_of_the_whole(attention, words, head):
    whole = (merge_words(attention) if words else attention).weights
    whole = whole.mean(0) if head is None else whole[head]
    view = MapView(attention, words)
    assert (len(view.queries.labels), len(view.keys.labels)) == tuple(whole.shape)
    torch.testing.assert_close(view.cells(range(1, 5), range(2, 6), head), whole[1:5, 2:6])
    torch.testing.assert_close(view.cells(range(len(whole)), range(len(whole)), head), whole)


def test_steps_leave_rows_out_and_keep_the_strongest_column(attention):
    cells = MapView(attention, False).cells(range(0, TOKENS, 3), range(0, TOKENS, 4), 1)
    whole = attention.weights[1, ::3]
    expected = torch.stack([whole[:, first : first + 4].amax(1) for first in range(0, TOKENS, 4)], dim=1)
    torch.testing.assert_close(cells, expected)


@pytest.mark.parametrize("head", [None, 1])
@pytest.mark.parametrize("step", [2, 3, 7])
def test_steps_leave_words_out_before_anything_is_computed(attention, head, step, monkeypatch):
    whole = merge_words(attention).weights
    whole = whole.mean(0) if head is None else whole[head]
    computed, select = [], RecordedRow.select
    monkeypatch.setattr(RecordedRow, "select", lambda row, at, head: computed.extend(at) or select(row, at, head=head))
    view = MapView(attention, True)
    rows = range(1, len(whole), step)
    torch.testing.assert_close(view.cells(rows, range(len(whole)), head), whole[1::step])
    assert len(computed) == sum(PIECES.words.count(word) for word in rows), "only the tokens of these words"


@pytest.mark.parametrize(
    ("rows", "columns", "head", "message"),
    [
        (range(0, 12), range(0, 2), None, r"rows must be within 0 to 11, but are 0 to 12"),
        (range(0, 2), range(-1, 2), None, r"columns must be within 0 to 11, but are -1 to 2"),
        (range(0, 2), range(0, 2), 3, r"head must be 0 to 2 in 'self', but is 3"),
    ],
)
def test_what_is_outside_is_refused(attention, rows, columns, head, message):
    with pytest.raises(UsageError, match=message):
        MapView(attention, False).cells(rows, columns, head)


def test_thumbnails_are_small_and_as_strong_as_they_can_be(attention):
    small = thumbnails(attention, 4)
    assert small.shape == (3, 4, 4)
    torch.testing.assert_close(small.amax(-1), torch.ones(3, 4))
    torch.testing.assert_close(thumbnails(attention, 20), attention.weights / attention.weights.amax(-1, keepdim=True))


def test_thumbnails_over_an_image_have_its_shape_and_are_those_of_the_class_token():
    weights = torch.rand(2, 7, 7).softmax(-1)
    small = grid_thumbnails(self_map(weights))
    assert small.shape == (2, 2, 3)
    expected = weights[:, 0, 1:].reshape(2, 2, 3)
    torch.testing.assert_close(small, expected / expected.amax((1, 2), keepdim=True))
    words = word_map(torch.rand(5, 6).softmax(-1), tuple("abcde"))
    mean = words.weights.mean(1).reshape(1, 2, 3)
    torch.testing.assert_close(grid_thumbnails(words), mean / mean.max())
    assert grid_thumbnails(word_map(torch.zeros(0, 6), ())).tolist() == [[[0.0] * 3] * 2]


def test_statistics_of_heads_built_by_hand():
    eye = torch.eye(6)
    before = torch.cat((eye[:1], eye[:-1]))  # the first token has none before it
    first = torch.zeros(6, 6)
    first[:, 0] = 1
    flat = torch.full((6, 6), 1 / 6)
    axis = TokenAxis(Role.TEXT, tuple("abcdef"))
    statistics = head_statistics(AttentionMap("self", torch.stack((eye, before, first, flat)), axis, axis))
    assert [one.pattern for one in statistics] == ["same token", "previous token", "first token", "uniform"]
    assert statistics[0].entropy == 0 and statistics[0].distance == 0 and statistics[0].same == 1
    assert statistics[1].previous == 1 and statistics[1].distance == pytest.approx(5 / 6)
    assert statistics[2].distance == pytest.approx(2.5)
    assert statistics[3].entropy == pytest.approx(1) and not math.isnan(statistics[3].first)
