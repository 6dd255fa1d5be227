"""Overlays: colours lie where the weights are, smooth or as blocks, and the image is kept where there are none."""

import pytest
import torch
import torch.nn.functional as F

from saccade.core import GridAxis, Role
from saccade.errors import UsageError
from saccade.look.overlay import MARK, OverlayStyle, fit, heat, outline, overlay, picture, scale
from tests.look.image_maps import gradient

GRID = GridAxis(Role.IMAGE, 2, 3, gradient())
SIZE = (80, 120)  # 40 pixels of a cell


@pytest.mark.parametrize("smooth", [True, False])
def test_the_strongest_colour_is_in_the_cell_of_the_largest_weight(smooth):
    for cell in range(6):
        weights = torch.full((2, 3), 0.05)
        weights[cell // 3, cell % 3] = 0.7
        style = OverlayStyle(smooth=smooth)
        red = overlay(GRID, weights, 0.7, SIZE, style)[0].float()
        row, column = divmod(int(red.argmax()), SIZE[1])
        assert (row // 40, column // 40) == divmod(cell, 3)
        alpha = heat(weights, 0.7, SIZE, style)[3]
        assert int(alpha.max()) == round(255 * style.opacity)


def test_blocks_are_constant_within_a_cell_and_smooth_weights_equal_bicubic_interpolation():
    weights = torch.rand(2, 3)
    blocks = scale(weights, 1.0, SIZE, smooth=False)
    torch.testing.assert_close(blocks, weights.repeat_interleave(40, 0).repeat_interleave(40, 1))
    expected = F.interpolate(weights[None, None], SIZE, mode="bicubic")[0, 0].clamp(0, 1)
    torch.testing.assert_close(scale(weights, 1.0, SIZE, smooth=True), expected)


def test_without_weight_or_opacity_the_image_is_seen():
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    plain = picture(GRID, SIZE).round().byte()
    covered = overlay(GRID, weights, 1.0, SIZE, OverlayStyle(smooth=False))
    assert torch.equal(covered[:, :, 40:], plain[:, :, 40:]) and not torch.equal(covered, plain)
    assert torch.equal(overlay(GRID, weights, 1.0, SIZE, OverlayStyle(opacity=0)), plain)
    assert torch.equal(overlay(GRID, 0 * weights, 0.0, SIZE, OverlayStyle()), plain)


def test_more_cells_than_pixels_show_the_largest_of_them():
    weights = torch.zeros(8, 8)
    weights[5, 2] = 0.4
    small = scale(weights, 0.4, (2, 4), smooth=False)
    assert small.nonzero().tolist() == [[1, 1]] and float(small.max()) == 1


def test_a_picture_has_the_proportions_of_the_image_and_an_area():
    wide = GridAxis(Role.IMAGE, 1, 40, torch.zeros(1, 32, 256, dtype=torch.uint8))
    high, across = fit(wide, 6400)
    assert across / high == pytest.approx(8, rel=0.05) and high * across == pytest.approx(6400, rel=0.05)
    assert fit(GridAxis(Role.IMAGE, 2, 4), 800) == (20, 40), "without an image those of the grid"


def test_a_small_image_is_enlarged_in_squares():
    tiny = GridAxis(Role.IMAGE, 1, 1, torch.tensor([[[0, 255]]], dtype=torch.uint8))
    assert set(picture(tiny, (4, 8)).unique().tolist()) == {0.0, 255.0}


def test_the_outline_encloses_its_cell():
    marked = outline(torch.zeros(3, *SIZE, dtype=torch.uint8), (0.5, 1 / 3, 1.0, 2 / 3), 2)
    inside = (marked == torch.tensor(MARK, dtype=torch.uint8)[:, None, None]).all(0)
    rows, columns = inside.nonzero(as_tuple=True)
    assert (int(rows.min()), int(rows.max()), int(columns.min()), int(columns.max())) == (40, 79, 40, 79)
    assert not inside[45:75, 45:75].any()


@pytest.mark.parametrize("opacity", [-0.1, 1.5])
def test_opacity_is_a_fraction(opacity):
    with pytest.raises(UsageError, match=f"opacity must be 0 to 1, but is {opacity}"):
        OverlayStyle(opacity)
