"""Kernel smoothing, Gaussian processes and attention, R27: yhat = sum of alpha_i y_i, with three kinds of weights.

Shapes: N stored points, M points at which the function is wanted.
"""

from __future__ import annotations

import torch
from torch import Tensor

from saccade.lectures._row import Demonstration, Row
from saccade.nn.attention import Attention, Dot
from saccade.nn.masks import Graph
from saccade.nn.probe import watch

POINTS, WIDTH, NOISE = 24, 0.35, 0.15  # stored points, bandwidth of the kernel, standard deviation of y
STEPS = 200


def true_curve(x: Tensor) -> Tensor:
    """Return the function that is to be found again from noisy points."""
    return torch.sin(2 * x) + 0.5 * x


def features(x: Tensor) -> Tensor:
    """Return (x, -x^2 / 2, 1): with them a dot product can be a Gaussian kernel."""
    return torch.stack((x, -x.square() / 2, torch.ones_like(x)), -1)


def make_attention(width: float) -> Attention:
    """Return attention over (features, y) whose scores are those of a Gaussian kernel of some width.

    -(x - x_i)^2 / 2h^2 = (x x_i - x_i^2 / 2) / h^2 - x^2 / 2h^2, of which softmax ignores the last term: it does not
    depend on i. So W_Q takes (x, 1) / h^2 from a query, W_K (x_i, -x_i^2 / 2) from a stored point, W_V its y.
    """
    attention = Attention(3, 1, memory_dim=4, score=Dot(1.0), bias=False)
    with torch.no_grad():
        attention.q.weight.copy_(torch.tensor([[1.0, 0, 0], [0, 0, 1.0], [0, 0, 0]]) / width**2)
        keys, values = attention.kv.weight.zero_().chunk(2)
        keys[0, 0] = keys[1, 1] = values[0, 3] = 1.0
        attention.out.weight.copy_(torch.eye(3))  # type: ignore[operator]
    return attention


def predict(attention: Attention, x: Tensor, stored: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the prediction (M) and the weights (M, N) of attention."""
    memory = torch.cat((features(stored), y[:, None]), -1)
    with watch(attention) as maps:
        out = attention(features(x)[None], memory[None])[0, :, 0]
    return out, maps[""].rows()[0, 0]


def learn(attention: Attention, x: Tensor, y: Tensor) -> list[float]:
    """Learn W_Q and W_K so that each stored point is predicted from the others; return the losses."""
    memory = torch.cat((features(x), y[:, None]), -1)[None]
    others = Graph(~torch.eye(len(x), dtype=torch.bool))
    parameters = [attention.q.weight, attention.kv.weight]
    optimizer, losses = torch.optim.Adam(parameters, lr=0.05), []
    for _ in range(STEPS):
        loss = (attention(features(x)[None], memory, mask=others)[0, :, 0] - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        grad = attention.kv.weight.grad
        assert grad is not None
        grad[3:] = 0  # W_V stays: the values are the y
        optimizer.step()
        losses.append(loss.item())
    return losses


def gaussian_process(x: Tensor, stored: Tensor, y: Tensor, width: float) -> tuple[Tensor, Tensor]:
    """Return the mean (M) of a Gaussian process and its weights (M, N): k(x, X) (K + noise^2 I)^-1."""

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        return torch.exp(-(a[:, None] - b).square() / (2 * width**2))

    gram = kernel(stored, stored) + NOISE**2 * torch.eye(len(stored))
    alpha = torch.linalg.solve(gram, kernel(x, stored).T).T
    return alpha @ y, alpha


def smoothing(show: Demonstration) -> None:
    """R27: one data set fitted by kernel smoothing, by the mean of a Gaussian process, and by learned attention."""
    stored = torch.linspace(-3, 3, POINTS) + 0.1 * torch.randn(POINTS)
    y = true_curve(stored) + NOISE * torch.randn(POINTS)
    x = torch.linspace(-3, 3, 61)
    wide = 2 * WIDTH
    kernel = torch.exp(-(x[:, None] - stored).square() / (2 * wide**2))
    alpha = kernel / kernel.sum(1, keepdim=True)
    smoother = alpha @ y
    fixed, fixed_weights = predict(make_attention(wide), x, stored, y)
    attention = make_attention(wide)
    losses = learn(attention, stored, y)
    learned, learned_weights = predict(attention, x, stored, y)
    process, process_weights = gaussian_process(x, stored, y, wide)
    curves = {"true": true_curve(x), "kernel smoother": smoother, "Gaussian process": process, "attention": learned}
    points = {name: list(zip(x[::2].tolist(), c[::2].tolist(), strict=True)) for name, c in curves.items()}
    show.plot(f"{POINTS} noisy points, three estimates", "x", "y", points)
    for name, weights in (
        ("kernel smoother", alpha),
        ("Gaussian process", process_weights),
        ("learned attention", learned_weights.detach()),
    ):
        show.heat(f"weights alpha of the {name}: a row for each x, a column for each stored point", weights[::4])
    errors = {name: (curve.detach() - curves["true"]).square().mean().sqrt().item() for name, curve in curves.items()}
    rows = [(name, errors[name]) for name in curves if name != "true"]
    show.table("root mean square error against the true curve", ("estimate", "error"), rows)
    show.same("Gaussian scores, W = identity: attention = kernel smoother", fixed, smoother, 1e-5)
    show.same("and its weights are the kernel's", fixed_weights, alpha, 1e-5)
    show.close("rows of the learned attention sum to 1", learned_weights.sum(1).min().item(), 1.0, 1e-5)
    show.below("loss of the learned attention, last / first", losses[-1] / losses[0], 0.8)
    show.below("error of the learned attention / kernel smoother", errors["attention"] / errors["kernel smoother"], 1.0)
    exact, _ = gaussian_process(stored, stored, y, wide)
    show.below("Gaussian process: distance from the stored points", (exact - y).square().mean().sqrt().item(), NOISE)
    show.holds(
        "weights of a Gaussian process may be negative, those of attention not",
        bool((process_weights < 0).any()) and bool((learned_weights >= 0).all()),
    )
    show.close(
        "uniform weights for an infinite width: the plain mean",
        predict(make_attention(1e6), x, stored, y)[0][0].item(),
        y.mean().item(),
        1e-3,
    )


ROWS = (Row("R27", "Kernel smoothing, Gaussian processes and attention", smoothing, 1.0, page="lessons"),)
