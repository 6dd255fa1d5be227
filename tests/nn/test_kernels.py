"""Kernels: single autograd nodes equal their plain formula, forward and backward."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck
from torch.nn import functional as F

from saccade.nn.kernels import consistent_loss, dropout, level, squared_relu, token_loss, turn


def unit(*shape):
    """Random complex numbers of length 1."""
    angle = torch.randn(shape, dtype=torch.double)
    return torch.polar(torch.ones_like(angle), angle)


def plain_turn(x, angle):
    first, second = x[..., 0::2], x[..., 1::2]
    cos, sin = angle.real, angle.imag
    return torch.stack((first * cos - second * sin, second * cos + first * sin), dim=-1).flatten(-2)


@given(rows=st.integers(1, 2), tokens=st.integers(1, 3), heads=st.integers(1, 2), half=st.integers(1, 3))
def test_turn_equals_its_formula_and_its_numerical_gradient(rows, tokens, heads, half):
    x = torch.randn(rows, tokens, heads, 2 * half, dtype=torch.double, requires_grad=True)
    angle = unit(1, tokens, 1, half)
    torch.testing.assert_close(turn(x, angle), plain_turn(x, angle), atol=1e-14, rtol=1e-14)
    assert gradcheck(lambda x: turn(x, angle), x)


def test_turn_takes_a_view_with_gaps_and_leaves_it_unchanged():
    """q and k are slices of one product of q, k and v."""
    wide = torch.randn(2, 3, 2, 12, dtype=torch.double)
    before, view, angle = wide.clone(), wide[..., 2:6], unit(1, 3, 1, 2)
    torch.testing.assert_close(turn(view, angle), plain_turn(view, angle))
    assert torch.equal(wide, before)


def test_turn_takes_a_gradient_that_is_one_number_spread_out():
    """The gradient of a sum is such a tensor."""
    x, angle = torch.randn(2, 3, 1, 4, dtype=torch.double, requires_grad=True), unit(1, 3, 1, 2)
    (gradient,) = torch.autograd.grad(turn(x, angle).sum(), x)
    torch.testing.assert_close(gradient, torch.autograd.grad(plain_turn(x, angle).sum(), x)[0])


def test_turn_keeps_the_precision_of_its_input():
    for dtype in (torch.float16, torch.float32, torch.float64):
        assert turn(torch.randn(1, 3, 2, 4).to(dtype), unit(1, 3, 1, 2)).dtype == dtype


@given(rows=st.integers(1, 3), width=st.integers(1, 6), scale=st.sampled_from([1e-3, 1.0, 100.0]))
def test_level_equals_its_formula_and_its_numerical_gradient(rows, width, scale):
    x = (scale * torch.randn(rows, width, dtype=torch.double)).requires_grad_()
    expected = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    torch.testing.assert_close(level(x), expected, atol=1e-13, rtol=1e-13)
    direction = torch.randn_like(x)
    (ours,), (theirs,) = (torch.autograd.grad((y * direction).sum(), x) for y in (level(x), expected))
    torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-10)
    if scale >= 1:  # where a finite difference is smooth enough
        assert gradcheck(level, x)


@given(st.lists(st.floats(-4, 4).filter(lambda value: abs(value) > 1e-3), min_size=1, max_size=8))
def test_squared_relu_equals_its_formula_and_its_numerical_gradient(values):
    x = torch.tensor(values, dtype=torch.double, requires_grad=True)
    assert torch.equal(squared_relu(x), x.clamp(min=0) ** 2)
    assert gradcheck(squared_relu, x)


def test_squared_relu_has_gradient_zero_at_zero():
    x = torch.zeros(3, requires_grad=True)
    squared_relu(x).sum().backward()
    assert (x.grad == 0).all()


@pytest.mark.parametrize("kernel", [level, squared_relu])
def test_a_second_derivative_is_refused_rather_than_wrong(kernel):
    x = torch.randn(3, 4, requires_grad=True)
    (first,) = torch.autograd.grad(kernel(x).pow(2).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_level_does_not_overflow_in_short_numbers(kind):
    x = (12 * torch.randn(5, 768)).to(kind)
    y = level(x)
    assert y.dtype == kind
    torch.testing.assert_close(y.float().square().mean(-1).sqrt(), torch.ones(5), atol=5e-3, rtol=0)


def test_dropout_drops_its_share_keeps_the_mean_and_follows_the_seed():
    x = torch.ones(500, 401)
    torch.manual_seed(3)
    y = dropout(x, 0.1, True)
    assert y.unique().tolist() == pytest.approx([0.0, 1 / 0.9], rel=1e-4)
    assert (y == 0).float().mean().item() == pytest.approx(0.1, abs=0.003)  # four deviations
    assert y.mean().item() == pytest.approx(1.0, abs=0.003)
    torch.manual_seed(3)
    assert torch.equal(dropout(x, 0.1, True), y)
    assert not torch.equal(dropout(x, 0.1, True), y)


def test_dropout_has_the_gradient_of_what_it_kept_and_does_nothing_when_settled():
    x = torch.randn(7, 5, requires_grad=True)
    y = dropout(x, 0.5, True)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(gradient, torch.where(y == 0, 0.0, 2.0))
    assert dropout(x, 0.5, False) is x
    assert dropout(x, 0.0, True) is x
    assert dropout(x.to(torch.bfloat16), 0.5, True).dtype == torch.bfloat16


@pytest.mark.parametrize("rows", [1, 128, 300])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_token_loss_equals_the_cross_entropy_of_all_logits(rows, smoothing):
    features = torch.randn(rows, 6, dtype=torch.double, requires_grad=True)
    weight = (30 * torch.randn(11, 6, dtype=torch.double)).requires_grad_()  # some chances vanish
    labels = torch.randint(11, (rows,))
    ours = token_loss(features, weight, labels, smoothing)
    theirs = torch.nn.functional.cross_entropy(features @ weight.t(), labels, label_smoothing=smoothing)
    torch.testing.assert_close(ours, theirs)
    for mine, other in zip(*(torch.autograd.grad(3 * x, (features, weight)) for x in (ours, theirs)), strict=True):
        torch.testing.assert_close(mine, other)
    with torch.no_grad():
        torch.testing.assert_close(token_loss(features, weight, labels, smoothing), theirs.detach())


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_consistent_loss_is_the_cross_entropy_and_both_divergences_of_r_drop(smoothing):
    features = torch.randn(2 * 5, 6, dtype=torch.double, requires_grad=True)
    weight = torch.randn(11, 6, dtype=torch.double, requires_grad=True)
    labels = torch.randint(11, (5,)).repeat(2)
    ours = consistent_loss(features, weight, labels, smoothing, 3.0)

    logits = features @ weight.t()
    logs = logits.log_softmax(1).chunk(2)
    there, back = (F.kl_div(a, b, log_target=True, reduction="batchmean") for a, b in (logs, logs[::-1]))
    both = [F.cross_entropy(x, labels[:5], label_smoothing=smoothing) for x in logits.chunk(2)]
    theirs = (sum(both) + 3.0 * (there + back) / 2) / 2
    torch.testing.assert_close(ours, theirs)
    for mine, other in zip(*(torch.autograd.grad(x, (features, weight)) for x in (ours, theirs)), strict=True):
        torch.testing.assert_close(mine, other)


def test_consistent_loss_of_equal_readings_is_the_plain_loss():
    features, weight, labels = torch.randn(5, 6).repeat(2, 1), torch.randn(11, 6), torch.randint(11, (5,)).repeat(2)
    torch.testing.assert_close(
        consistent_loss(features, weight, labels, 0.1, 5.0), token_loss(features, weight, labels, 0.1)
    )
