"""Foundations, R01 to R07: linear layers, activations, residuals, MLP, recurrence, convolution and norms."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.lectures._row import Demonstration, Row
from saccade.nn.convolution import ConvolutionStack
from saccade.nn.layers import ACTIVATIONS, Activation, FeedForward, Residual, make_norm
from saccade.nn.recurrent import Cell, Recurrent
from saccade.nn.transformer import Layer, TransformerConfig

CELLS: tuple[Cell, ...] = ("rnn", "gru", "lstm")


def linear_layers(show: Demonstration) -> None:
    """R01: y = Wx + b; two of them collapse into one, unless an activation is between them."""
    first, second = nn.Linear(5, 7), nn.Linear(7, 3)
    weight = second.weight @ first.weight
    bias = second.weight @ first.bias + second.bias
    x = torch.randn(20, 5)
    show.table(
        "W2 (W1 x + b1) + b2 = (W2 W1) x + (W2 b1 + b2)",
        ("layer", "weights", "bias", "parameters"),
        [
            ("first", first.weight, f"({len(first.bias)})", 5 * 7 + 7),
            ("second", second.weight, f"({len(second.bias)})", 7 * 3 + 3),
            ("collapsed", weight, f"({len(bias)})", 5 * 3 + 3),
        ],
    )
    show.same("the collapsed layer gives the output of both", F.linear(x, weight, bias), second(first(x)), 1e-6)
    moved = (F.linear(x, weight, bias) - second(F.relu(first(x)))).abs().max().item()
    show.above("with a ReLU between the layers it does not: largest difference", moved, 0.01)


def activations(show: Demonstration) -> None:
    """R02: the family of activations, and one picked by its name in a config."""
    x = torch.linspace(-4, 4, 33)
    shown = ("relu", "gelu", "silu", "sigmoid", "tanh")
    curves = {name: list(zip(x.tolist(), ACTIVATIONS[name](x).tolist(), strict=True)) for name in shown}
    show.plot("activations", "x", "f(x)", curves)
    at = torch.tensor([-1.0, 0.0, 1.0, 2.0])
    rows = [(name, *ACTIVATIONS[name](at).tolist()) for name in ACTIVATIONS]
    show.table("values", ("activation", "f(-1)", "f(0)", "f(1)", "f(2)"), rows)
    show.equal("ReLU(-1)", ACTIVATIONS["relu"](torch.tensor(-1.0)).item(), 0.0)
    show.equal("sigmoid(0)", ACTIVATIONS["sigmoid"](torch.tensor(0.0)).item(), 0.5)
    picked: tuple[Activation, ...] = ("relu", "gelu", "silu")
    for name in picked:
        feed = Layer(TransformerConfig(dim=8, heads=2, hidden=16, activation=name)).feed
        inputs = torch.randn(3, 8)
        outputs = feed.down(ACTIVATIONS[name](feed.up(inputs)))
        show.same(f"model.activation={name} is used by the feed-forward layers", feed(inputs), outputs, 1e-6)


def norms_by_layer(
    gain: float, activation: Callable[[Tensor], Tensor], *, residual: bool, depth: int = 50, width: int = 64
) -> tuple[Tensor, Tensor]:
    """Return the norms of the signal and of its gradient at each layer, both relative to where they began."""
    x = torch.randn(16, width, dtype=torch.float64, requires_grad=True)
    signals = [x]
    for _ in range(depth):
        weight = gain / math.sqrt(width) * torch.randn(width, width, dtype=torch.float64)

        def block(y: Tensor, weight: Tensor = weight) -> Tensor:
            return activation(F.linear(y, weight))

        x = Residual(make_norm("layer", width).double())(x, block) if residual else block(x)
        signals.append(x)
    gradients = torch.autograd.grad((x * torch.randn_like(x)).sum(), signals)
    size, grad = (torch.stack([t.norm() for t in tensors]).detach() for tensors in (signals, gradients))
    return size / size[0], grad / grad[-1]


def residuals(show: Demonstration) -> None:
    """R03: y = phi(Wx + b) + x; over 50 layers the signal is squashed or blows up without the residual."""
    cases: dict[str, tuple[float, Callable[[Tensor], Tensor]]] = {
        "small weights, tanh": (0.5, torch.tanh),
        "large weights, ReLU": (4.0, F.relu),
    }
    for name, (gain, activation) in cases.items():
        with_signal, with_gradient = norms_by_layer(gain, activation, residual=True)
        without_signal, without_gradient = norms_by_layer(gain, activation, residual=False)
        lines = {"with residuals": with_signal, "without": without_signal}
        points = {
            label: [(float(layer), math.log10(max(norm, 1e-30))) for layer, norm in enumerate(norms.tolist())]
            for label, norms in lines.items()
        }
        show.plot(f"{name}: norm of the signal", "layer", "log10 of the norm, relative to the input", points)
        rows = [
            (
                layer,
                with_signal[layer].item(),
                without_signal[layer].item(),
                with_gradient[layer].item(),
                without_gradient[layer].item(),
            )
            for layer in (0, 10, 25, 50)
        ]
        columns = ("layer", "signal, residual", "signal, none", "gradient, residual", "gradient, none")
        show.table(f"{name}: norms", columns, rows)
        for kind, norms in (("signal", with_signal), ("gradient", with_gradient)):
            show.above(f"{name}: smallest {kind} with residuals", norms.min().item(), 0.01)
            show.below(f"{name}: largest {kind} with residuals", norms.max().item(), 200)
        if gain < 1:
            show.below(f"{name}: signal after 50 layers without residuals", without_signal[-1].item(), 1e-6)
            show.below(f"{name}: gradient at the input without residuals", without_gradient[0].item(), 1e-10)
        else:
            show.above(f"{name}: signal after 50 layers without residuals", without_signal[-1].item(), 1e10)
            show.above(f"{name}: gradient at the input without residuals", without_gradient[0].item(), 1e10)


def feed_forward(show: Demonstration) -> None:
    """R04: an MLP fitted to a csv file by squared error, against the best straight line."""
    text = "x,y\n" + "".join(f"{x / 50},{math.sin(3 * x / 50):.6f}\n" for x in range(-50, 51))
    table = torch.tensor([[float(row["x"]), float(row["y"])] for row in csv.DictReader(io.StringIO(text))])
    x, y = table[:, :1], table[:, 1:]
    mlp = FeedForward(1, 32, "gelu")
    show.same("the loss is the mean of (y - yhat)^2", (y - mlp(x)).square().mean(), F.mse_loss(mlp(x), y), 1e-7)
    optimizer, losses = torch.optim.Adam(mlp.parameters(), lr=0.02), []
    for _ in range(300):
        loss = (y - mlp(x)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    line = x @ torch.linalg.lstsq(x, y).solution
    best = (y - line).square().mean().item()
    curves = {"y": y, "MLP": mlp(x).detach(), "best line": line}
    points = {
        name: list(zip(x[::3, 0].tolist(), values[::3, 0].tolist(), strict=True)) for name, values in curves.items()
    }
    show.plot("y = sin(3x) from a file of 101 rows", "x", "y", points)
    rows = [(step, losses[step - 1]) for step in (1, 10, 100, 300)]
    show.table("squared error of the MLP", ("step", "loss"), [*rows, ("best line", best)])
    show.below("squared error after 300 steps", losses[-1], 0.005)
    show.below("relative to the best line", losses[-1] / best, 0.1)


def recurrence(show: Demonstration) -> None:
    """R05: (y, s_t+1) = f(x, s_t) with three cells; teacher forcing against free running."""
    truth = torch.randint(7, (1, 20))
    for cell in CELLS:
        layer = Recurrent(cell, 4, 6).double()
        x, state = torch.randn(3, 9, 4).double(), layer.start(3)
        unrolled, _ = layer(x)
        looped = []
        for t in range(9):
            y, state = layer.step(x[:, t], state)
            looped.append(y)
        show.same(f"{cell}: unrolled over 9 steps = step by step", torch.stack(looped, 1), unrolled, 1e-14)
        forced, free = _outputs(cell, truth)
        rows = [("truth", _tokens(truth[0, 1:].tolist())), ("teacher-forced", _tokens(forced))]
        show.table(f"{cell}: 19 predicted tokens", ("", "tokens"), [*rows, ("free-running", _tokens(free))])
        wrong = next(at for at, token in enumerate(forced) if token != truth[0, at + 1])
        show.equal(f"{cell}: equal up to the first wrong token", free[: wrong + 1], forced[: wrong + 1])
        show.holds(f"{cell}: then the two differ", free != forced)


def _outputs(cell: Cell, truth: Tensor) -> tuple[list[int], list[int]]:
    """Return the tokens that a random network predicts from the true ones and from its own."""
    table, layer, head = nn.Embedding(7, 8), Recurrent(cell, 8, 16), nn.Linear(16, 7)
    for parameter in (*layer.parameters(), *head.parameters()):
        nn.init.normal_(parameter)  # so that the last token matters
    forced = head(layer(table(truth[:, :-1]))[0]).argmax(-1)[0].tolist()
    free, token, state = [], truth[:, 0], layer.start(1)
    for _ in range(truth.shape[1] - 1):
        y, state = layer.step(table(token), state)
        token = head(y).argmax(-1)
        free.append(int(token))
    return forced, free


def _tokens(ids: list[int]) -> str:
    return " ".join(map(str, ids))


def convolution(show: Demonstration) -> None:
    """R06: L layers of 1-D convolution of width k see 1 + L (k - 1) inputs, measured by the gradient."""
    tokens, depth, rows = 41, 5, list[tuple[str | int, ...]]()
    for width in (3, 5, 7):
        measured = receptive_fields(width, depth, tokens)
        rows.append((f"k = {width}", *measured))
        show.equal(
            f"k = {width}: inputs seen by layers 1 to {depth}", measured, [1 + n * (width - 1) for n in range(1, 6)]
        )
    show.table(
        "inputs with a gradient at the middle output", ("width", *(f"layer {n}" for n in range(1, depth + 1))), rows
    )


def receptive_fields(width: int, depth: int, tokens: int) -> list[int]:
    """Return how many inputs have an influence on the middle output of each layer."""
    stack = ConvolutionStack(4, depth, width).double()
    outputs: list[Tensor] = []
    for layer in stack.layers:
        layer.register_forward_hook(lambda _, args, y: outputs.append(args[0] + y))
    x = torch.randn(1, tokens, 4).double().requires_grad_()
    stack(x)
    counts = []
    for y in outputs:
        (gradient,) = torch.autograd.grad(y[0, tokens // 2].sum(), x, retain_graph=True)
        counts.append(int((gradient[0].abs().sum(-1) > 0).sum()))
    return counts


@torch.no_grad()
def norms(show: Demonstration) -> None:
    """R07: layer norm normalizes each vector, batch norm each feature; only the first ignores the batch."""
    h = 3 + 2 * torch.randn(8, 32)
    layer, batch = make_norm("layer", 32), nn.BatchNorm1d(32)
    z, by_feature = layer(h), batch(h)
    rows = [
        (
            name,
            y.mean(1).abs().max().item(),
            y.std(1, correction=0).mean().item(),
            y.mean(0).abs().max().item(),
            y.std(0, correction=0).mean().item(),
        )
        for name, y in (("input", h), ("layer norm", z), ("batch norm", by_feature))
    ]
    columns = ("tensor of 8 vectors of 32", "|mean| of a vector", "std", "|mean| of a feature", "std ")
    show.table("statistics of the same tensor (largest |mean|, average standard deviation)", columns, rows)
    sigma = (h - h.mean(1, keepdim=True)).square().mean(1, keepdim=True).sqrt()
    show.same(
        "layer norm is (h - mu) / sigma, sigma = sqrt(mean((h - mu)^2))", z, (h - h.mean(1, keepdim=True)) / sigma, 1e-4
    )
    show.close("layer norm: largest |mean| of a vector", z.mean(1).abs().max().item(), 0.0, 1e-5)
    show.close("layer norm: standard deviation of a vector", z.std(1, correction=0).mean().item(), 1.0, 1e-4)
    show.close("batch norm: standard deviation of a feature", by_feature.std(0, correction=0).mean().item(), 1.0, 1e-4)
    gamma, beta = torch.randn(32), torch.randn(32)
    layer.load_state_dict({"weight": gamma, "bias": beta})
    show.same("with gain and bias y = gamma z + beta", layer(h), gamma * z + beta, 1e-5)
    show.same("layer norm of 2 vectors in a batch of 2 and of 8", layer(h[:2]), layer(h)[:2])
    moved = (batch(h[:4])[:2] - batch(h)[:2]).abs().max().item()
    show.above("batch norm of 2 vectors in a batch of 4 and of 8: difference", moved, 0.1)


ROWS = (
    Row("R01", "Linear layer y = Wx + b; two linear layers collapse into one", linear_layers),
    Row("R02", "Activations: ReLU, sigmoid and their family", activations),
    Row("R03", "Residual connections keep signal and gradient alive over 50 layers", residuals),
    Row("R04", "Feed-forward network (MLP) fitted by squared error", feed_forward),
    Row("R05", "Recurrent layers: RNN, GRU, LSTM; teacher forcing and free running", recurrence),
    Row("R06", "1-D convolution: higher layers see further", convolution),
    Row("R07", "Layer norm and batch norm on the same tensor", norms, page="lessons"),
)
