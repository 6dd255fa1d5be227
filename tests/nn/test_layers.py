"""Position-wise layers: norms, feed-forward, residual connection, weight initialization."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from saccade.nn.layers import (
    ACTIVATIONS,
    FeedForward,
    Residual,
    RMSNorm,
    initialize_gpt2,
    initialize_zero_residual,
    make_norm,
)

FORMULAS = {
    "relu": lambda x: max(x, 0.0),
    "squared_relu": lambda x: max(x, 0.0) ** 2,
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "silu": lambda x: x / (1 + math.exp(-x)),
    "quick_gelu": lambda x: x / (1 + math.exp(-1.702 * x)),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "tanh": math.tanh,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_each_activation_is_its_formula(name):
    x = torch.linspace(-4, 4, 33).double()
    expected = torch.tensor([FORMULAS[name](value) for value in x.tolist()], dtype=torch.double)
    torch.testing.assert_close(ACTIVATIONS[name](x), expected, atol=1e-12, rtol=1e-12)


@given(width=st.integers(2, 9), scale=st.sampled_from([1e-2, 1.0, 1e3]))
def test_rms_norm_equals_its_formula(width, scale):
    norm = RMSNorm(width).double()
    nn.init.normal_(norm.weight)
    x = scale * torch.randn(3, 4, width).double()
    expected = norm.weight * x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    torch.testing.assert_close(norm(x), expected, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(RMSNorm(width, gain=False)(x), expected / norm.weight, atol=1e-10, rtol=1e-10)


def test_the_three_norms_are_built_by_name():
    assert list(dict(make_norm("layer", 4).named_parameters())) == ["weight", "bias"]
    assert list(dict(make_norm("layer", 4, bias=False).named_parameters())) == ["weight"]
    assert list(dict(make_norm("rms", 4).named_parameters())) == ["weight"]
    assert list(dict(make_norm("plain_rms", 4).named_parameters())) == []
    x = 5 + 3 * torch.randn(7, 64)
    for kind, mean in (("layer", 0.0), ("rms", None), ("plain_rms", None)):
        y = make_norm(kind, 64)(x)
        torch.testing.assert_close(y.square().mean(-1), torch.ones(7), atol=1e-4, rtol=0)
        if mean is not None:
            torch.testing.assert_close(y.mean(-1), torch.zeros(7), atol=1e-5, rtol=0)


@pytest.mark.parametrize("activation", ["relu", "squared_relu", "gelu", "gelu_tanh", "silu"])
def test_feed_forward_is_two_linear_layers_with_an_activation_between(activation):
    feed = FeedForward(6, 10, activation)
    x = torch.randn(2, 3, 6)
    inner = ACTIVATIONS[activation](x @ feed.up.weight.T + feed.up.bias)
    torch.testing.assert_close(feed(x), inner @ feed.down.weight.T + feed.down.bias, atol=1e-6, rtol=1e-6)


def test_swiglu_multiplies_two_linear_projections():
    feed = FeedForward(6, 10, "swiglu", bias=False)
    x = torch.randn(2, 3, 6)
    gate, value = feed.up.weight.chunk(2)
    expected = (F.silu(x @ gate.T) * (x @ value.T)) @ feed.down.weight.T
    torch.testing.assert_close(feed(x), expected, atol=1e-6, rtol=1e-6)


@given(rows=st.integers(1, 3), tokens=st.integers(1, 5))
def test_feed_forward_treats_each_vector_alone(rows, tokens):
    feed, x = FeedForward(6, 10).double(), torch.randn(rows, tokens, 6).double()
    alone = torch.stack([feed(vector) for vector in x.flatten(0, 1)])
    torch.testing.assert_close(feed(x).flatten(0, 1), alone, atol=1e-12, rtol=1e-12)


def test_residual_normalizes_before_or_after():
    norm, function, x = nn.LayerNorm(6), nn.Linear(6, 6), 3 * torch.randn(2, 4, 6)
    torch.testing.assert_close(Residual(norm)(x, function), x + function(norm(x)))
    torch.testing.assert_close(Residual(norm, norm_first=False)(x, function), norm(x + function(x)))


@pytest.mark.parametrize("norm_first", [True, False])
def test_residual_dropout_never_drops_the_skip_connection(norm_first):
    residual = Residual(nn.Identity(), norm_first=norm_first, dropout=0.5)
    x = torch.randn(4, 50)
    change = (residual(x, torch.ones_like) - x).round(decimals=4)
    assert set(change.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(residual.eval()(x, torch.ones_like), x + 1)


def test_feed_forward_dropout_acts_in_training_only():
    feed = FeedForward(6, 10, dropout=0.5)
    x = torch.randn(8, 6)
    assert not torch.equal(feed(x), feed(x))
    assert torch.equal(feed.eval()(x), feed(x))


def make_block():
    block = {name: nn.Linear(200, 200) for name in ("up", "out", "down", "head")}
    return nn.ModuleDict({**block, "table": nn.Embedding(200, 200)})


def test_zero_residual_initializes_every_block_as_the_identity():
    model = make_block()
    initialize_zero_residual(model)
    deviations = {name: module.weight.std().item() for name, module in model.items()}
    expected = {"up": 200**-0.5, "out": 0.0, "down": 0.0, "head": 0.0, "table": 1.0}
    assert deviations == pytest.approx(expected, rel=0.03)
    assert all((model[name].bias == 0).all() for name in ("up", "out", "down", "head"))


def test_gpt2_initialization_scales_block_outputs_by_depth():
    model = make_block()
    initialize_gpt2(model, depth=8)
    deviations = {name: module.weight.std().item() for name, module in model.items()}
    expected = {"up": 0.02, "out": 0.005, "down": 0.005, "head": 0.02, "table": 0.02}
    assert deviations == pytest.approx(expected, rel=0.03)
    assert all((model[name].bias == 0).all() for name in ("up", "out", "down", "head"))


def test_an_unknown_norm_is_refused():
    with pytest.raises(ValueError, match="norm must be layer, rms or plain_rms, but is 'batch'"):
        make_norm("batch", 4)
