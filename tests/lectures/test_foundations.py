"""Lecture rows R01-R07: linear layers, activations, residuals, MLP, recurrence, convolution, norms."""

import csv
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from saccade.nn.convolution import ConvolutionStack
from saccade.nn.layers import ACTIVATIONS, FeedForward, Residual, make_norm
from saccade.nn.recurrent import Recurrent
from saccade.nn.transformer import Layer, TransformerConfig


def test_r01_two_linear_layers_collapse_into_one():
    """W2(W1 x + b1) + b2 = (W2 W1) x + (W2 b1 + b2)."""
    first, second = nn.Linear(5, 7), nn.Linear(7, 3)
    collapsed = nn.Linear(5, 3)
    with torch.no_grad():
        collapsed.weight.copy_(second.weight @ first.weight)
        collapsed.bias.copy_(second.weight @ first.bias + second.bias)
    x = torch.randn(20, 5)
    torch.testing.assert_close(collapsed(x), second(first(x)), atol=1e-6, rtol=1e-6)
    assert not torch.allclose(collapsed(x), second(F.relu(first(x))), atol=1e-2)  # an activation prevents it


def test_r02_relu_of_minus_one_is_0_and_sigmoid_of_0_is_a_half():
    assert ACTIVATIONS["relu"](torch.tensor([-1.0, 2.0])).tolist() == [0.0, 2.0]
    assert ACTIVATIONS["sigmoid"](torch.tensor(0.0)).item() == 0.5


def test_r02_the_family_of_curves_has_its_known_shape():
    x = torch.linspace(-6, 6, 241)
    curves = {name: function(x) for name, function in ACTIVATIONS.items()}
    assert (curves["relu"][x < 0] == 0).all()
    torch.testing.assert_close(curves["sigmoid"] + curves["sigmoid"].flip(0), torch.ones(241))
    torch.testing.assert_close(curves["tanh"], 2 * torch.sigmoid(2 * x) - 1)
    for name in ("gelu", "gelu_tanh", "silu"):  # smooth: a dip below 0, then the identity
        assert -0.3 < curves[name].min() < -0.1
        assert curves[name][-1].item() == pytest.approx(6, abs=0.02)
    assert curves["squared_relu"][-1] == 36


@pytest.mark.parametrize("name", ["relu", "squared_relu", "gelu", "gelu_tanh", "silu"])
def test_r02_an_activation_is_picked_in_the_config(name):
    feed = Layer(TransformerConfig(dim=8, heads=2, hidden=16, activation=name)).feed
    x = torch.randn(3, 8)
    torch.testing.assert_close(feed(x), feed.down(ACTIVATIONS[name](feed.up(x))))


def norms_by_layer(gain, activation, *, residual, depth=50, width=64):
    """Norms of the signal and of its gradient at each layer, both relative to where they began."""
    x = torch.randn(16, width, requires_grad=True)
    signals = [x]
    for _ in range(depth):
        linear = nn.Linear(width, width)
        nn.init.normal_(linear.weight, std=gain / math.sqrt(width))
        nn.init.zeros_(linear.bias)
        block = nn.Sequential(linear, activation)
        x = Residual(make_norm("layer", width))(x, block) if residual else block(x)
        signals.append(x)
    gradients = torch.autograd.grad((x * torch.randn_like(x)).sum(), signals)
    size, slope = (torch.stack([t.norm() for t in tensors]) for tensors in (signals, gradients))
    return size / size[0], slope / slope[-1]


@pytest.mark.parametrize(("gain", "activation"), [(0.5, nn.Tanh()), (4.0, nn.ReLU())], ids=["squashed", "blown_up"])
def test_r03_residuals_keep_signal_and_gradient_in_a_band_over_50_layers(gain, activation):
    signal, gradient = norms_by_layer(gain, activation, residual=True)
    assert len(signal) == len(gradient) == 51
    for norms in (signal, gradient):
        assert norms.min() > 1 / 100
        assert norms.max() < 200
    signal, gradient = norms_by_layer(gain, activation, residual=False)
    if gain < 1:
        assert signal[-1] < 1e-6
        assert gradient[0] < 1e-10
    else:
        assert signal[-1] > 1e10
        assert gradient[0] > 1e10


def test_r04_an_mlp_fits_a_file_by_squared_error(tmp_path):
    path = tmp_path / "curve.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["x", "y"])
        writer.writerows([x / 50, math.sin(3 * x / 50)] for x in range(-50, 51))
    with path.open() as file:
        table = torch.tensor([[float(row["x"]), float(row["y"])] for row in csv.DictReader(file)])
    x, y = table[:, :1], table[:, 1:]
    mlp = FeedForward(1, 32, "gelu")
    first = ((y - mlp(x)) ** 2).mean()
    torch.testing.assert_close(first, F.mse_loss(mlp(x), y))
    optimizer = torch.optim.Adam(mlp.parameters(), lr=0.02)
    for _ in range(300):
        loss = ((y - mlp(x)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert first > 0.2
    assert loss < 0.005
    best_line = y - x @ torch.linalg.lstsq(x, y).solution
    assert loss < best_line.square().mean() / 10  # what no linear layer can do


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_r05_unrolled_equals_looped(cell):
    """(y, s_t+1) = f(x, s_t)."""
    layer = Recurrent(cell, 4, 6).double()
    x, state = torch.randn(3, 9, 4).double(), layer.start(3)
    unrolled, last = layer(x)
    for t in range(9):
        y, state = layer.step(x[:, t], state)
        torch.testing.assert_close(y, unrolled[:, t], atol=1e-14, rtol=1e-14)
    for ours, theirs in zip(state, last, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-14, rtol=1e-14)


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_r05_free_running_leaves_teacher_forcing_at_the_first_wrong_token(cell):
    table, layer, head = nn.Embedding(7, 8), Recurrent(cell, 8, 16), nn.Linear(16, 7)
    for parameter in (*layer.parameters(), *head.parameters()):
        nn.init.normal_(parameter)  # so that the last token matters
    truth = torch.randint(7, (1, 20))
    forced = head(layer(table(truth[:, :-1]))[0]).argmax(-1)[0]  # each step reads the true token before it
    free, token, state = [], truth[:, 0], layer.start(1)
    for _ in range(19):
        y, state = layer.step(table(token), state)
        token = head(y).argmax(-1)  # each step reads its own last word
        free.append(token.item())
    wrong = (forced != truth[0, 1:]).nonzero()[0].item()
    assert free[: wrong + 1] == forced[: wrong + 1].tolist()
    assert free != forced.tolist()


@pytest.mark.parametrize("width", [3, 5, 7])
def test_r06_layer_l_of_width_k_sees_one_plus_l_times_k_minus_one_inputs(width):
    tokens, depth = 41, 5
    stack = ConvolutionStack(4, depth, width).double()
    outputs = []
    for layer in stack.layers:
        layer.register_forward_hook(lambda _, args, y: outputs.append(args[0] + y))
    x = torch.randn(1, tokens, 4).double().requires_grad_()
    stack(x)
    measured = []
    for y in outputs:
        (gradient,) = torch.autograd.grad(y[0, tokens // 2].sum(), x, retain_graph=True)
        measured.append(int((gradient[0].abs().sum(-1) > 0).sum()))
    assert measured == [1 + layer * (width - 1) for layer in range(1, depth + 1)]
    assert measured[-1] == stack.receptive_field


def test_r07_layer_norm_works_by_vector_and_batch_norm_by_feature():
    """y = gamma z + beta with z = (h - mu) / sigma, sigma = sqrt(mean((h - mu)^2)); only whose mean it is differs."""
    h = 3 + 2 * torch.randn(8, 32)
    layer, batch = make_norm("layer", 32), nn.BatchNorm1d(32)
    for norm, dim, other in ((layer, -1, 0), (batch, 0, -1)):
        mu = h.mean(dim, keepdim=True)
        sigma = (h - mu).square().mean(dim, keepdim=True).sqrt()
        z = norm(h)
        torch.testing.assert_close(z, (h - mu) / sigma, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(z.mean(dim), torch.zeros_like(z.mean(dim)), atol=1e-5, rtol=0)
        torch.testing.assert_close(z.std(dim, correction=0), torch.ones_like(z.mean(dim)), atol=1e-4, rtol=0)
        assert z.mean(other).abs().max() > 0.05
    gamma, beta = torch.randn(32), torch.randn(32)
    z = layer(h)
    layer.load_state_dict({"weight": gamma, "bias": beta})
    torch.testing.assert_close(layer(h), gamma * z + beta, atol=1e-5, rtol=1e-5)


def test_r07_layer_norm_does_not_change_with_the_batch_and_batch_norm_does():
    h = 3 + 2 * torch.randn(8, 32)
    layer, batch = make_norm("layer", 32), nn.BatchNorm1d(32)
    for rows in (2, 4, 8):
        assert torch.equal(layer(h[:rows])[:2], layer(h)[:2])
    assert (batch(h[:4])[:2] - batch(h)[:2]).abs().max() > 0.1
