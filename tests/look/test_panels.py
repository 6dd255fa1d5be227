"""Panels: a word or a cell and its weights over the grid, and the point it looks at."""

import pytest
import torch

from saccade.core import StepAxis
from saccade.core.axes import Role
from saccade.errors import UsageError
from saccade.look.panels import gaze, left_out, panels
from tests.look.image_maps import at_cells, self_map, word_map


def test_a_cell_is_chosen_by_row_and_column():
    weights = torch.rand(7, 7).softmax(-1)
    (panel,) = panels(self_map(weights), (1, 2))
    torch.testing.assert_close(panel.weights, weights[6, 1:].reshape(2, 3))
    assert panel.label == "1,2" and panel.extra == (("class", pytest.approx(float(weights[6, 0]))),)
    assert panel.query == (0.5, pytest.approx(2 / 3), 1.0, pytest.approx(1.0))
    with pytest.raises(UsageError, match=r"at must be 0,0 to 1,2 in 'encoder.0.self', but is 2,0"):
        panels(self_map(weights), (2, 0))


def test_a_long_text_says_how_many_of_its_words_are_shown():
    attention = word_map(torch.rand(70, 6).softmax(-1), tuple(f"w{number}" for number in range(70)))
    assert len(panels(attention)) == 64 and left_out(attention) == "the first 64 of 70 queries"
    assert left_out(word_map(at_cells([(0, 0)]), ("a",))) == ""


def test_there_is_one_gaze_for_each_word_at_the_centre_of_its_cell():
    cells = [(0, 0), (1, 2), (0, 1)]
    points = gaze(word_map(at_cells(cells), ("a", "red", "dog")))
    assert points == [(pytest.approx((column + 0.5) / 3), pytest.approx((row + 0.5) / 2)) for row, column in cells]


def test_a_gaze_stays_on_the_stronger_of_two_objects_and_leans_to_its_neighbours():
    far = torch.zeros(1, 10)
    far[0, 1], far[0, 2], far[0, 9] = 0.4, 0.2, 0.4 - 1e-3
    ((x, y),) = gaze(word_map(far, ("dog",), rows=1, columns=10))
    assert 0.15 < x < 0.25 and y == 0.5
    assert gaze(word_map(torch.zeros(1, 6), ("nothing",))) == [(0.5, 0.5)]


def test_positions_before_the_grid_do_not_attract_the_gaze():
    weights = torch.tensor([[0.9, 0.0, 0.0, 0.0, 0.0, 0.0, 0.1]])
    assert gaze(word_map(weights, ("a",), extra=("class",))) == [(pytest.approx(2.5 / 3), pytest.approx(0.75))]


def test_steps_have_panels_too():
    attention = word_map(at_cells([(0, 2)]), ("answer",))
    answer = type(attention)("cross", attention.weights, StepAxis(Role.LABEL, ("answer",)), attention.keys)
    assert [panel.label for panel in panels(answer)] == ["answer"]
