"""Positional encodings: their formulas, for calls with any start."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from saccade.nn.positions import Learned, Rotary, Sinusoidal

CPU = torch.device("cpu")


@given(position=st.integers(0, 300), pair=st.integers(0, 7))
def test_sinusoidal_is_the_published_formula_with_sines_left_and_cosines_right(position, pair):
    vector = Sinusoidal(16)(position, 1, CPU)[0, 0]
    angle = position / 10000 ** (2 * pair / 16)
    assert vector[pair].item() == pytest.approx(math.sin(angle), abs=1e-4)
    assert vector[pair + 8].item() == pytest.approx(math.cos(angle), abs=1e-4)


@pytest.mark.parametrize("make", [lambda: Sinusoidal(8), lambda: Learned(12, 8)], ids=["sinusoidal", "learned"])
def test_a_later_start_returns_the_later_vectors(make):
    position = make()
    whole = position(0, 12, CPU)
    assert whole.shape == (1, 12, 8)
    assert torch.equal(position(7, 3, CPU), whole[:, 7:10])
    apart = position(torch.tensor([7, 0]), 3, CPU)
    assert torch.equal(apart, torch.stack((whole[0, 7:10], whole[0, :3])))


def test_a_learned_position_gets_only_its_own_gradient():
    position = Learned(5, 4)
    position(1, 2, CPU).sum().backward()
    assert torch.equal(position.table.weight.grad, torch.tensor([0.0, 1, 1, 0, 0])[:, None].expand(5, 4))


def as_complex(x):
    """The pair (2i, 2i + 1) as one complex number."""
    return torch.complex(x[..., 0::2], x[..., 1::2])


@given(start=st.integers(0, 50), tokens=st.integers(1, 6), half=st.integers(1, 5), base=st.sampled_from([100.0, 1e4]))
def test_rotary_multiplies_each_pair_by_a_number_on_the_unit_circle(start, tokens, half, base):
    x = torch.randn(2, tokens, 3, 2 * half).double()
    speed = torch.tensor([base ** (-i / half) for i in range(half)])
    angle = torch.arange(start, start + tokens)[:, None, None] * speed
    expected = as_complex(x) * torch.polar(torch.ones_like(angle), angle)
    torch.testing.assert_close(
        as_complex(Rotary(2 * half, base)(x, start)), expected.to(torch.cdouble), atol=1e-5, rtol=0
    )


@given(shift=st.integers(0, 40), first=st.integers(0, 10), second=st.integers(0, 10))
def test_rotary_scores_depend_only_on_the_distance(shift, first, second):
    rotary = Rotary(8)
    q, k = torch.randn(1, 1, 1, 8).double(), torch.randn(1, 1, 1, 8).double()

    def score(i, j):
        return (rotary(q, i) * rotary(k, j)).sum()

    torch.testing.assert_close(score(first, second), score(first + shift, second + shift), atol=1e-5, rtol=0)


def test_rotary_preserves_norms_and_does_not_change_position_zero():
    x = torch.randn(2, 6, 3, 8)
    turned = Rotary(8)(x, 0)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(turned[:, 0], x[:, 0])
    assert not torch.allclose(turned[:, 1:], x[:, 1:])


def test_rotary_rows_with_different_starts_equal_each_row_alone():
    rotary, x = Rotary(8), torch.randn(3, 4, 2, 8)
    starts = torch.tensor([9, 0, 30])
    together = rotary(x, starts)
    for row, start in enumerate(starts.tolist()):
        assert torch.equal(together[row : row + 1], Rotary(8)(x[row : row + 1], start))


def test_rotary_extends_its_table_of_angles():
    rotary, x = Rotary(8), torch.randn(1, 10, 1, 8)
    rotary(x[:, :3], 0)
    assert torch.equal(rotary(x, 0), Rotary(8)(x, 0))
    assert torch.equal(rotary(x[:, 4:6], 4), Rotary(8)(x, 0)[:, 4:6])


def test_rotary_angles_cached_in_inference_mode_can_be_used_in_training():
    rotary = Rotary(4)
    with torch.inference_mode():
        rotary(torch.randn(1, 3, 1, 4), 0)
    x = torch.randn(1, 3, 1, 4, requires_grad=True)
    rotary(x, 0).sum().backward()
    assert x.grad.abs().sum() > 0


def test_invalid_widths_and_positions_are_refused():
    with pytest.raises(ValueError, match="dim must be even for sinusoidal positions, but is 7"):
        Sinusoidal(7)
    with pytest.raises(ValueError, match="the head width must be even for rotary positions, but is 5"):
        Rotary(5)
    with pytest.raises(ValueError, match="position 7 is beyond the 6 learned ones"):
        Learned(6, 4)(4, 3, CPU)
    with pytest.raises(ValueError, match="position 8 is beyond the 6 learned ones"):
        Learned(6, 4)(torch.tensor([1, 5]), 3, CPU)
