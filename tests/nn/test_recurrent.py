"""Recurrent layers: the fused kernel over a sequence equals the cell written out, token by token."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from saccade.nn.recurrent import Recurrent

CELLS = pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])


def by_steps(layer, x, state=None):
    state = layer.start(x.shape[0]) if state is None else state
    outputs = []
    for token in x.unbind(1):
        y, state = layer.step(token, state)
        outputs.append(y)
    return torch.stack(outputs, dim=1), state


def assert_same(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-12)


@given(
    cell=st.sampled_from(["rnn", "gru", "lstm"]),
    rows=st.integers(1, 3),
    tokens=st.integers(1, 6),
    dim=st.integers(1, 4),
    state_dim=st.integers(1, 4),
    depth=st.integers(1, 3),
)
def test_unrolled_equals_looped(cell, rows, tokens, dim, state_dim, depth):
    layer = Recurrent(cell, dim, state_dim, depth=depth).double()
    x = torch.randn(rows, tokens, dim).double()
    (y, last), (y_steps, last_steps) = layer(x), by_steps(layer, x)
    assert y.shape == (rows, tokens, state_dim)
    assert all(part.shape == (depth, rows, state_dim) for part in last)
    assert_same((y, *last), (y_steps, *last_steps))


@CELLS
def test_gradients_of_unrolled_and_looped_are_the_same(cell):
    layer = Recurrent(cell, 3, 4, depth=2).double()
    x = torch.randn(2, 5, 3).double().requires_grad_()
    inputs = [x, *layer.parameters()]
    unrolled = torch.autograd.grad(layer(x)[0].square().sum(), inputs)
    assert_same(unrolled, torch.autograd.grad(by_steps(layer, x)[0].square().sum(), inputs))
    assert all(gradient.any() for gradient in unrolled)


@CELLS
def test_a_sequence_can_be_processed_in_two_parts(cell):
    layer = Recurrent(cell, 3, 4, depth=2).double()
    x = torch.randn(2, 6, 3).double()
    whole, last = layer(x)
    first, middle = layer(x[:, :4])
    second, end = layer(x[:, 4:], middle)
    assert_same((torch.cat((first, second), dim=1), *end), (whole, *last))
    assert_same(by_steps(layer, x[:, 4:], middle)[1], last)


@CELLS
@pytest.mark.parametrize("bidirectional", [False, True])
def test_padding_is_not_read(cell, bidirectional):
    """Each row equals the row alone; outputs at padding are exactly 0, and the state is that of the last real token."""
    layer = Recurrent(cell, 3, 4, depth=2, bidirectional=bidirectional).double()
    lengths = [2, 4, 3]  # no row fills all 5 places
    keep = torch.arange(5) < torch.tensor(lengths)[:, None]
    x = torch.randn(3, 5, 3).double()
    y, last = layer(x, keep=keep)
    assert y.shape == (3, 5, 8 if bidirectional else 4)
    assert (y[~keep] == 0).all()
    for row, length in enumerate(lengths):
        alone, last_alone = layer(x[row : row + 1, :length])
        assert_same((y[row : row + 1, :length],), (alone,))
        assert_same([part[:, row : row + 1] for part in last], last_alone)
    garbage = torch.where(keep[..., None], x, 1e6)
    assert torch.equal(layer(garbage, keep=keep)[0], y)


@CELLS
def test_padding_gets_no_gradient(cell):
    layer = Recurrent(cell, 3, 4).double()
    keep = torch.tensor([[True, True, False], [True, True, True]])
    x = torch.randn(2, 3, 3).double().requires_grad_()
    y, last = layer(x, keep=keep)
    (gradient,) = torch.autograd.grad(y.sum() + sum(part.sum() for part in last), x)
    assert (gradient[~keep] == 0).all()
    assert gradient[keep].all()


@CELLS
def test_padding_with_a_given_state(cell):
    layer = Recurrent(cell, 3, 4, depth=2).double()
    keep = torch.tensor([[True, False, False], [True, True, True]])
    state = tuple(torch.randn_like(part) for part in layer.start(2))
    x = torch.randn(2, 3, 3).double()
    y, _ = layer(x, state, keep=keep)
    assert_same((y[0, :1], y[1]), (layer(x, state)[0][0, :1], layer(x, state)[0][1]))


@CELLS
def test_unidirectional_layers_are_causal_and_bidirectional_ones_are_not(cell):
    x = torch.randn(1, 5, 3).double().requires_grad_()
    for bidirectional, reach in ((False, 3), (True, 5)):
        layer = Recurrent(cell, 3, 4, bidirectional=bidirectional).double()
        (gradient,) = torch.autograd.grad(layer(x)[0][:, 2].sum(), x)
        assert (gradient[0].abs().sum(-1) > 0).tolist() == [t < reach for t in range(5)]


@CELLS
@pytest.mark.parametrize("supported", [True, False])
def test_autocast_runs_on_every_processor(cell, supported, monkeypatch):
    """Where the processor has no recurrent kernel in bfloat16, autocast leaves the layer in float32."""
    from saccade.nn import recurrent

    if supported and not recurrent._has_bfloat16():
        pytest.skip("this processor has no recurrent kernels in bfloat16")
    monkeypatch.setattr(recurrent, "_has_bfloat16", lambda: supported)
    layer, x = Recurrent(cell, 4, 5), torch.randn(2, 6, 4)
    state = layer.start(2)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        half = tuple(part.bfloat16() for part in state)
        out, _ = layer(x, half, keep=torch.ones(2, 6, dtype=torch.bool))
        plain, _ = layer(x.bfloat16(), state)
    expected, _ = layer(x, state)
    assert out.dtype == (torch.bfloat16 if supported else torch.float32)
    torch.testing.assert_close(out.float(), expected, atol=0.05, rtol=0.05)
    torch.testing.assert_close(plain.float(), expected, atol=0.05, rtol=0.05)


def test_invalid_calls_of_a_recurrent_layer_are_refused():
    with pytest.raises(ValueError, match="cell must be one of rnn, gru, lstm, but is 'gur'"):
        Recurrent("gur", 3, 4)
    layer = Recurrent("gru", 3, 4, bidirectional=True)
    with pytest.raises(ValueError, match="a bidirectional recurrent layer cannot be stepped"):
        layer.step(torch.randn(1, 3), layer.start(1))
