"""Kernels: single autograd nodes equal their plain formula, forward and backward."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from saccade.nn.kernels import (
    dropout,
    rdrop_loss,
    rms_normalize,
    rotate_pairs,
    squared_relu,
    token_loss,
    twice_differentiable,
)
from saccade.nn.masks import Causal, Padding
from saccade.nn.transformer import Transformer, TransformerConfig


def unit(*shape):
    """Random complex numbers of length 1."""
    angle = torch.randn(shape, dtype=torch.double)
    return torch.polar(torch.ones_like(angle), angle)


def plain_rotation(x, angle):
    first, second = x[..., 0::2], x[..., 1::2]
    cos, sin = angle.real, angle.imag
    return torch.stack((first * cos - second * sin, second * cos + first * sin), dim=-1).flatten(-2)


@given(rows=st.integers(1, 2), tokens=st.integers(1, 3), heads=st.integers(1, 2), half=st.integers(1, 3))
def test_rotate_pairs_equals_its_formula_and_its_numerical_gradient(rows, tokens, heads, half):
    x = torch.randn(rows, tokens, heads, 2 * half, dtype=torch.double, requires_grad=True)
    angle = unit(1, tokens, 1, half)
    torch.testing.assert_close(rotate_pairs(x, angle), plain_rotation(x, angle), atol=1e-14, rtol=1e-14)
    assert gradcheck(lambda x: rotate_pairs(x, angle), x)


def test_rotate_pairs_accepts_a_strided_view_and_does_not_change_it():
    """q and k are slices of one product of q, k and v."""
    wide = torch.randn(2, 3, 2, 12, dtype=torch.double)
    before, view, angle = wide.clone(), wide[..., 2:6], unit(1, 3, 1, 2)
    torch.testing.assert_close(rotate_pairs(view, angle), plain_rotation(view, angle))
    assert torch.equal(wide, before)


def test_rotate_pairs_accepts_an_expanded_scalar_gradient():
    """The gradient of a sum is such a tensor."""
    x, angle = torch.randn(2, 3, 1, 4, dtype=torch.double, requires_grad=True), unit(1, 3, 1, 2)
    (gradient,) = torch.autograd.grad(rotate_pairs(x, angle).sum(), x)
    torch.testing.assert_close(gradient, torch.autograd.grad(plain_rotation(x, angle).sum(), x)[0])


def test_rotate_pairs_keeps_the_precision_of_its_input():
    for dtype in (torch.float16, torch.float32, torch.float64):
        assert rotate_pairs(torch.randn(1, 3, 2, 4).to(dtype), unit(1, 3, 1, 2)).dtype == dtype


@given(rows=st.integers(1, 3), width=st.integers(1, 6), scale=st.sampled_from([1e-3, 1.0, 100.0]))
def test_rms_normalize_equals_its_formula_and_its_numerical_gradient(rows, width, scale):
    x = (scale * torch.randn(rows, width, dtype=torch.double)).requires_grad_()
    expected = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    torch.testing.assert_close(rms_normalize(x), expected, atol=1e-13, rtol=1e-13)
    direction = torch.randn_like(x)
    (ours,), (theirs,) = (torch.autograd.grad((y * direction).sum(), x) for y in (rms_normalize(x), expected))
    torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=1e-10)
    if scale >= 1:  # where a finite difference is smooth enough
        assert gradcheck(rms_normalize, x)


@given(st.lists(st.floats(-4, 4).filter(lambda value: abs(value) > 1e-3), min_size=1, max_size=8))
def test_squared_relu_equals_its_formula_and_its_numerical_gradient(values):
    x = torch.tensor(values, dtype=torch.double, requires_grad=True)
    assert torch.equal(squared_relu(x), x.clamp(min=0) ** 2)
    assert gradcheck(squared_relu, x)


def test_squared_relu_has_gradient_zero_at_zero():
    x = torch.zeros(3, requires_grad=True)
    squared_relu(x).sum().backward()
    assert (x.grad == 0).all()


@pytest.mark.parametrize("kernel", [rms_normalize, squared_relu])
def test_a_second_derivative_is_refused_rather_than_wrong(kernel):
    x = torch.randn(3, 4, requires_grad=True)
    (first,) = torch.autograd.grad(kernel(x).pow(2).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_rms_normalize_does_not_overflow_in_half_precision(kind):
    x = (12 * torch.randn(5, 768)).to(kind)
    y = rms_normalize(x)
    assert y.dtype == kind
    torch.testing.assert_close(y.float().square().mean(-1).sqrt(), torch.ones(5), atol=5e-3, rtol=0)


def test_dropout_has_its_probability_keeps_the_mean_and_follows_the_seed():
    x = torch.ones(500, 401)
    torch.manual_seed(3)
    y = dropout(x, 0.1, True)
    assert y.unique().tolist() == pytest.approx([0.0, 1 / 0.9], rel=1e-4)
    assert (y == 0).float().mean().item() == pytest.approx(0.1, abs=0.003)  # four deviations
    assert y.mean().item() == pytest.approx(1.0, abs=0.003)
    torch.manual_seed(3)
    assert torch.equal(dropout(x, 0.1, True), y)
    assert not torch.equal(dropout(x, 0.1, True), y)


def test_dropout_has_the_gradient_of_the_kept_values_and_does_nothing_in_eval_mode():
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
def test_rdrop_loss_is_the_cross_entropy_and_both_kl_divergences(smoothing):
    features = torch.randn(2 * 5, 6, dtype=torch.double, requires_grad=True)
    weight = torch.randn(11, 6, dtype=torch.double, requires_grad=True)
    labels = torch.randint(11, (5,)).repeat(2)
    ours = rdrop_loss(features, weight, labels, smoothing, 3.0)

    logits = features @ weight.t()
    logs = logits.log_softmax(1).chunk(2)
    there, back = (F.kl_div(a, b, log_target=True, reduction="batchmean") for a, b in (logs, logs[::-1]))
    both = [F.cross_entropy(x, labels[:5], label_smoothing=smoothing) for x in logits.chunk(2)]
    theirs = (sum(both) + 3.0 * (there + back) / 2) / 2
    torch.testing.assert_close(ours, theirs)
    for mine, other in zip(*(torch.autograd.grad(x, (features, weight)) for x in (ours, theirs)), strict=True):
        torch.testing.assert_close(mine, other)


def test_rdrop_loss_of_equal_passes_is_the_cross_entropy():
    features, weight, labels = torch.randn(5, 6).repeat(2, 1), torch.randn(11, 6), torch.randint(11, (5,)).repeat(2)
    torch.testing.assert_close(
        rdrop_loss(features, weight, labels, 0.1, 5.0), token_loss(features, weight, labels, 0.1)
    )


# --- second derivatives ---


ANGLE = torch.polar(torch.ones(1, 2, dtype=torch.double), torch.tensor([[0.3, 2.0]], dtype=torch.double))


@pytest.mark.parametrize("kernel", [rms_normalize, squared_relu, lambda x: rotate_pairs(x, ANGLE)])
def test_inside_twice_differentiable_second_derivatives_are_exact(kernel):
    x = torch.randn(3, 4, dtype=torch.double, requires_grad=True)
    with twice_differentiable():
        torch.testing.assert_close(kernel(x).detach(), kernel(x.detach()))
        assert gradgradcheck(kernel, x)


def test_losses_have_second_derivatives_too():
    features = torch.randn(6, 4, dtype=torch.double, requires_grad=True)
    weight, labels = torch.randn(5, 4, dtype=torch.double, requires_grad=True), torch.tensor([0, 1, 4, 0, 1, 4])
    with twice_differentiable():
        assert gradgradcheck(lambda x, w: token_loss(x, w, labels, 0.1), (features, weight))
        assert gradgradcheck(lambda x, w: rdrop_loss(x, w, labels, 0.1, 2.0), (features, weight))


def penalty(model, x, *, create_graph=True):
    """Gradient penalty of WGAN-GP (https://arxiv.org/abs/1704.00028): (|d out / d x| - 1)^2, mean over rows."""
    out = model(x)
    (grad,) = torch.autograd.grad(out.sum(), x, create_graph=create_graph)
    return (grad.flatten(1).norm(dim=1) - 1).square().mean()


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_gradient_penalty_through_a_transformer_equals_torchs_own_layers(norm_first):
    """The parameter gradients of the penalty, a second derivative, by our layers and by nn.TransformerEncoderLayer."""
    config = TransformerConfig(
        dim=8, depth=1, heads=2, hidden=12, activation="gelu", norm="layer", norm_first=norm_first,
        position="none", score="scaled_dot", bias=True,
    )  # fmt: skip
    ours = Transformer(config).double().eval()
    theirs = nn.TransformerEncoderLayer(8, 2, 12, 0.0, "gelu", batch_first=True, norm_first=norm_first).double()
    layer = ours.get_submodule("0")
    pairs = {
        "self.qkv.weight": "self_attn.in_proj_weight", "self.qkv.bias": "self_attn.in_proj_bias",
        "self.out.weight": "self_attn.out_proj.weight", "self.out.bias": "self_attn.out_proj.bias",
        "feed.up.weight": "linear1.weight", "feed.up.bias": "linear1.bias",
        "feed.down.weight": "linear2.weight", "feed.down.bias": "linear2.bias",
        "self_residual.norm.weight": "norm1.weight", "feed_residual.norm.bias": "norm2.bias",
    }  # fmt: skip
    with torch.no_grad():
        for mine, other in pairs.items():
            layer.get_parameter(mine).normal_(std=0.5)
            theirs.get_parameter(other).copy_(layer.get_parameter(mine))
    ours.norm = nn.Identity()
    x = torch.randn(3, 5, 8, dtype=torch.double, requires_grad=True)
    with twice_differentiable():
        penalty(lambda x: ours(x).square(), x).backward()
    with sdpa_kernel(SDPBackend.MATH):
        penalty(lambda x: theirs(x).square(), x).backward()
    for mine, other in pairs.items():
        found, expected = layer.get_parameter(mine).grad, theirs.get_parameter(other).grad
        assert expected.abs().max() > 0 or "down.bias" in mine or "feed_residual" in mine
        torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize("shape", [{}, {"kv_heads": 1, "activation": "swiglu", "norm": "rms"}, {"dropout": 0.3}])
def test_a_gradient_penalty_through_every_kind_of_layer_is_the_numerical_derivative(shape):
    """The default layers: rotary positions, cosine scores, squared ReLU, RMS norms, dropout, a causal mask."""
    torch.manual_seed(1)
    model = Transformer(TransformerConfig(dim=8, depth=2, heads=2, hidden=12, **shape)).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    x = torch.randn(2, 4, 8, dtype=torch.double, requires_grad=True)

    def value():
        torch.manual_seed(2)  # the same dropout
        with twice_differentiable():
            return penalty(lambda x: model(x, mask=Causal()).square(), x)

    weight, step = model.get_parameter("0.self.qkv.weight"), 1e-5
    (grad,) = torch.autograd.grad(value(), weight)
    direction = torch.randn_like(weight)
    with torch.no_grad():
        weight += step * direction
    above = value().item()
    with torch.no_grad():
        weight -= 2 * step * direction
    below = value().item()
    assert (grad * direction).sum().item() == pytest.approx((above - below) / (2 * step), rel=1e-4, abs=1e-6)


def test_outside_twice_differentiable_a_second_derivative_raises():
    model = Transformer(TransformerConfig(dim=8, depth=1, heads=2, hidden=12)).double()
    x = torch.randn(2, 4, 8, dtype=torch.double, requires_grad=True)
    with pytest.raises(RuntimeError):
        penalty(lambda x: model(x).square(), x).backward()


def test_the_plain_operations_return_the_same_output():
    model = Transformer(TransformerConfig(dim=8, depth=2, heads=2, hidden=12)).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    x = torch.randn(2, 4, 8, dtype=torch.double)
    keep = Padding(torch.tensor([[True] * 4, [False] * 4]))
    with twice_differentiable():
        plain = model(x, mask=Causal() & keep)
    torch.testing.assert_close(plain, model(x, mask=Causal() & keep), atol=1e-12, rtol=1e-12)
