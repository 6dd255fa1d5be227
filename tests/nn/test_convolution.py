"""Convolution: its formula, receptive field and padding."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from saccade.nn.convolution import Convolution, ConvolutionStack


@given(width=st.sampled_from([1, 3, 5]), tokens=st.integers(1, 7), causal=st.booleans())
def test_a_convolution_equals_a_plain_loop(width, tokens, causal):
    layer = Convolution(2, width, causal=causal).double()
    x = torch.randn(1, tokens, 2).double()
    y = layer(x)
    first = 1 - width if causal else -(width // 2)  # the leftmost neighbour
    for t in range(tokens):
        total = layer.filter.bias.clone()
        for tap in range(width):
            if 0 <= t + first + tap < tokens:
                total = total + layer.filter.weight[:, :, tap] @ x[0, t + first + tap]
        value, gate = total.chunk(2)
        torch.testing.assert_close(y[0, t], value * torch.sigmoid(gate), atol=1e-12, rtol=1e-12)


@given(depth=st.integers(1, 4), width=st.sampled_from([2, 3, 5]), causal=st.booleans())
def test_a_stack_has_its_documented_receptive_field(depth, width, causal):
    width = width if causal else width | 1
    stack = ConvolutionStack(3, depth, width, causal=causal).double()
    assert stack.receptive_field == 1 + depth * (width - 1)
    x = torch.randn(1, 41, 3).double().requires_grad_()
    (gradient,) = torch.autograd.grad(stack(x)[0, 20].sum(), x)
    reached = (gradient[0].abs().sum(-1) > 0).nonzero().flatten().tolist()
    last = 20 if causal else 20 + stack.receptive_field // 2
    assert reached == list(range(last - stack.receptive_field + 1, last + 1))


def test_a_stack_adds_each_layer_and_keeps_the_variance():
    stack = ConvolutionStack(3, 2, 3).double()
    x = expected = torch.randn(2, 6, 3).double()
    for layer in stack.layers:
        expected = (expected + layer(expected)) * math.sqrt(0.5)
    torch.testing.assert_close(stack(x), expected)


@pytest.mark.parametrize("causal", [False, True])
def test_padding_equals_the_end_of_the_sequence(causal):
    stack = ConvolutionStack(3, 3, 3, causal=causal).double()
    x = torch.randn(1, 7, 3).double()
    keep = (torch.arange(7) < 4)[None]
    garbage = torch.where(keep[..., None], x, 1e6)
    padded = stack(garbage, keep=keep)
    torch.testing.assert_close(padded[:, :4], stack(x[:, :4]), atol=1e-12, rtol=1e-12)


def test_an_even_kernel_size_is_refused():
    with pytest.raises(ValueError, match="kernel_size must be odd for a centred convolution, but is 4"):
        Convolution(3, 4)
    assert Convolution(3, 4, causal=True)(torch.randn(1, 5, 3)).shape == (1, 5, 3)
