"""Position, R37 to R39: fixed and learned positional encodings, added or concatenated."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.lectures._row import Demonstration, Row
from saccade.nn.positions import Learned, Sinusoidal
from saccade.nn.transformer import Transformer, TransformerConfig

CPU = torch.device("cpu")


def sinusoidal(show: Demonstration) -> None:
    """R37: 20 positions x 512 columns, sine in the left half, cosine in the right half; added to the embedding."""
    table = Sinusoidal(512)(0, 20, CPU)[0]
    left, right = table[:, :256], table[:, 256:]
    position = torch.arange(20.0)
    show.heat("sinusoidal positional encoding: a row for each of 20 positions, 512 columns", table)
    show.equal("shape of the table", list(table.shape), [20, 512])
    show.same("first column of the left half: sin(position)", left[:, 0], position.sin(), 1e-6)
    show.same("first column of the right half: cos(position)", right[:, 0], position.cos(), 1e-6)
    show.same("sin^2 + cos^2 = 1 in every pair of columns", left**2 + right**2, torch.ones(20, 256), 1e-5)
    edge = int((table[:, 1:] - table[:, :-1]).abs().mean(0).argmax())
    show.equal("the edge that the eye sees is between the columns", [edge, edge + 1], [255, 256])
    show.above("slow columns of the right half: smallest value", right[:, 128:].min().item(), 0.97)
    show.below("slow columns of the left half: largest value", left[:, 128:].abs().max().item(), 0.2)
    stack = Transformer(TransformerConfig(dim=512, depth=1, heads=8, position="sinusoidal"))
    inputs: list[Tensor] = []
    stack.get_submodule("0").register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    x = torch.randn(2, 20, 512)
    stack(x)
    show.same("the first layer reads embedding + encoding", inputs[0], x + table, 1e-6)


class Appended(nn.Module):
    """Positions as a one-hot vector beside the embedding, brought back to the width by a matrix."""

    def __init__(self, dim: int, tokens: int) -> None:
        super().__init__()
        self.mix = nn.Linear(dim + tokens, dim, bias=False)
        self.register_buffer("one_hot", torch.eye(tokens))

    def forward(self, x: Tensor) -> Tensor:
        one_hot: Tensor = self.one_hot  # type: ignore[assignment]
        mixed: Tensor = self.mix(torch.cat((x, one_hot.expand(len(x), -1, -1)), dim=-1))
        return mixed


def losses_of(position: str, before: nn.Module | None = None, steps: int = 60) -> list[float]:
    """Return the losses of training: every input vector is the same, the answer is its position."""
    tokens, dim = 6, 16
    shape = {"dim": dim, "depth": 1, "heads": 2, "hidden": 32, "max_positions": tokens, "position": position}
    stack = Transformer(TransformerConfig(**shape))  # type: ignore[arg-type]
    before, head = before or nn.Identity(), nn.Linear(dim, tokens)
    optimizer = torch.optim.Adam(nn.ModuleList((stack, before, head)).parameters(), lr=0.01)
    x, losses = torch.ones(1, tokens, dim), []
    for _ in range(steps):
        loss = F.cross_entropy(head(stack(before(x)))[0], torch.arange(tokens))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def learned_or_fixed(show: Demonstration) -> None:
    """R38: a learned table or a fixed function, added or concatenated: all train; without positions nothing does."""
    runs = {
        "learned, added": losses_of("learned"),
        "sinusoidal, added": losses_of("sinusoidal"),
        "one-hot, concatenated": losses_of("none", Appended(16, 6)),
        "none": losses_of("none"),
    }
    points = {name: [(float(step), loss) for step, loss in enumerate(losses)] for name, losses in runs.items()}
    show.plot("say at which of six positions you are", "step", "loss", points)
    for name, losses in runs.items():
        if name == "none":
            show.close("without positions the loss stays at log 6", losses[-1], math.log(6), 1e-3)
        else:
            show.below(f"{name}: loss after {len(losses)} steps", losses[-1], 0.1)
    parameters = {kind: sum(p.numel() for p in kind.parameters()) for kind in (Learned(20, 512), Sinusoidal(512))}
    show.equal(
        "parameters of a learned table of 20 x 512 and of the fixed function", list(parameters.values()), [10240, 0]
    )
    show.note(
        "model.position=learned or sinusoidal switches any Transformer of saccade; rotary and none are there too."
    )


@torch.no_grad()
def append_or_add(show: Demonstration) -> None:
    """R39: W [x; p] = W_I x + W_P p = a + e: to append a one-hot position is to add a learned vector."""
    dim, tokens = 4, 5
    appended = Appended(dim, tokens)
    appended.mix.weight.copy_(torch.randint(-5, 6, (dim, dim + tokens)))  # whole numbers: every sum is exact
    w_i, w_p = appended.mix.weight.split((dim, tokens), dim=1)
    learned = Learned(tokens, dim)
    learned.table.weight.copy_(w_p.T)
    x = torch.randint(-5, 6, (1, tokens, dim)).float()
    a, e = x @ w_i.T, learned(0, tokens, CPU)
    rows = [(n + 1, x[0, n], a[0, n], e[0, n], appended(x)[0, n]) for n in range(tokens)]
    show.table("whole numbers", ("position", "x", "a = W_I x", "e = W_P p", "W [x; p]"), rows)
    show.same("W [x; p] = a + e", appended(x), a + e)
    show.holds("column i of W_P is the learned vector of position i", bool((e[0] == w_p.T).all()))
    show.above("and these vectors are not zero: norm", w_p.norm().item(), 1.0)


ROWS = (
    Row("R37", "Sinusoidal positional encoding: 20 positions x 512 columns", sinusoidal, page="lessons"),
    Row("R38", "Learned table or fixed function; add or concatenate", learned_or_fixed, 1.0),
    Row("R39", "Append a one-hot position: W[x; p] = W_I x + W_P p = a + e", append_or_add, page="lessons"),
)
