"""Kernels: single autograd nodes equal their plain formula, forward and backward."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from saccade.nn.kernels import squared_relu, turn


def plain_turn(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


@given(rows=st.integers(1, 2), tokens=st.integers(1, 3), heads=st.integers(1, 2), half=st.integers(1, 3))
def test_turn_equals_its_formula_and_its_numerical_gradient(rows, tokens, heads, half):
    x = torch.randn(rows, tokens, heads, 2 * half, dtype=torch.double, requires_grad=True)
    angle = torch.randn(1, tokens, 1, half, dtype=torch.double)
    cos, sin = angle.cos(), angle.sin()
    torch.testing.assert_close(turn(x, cos, sin), plain_turn(x, cos, sin), atol=1e-14, rtol=1e-14)
    assert gradcheck(lambda x: turn(x, cos, sin), x)


def test_turn_takes_a_view_with_gaps_and_leaves_it_unchanged():
    """q and k are slices of one product of q, k and v."""
    wide = torch.randn(2, 3, 2, 12, dtype=torch.double)
    before, view = wide.clone(), wide[..., 2:6].requires_grad_()
    angle = torch.randn(1, 3, 1, 2, dtype=torch.double)
    turned = turn(view, angle.cos(), angle.sin())
    assert turned.is_contiguous()
    torch.testing.assert_close(turned, plain_turn(view, angle.cos(), angle.sin()))
    assert torch.equal(wide, before)
    assert gradcheck(lambda x: turn(x, angle.cos(), angle.sin()), view)


def test_turn_keeps_the_precision_of_its_input():
    angle = torch.randn(1, 3, 1, 2)
    for dtype in (torch.float16, torch.float32, torch.float64):
        assert turn(torch.randn(1, 3, 2, 4).to(dtype), angle.cos(), angle.sin()).dtype == dtype


@given(st.lists(st.floats(-4, 4).filter(lambda value: abs(value) > 1e-3), min_size=1, max_size=8))
def test_squared_relu_equals_its_formula_and_its_numerical_gradient(values):
    x = torch.tensor(values, dtype=torch.double, requires_grad=True)
    assert torch.equal(squared_relu(x), x.clamp(min=0) ** 2)
    assert gradcheck(squared_relu, x)


def test_squared_relu_has_gradient_zero_at_zero():
    x = torch.zeros(3, requires_grad=True)
    squared_relu(x).sum().backward()
    assert (x.grad == 0).all()
