"""Blocks and the Transformer, R40 to R43 and R45: encoder and decoder blocks, the order of the norms, who sees whom."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.errors import UsageError
from saccade.lectures._row import Demonstration, Row
from saccade.nn.attention import Attention
from saccade.nn.layers import FeedForward, Residual
from saccade.nn.masks import Causal, Full, Graph, Mask
from saccade.nn.probe import watch
from saccade.nn.transformer import Layer, Transformer, TransformerConfig
from saccade.planning.counting import count
from saccade.planning.published import change
from saccade.planning.shapes import ARCHITECTURES

PUBLISHED: dict[str, Any] = {"activation": "relu", "norm": "layer", "norm_first": False, "position": "sinusoidal"}
PUBLISHED |= {"score": "scaled_dot", "bias": True}
BASE = TransformerConfig(dim=512, depth=6, heads=8, hidden=2048, **PUBLISHED)
DEPTH, STEPS, LEARNING_RATE = 24, 60, 6e-3
PARTS = {"self": "self-attention", "cross": "encoder-decoder attention", "feed": "feed-forward"}


@torch.no_grad()
def shapes_along(stack: Transformer, *inputs: Tensor, mask: Mask | None) -> list[tuple[str, tuple[int, ...]]]:
    """Return the shape that leaves each part of each block, in the order of the run."""
    seen: list[tuple[str, tuple[int, ...]]] = []
    hooks = [
        module.register_forward_hook(lambda _, args, y, name=name: seen.append((name, tuple(y.shape))))
        for name, module in stack.named_modules()
        if isinstance(module, Attention | FeedForward | Residual)
    ]
    stack(*inputs, mask=mask)
    for hook in hooks:
        hook.remove()
    return seen


def blocks(stack: Transformer) -> list[Layer]:
    """Return the blocks of a stack."""
    return [module for module in stack.modules() if isinstance(module, Layer)]


def _diagram(show: Demonstration, title: str, seen: list[tuple[str, tuple[int, ...]]]) -> None:
    """Add the parts of the first block with their shapes."""
    rows = []
    for name, shape in seen:
        block, part = name.split(".")
        if block == "0":
            residual = part.endswith("_residual")
            label = "  add the input, layer norm" if residual else PARTS[part]
            rows.append((label, " x ".join(map(str, shape))))
    show.table(title, ("part of block 1 of 6, from bottom to top", "output: rows x tokens x width"), rows)


def encoder_block(show: Demonstration) -> None:
    """R40: six encoder blocks of self-attention and feed-forward, each with residual and norm."""
    encoder = Transformer(BASE)
    seen = shapes_along(encoder, torch.randn(2, 5, 512), mask=None)
    _diagram(show, "encoder block of the published Transformer", seen)
    order = ["self", "self_residual", "feed", "feed_residual"]
    show.equal("blocks", len(blocks(encoder)), 6)
    show.equal(
        "parts in the order of the run", [name for name, _ in seen], [f"{b}.{part}" for b in range(6) for part in order]
    )
    show.equal("every output has the shape", sorted({shape for _, shape in seen}), [(2, 5, 512)])
    show.holds(
        "every residual has a layer norm",
        all(isinstance(m.norm, nn.LayerNorm) for m in encoder.modules() if isinstance(m, Residual)),
    )
    parameters = sum(p.numel() for p in blocks(encoder)[0].parameters())
    counted = 4 * (512 * 512 + 512) + 2 * 512 * 2048 + 2048 + 512 + 2 * 2 * 512
    show.equal("parameters of a block: 4 (D^2 + D) + 2 D F + F + D + 4 D", parameters, counted)


def decoder_block(show: Demonstration) -> None:
    """R41: six decoder blocks of masked self-attention, encoder-decoder attention and feed-forward."""
    decoder = Transformer(BASE, memory_dim=512)
    target, memory = torch.randn(1, 4, 512), torch.randn(1, 7, 512)
    seen = shapes_along(decoder, target, memory, mask=Causal())
    _diagram(show, "decoder block of the published Transformer, over a source of 7 tokens", seen)
    order = ["self", "self_residual", "cross", "cross_residual", "feed", "feed_residual"]
    show.equal("blocks", len(blocks(decoder)), 6)
    show.equal(
        "parts in the order of the run", [name for name, _ in seen], [f"{b}.{part}" for b in range(6) for part in order]
    )
    with torch.no_grad(), watch(decoder) as maps:
        decoder(target, memory, mask=Causal())
    future = max(maps[f"{b}.self"].rows()[0].triu(1).abs().max().item() for b in range(6))
    show.equal("largest weight of self-attention on the future", future, 0.0)
    for b in (0, 5):
        weights = maps[f"{b}.cross"].rows()[0]
        show.equal(f"block {b + 1}, encoder-decoder attention: heads x target x source", list(weights.shape), [8, 4, 7])
        show.above(f"block {b + 1}: and it sees the whole source: smallest weight", weights.min().item(), 0.0)


def train(*, norm_first: bool, depth: int) -> tuple[list[float], list[float]]:
    """Learn to repeat the token before, Adam at full speed from the first step; return losses and gradient norms."""
    torch.manual_seed(0)
    config = TransformerConfig(dim=32, depth=depth, heads=2, hidden=64, **PUBLISHED | {"norm_first": norm_first})
    table, stack, head = nn.Embedding(8, 32), Transformer(config), nn.Linear(32, 8)
    parameters = [*table.parameters(), *stack.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE)
    losses, norms = [], []
    for _ in range(STEPS):
        ids = torch.randint(8, (32, 8))
        logits = head(stack(table(ids), mask=Causal()))
        loss = F.cross_entropy(logits[:, 1:].flatten(0, 1), ids[:, :-1].flatten())
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.stack([p.grad.norm() for p in parameters if p.grad is not None]).norm().item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms


def norm_order(show: Demonstration) -> None:
    """R42: pre-norm trains without warm-up at a depth where post-norm does not."""
    runs = {
        f"pre-norm, {DEPTH} layers": train(norm_first=True, depth=DEPTH),
        f"post-norm, {DEPTH} layers": train(norm_first=False, depth=DEPTH),
        "post-norm, 4 layers": train(norm_first=False, depth=4),
    }
    show.plot(
        f"the same task, learning rate {LEARNING_RATE:g} from the first step, no warm-up",
        "step",
        "loss",
        {name: [(float(step), loss) for step, loss in enumerate(losses, 1)] for name, (losses, _) in runs.items()},
    )
    show.plot(
        "norm of the gradient",
        "step",
        "log10 of the norm",
        {
            name: [(float(step), math.log10(norms[step - 1])) for step in range(1, STEPS + 1, 5)]
            for name, (_, norms) in runs.items()
        },
    )
    final = {name: sum(losses[-10:]) / 10 for name, (losses, _) in runs.items()}
    rows = [(name, norms[0], norms[4], norms[-1], final[name]) for name, (_, norms) in runs.items()]
    show.table("norm of the gradient", ("model", "step 1", "step 5", f"step {STEPS}", "loss at the end"), rows)
    pre, post, shallow = final
    show.below(f"{pre}: loss at the end", final[pre], 0.5)
    show.above(f"{post}: stays near guessing, log 8 = {math.log(8):.2f}", final[post], 1.8)
    show.below(f"{shallow}: learns", final[shallow], 0.5)
    show.above("gradient of post-norm at step 1, relative to pre-norm", runs[post][1][0] / runs[pre][1][0], 1.0)


def only_interaction(show: Demonstration) -> None:
    """R43: attention is the only interaction between vectors; norm and MLP act on each vector alone."""
    for norm_first in (True, False):
        name = "pre-norm" if norm_first else "post-norm"
        shape = PUBLISHED | {"norm_first": norm_first}
        stack = Transformer(TransformerConfig(dim=16, depth=3, heads=2, hidden=32, **shape)).double()
        x = torch.randn(1, 5, 16).double().requires_grad_()
        alone = Graph(torch.eye(5, dtype=torch.bool))
        masks: tuple[tuple[str, Mask], ...] = (("attention masked out", alone), ("full attention", Full()))
        for title, mask in masks:
            y = stack(x, mask=mask)
            gradients = [torch.autograd.grad(y[0, i].square().sum(), x, retain_graph=True)[0][0] for i in range(5)]
            connected = torch.stack(gradients).abs().sum(-1) > 0
            pairs = int(connected.sum())
            show.equal(f"{name}, {title}: pairs (output, input) with a gradient", pairs, 5 if mask is alone else 25)
        changed = x.detach().clone()
        changed[:, 3] += 1
        moved = (stack(changed, mask=alone) - stack(x, mask=alone)).abs().sum(-1)[0]
        show.table(
            f"{name}: input 4 changed, attention masked out", [f"output {n + 1}" for n in range(5)], [moved.tolist()]
        )
        show.equal(f"{name}: outputs that move", [n + 1 for n in range(5) if moved[n] > 0], [4])


def published_shape(show: Demonstration) -> None:
    """R45, T2: the published Transformer has 6 + 6 blocks of width 512 with 8 heads of 64; 6 heads do not fit."""
    show.raises(
        "512 / 6 is no whole number: 6 heads", ValueError, "512 is not a multiple of 6", lambda: Attention(512, 6)
    )
    base = ARCHITECTURES["transformer-base"]
    show.raises(
        "saccade plan transformer-base heads=6",
        UsageError,
        "dim must be a multiple of heads, but 512 is not a multiple of 6",
        lambda: change(base, ["heads=6"]),
    )
    counted = count(base).total
    show.close("parameters with one matrix of 37,000 tokens, as the planner counts them, M", counted / 1e6, 63.1, 0.05)
    encoder, decoder = Transformer(BASE), Transformer(BASE, memory_dim=512)
    attentions = [module for stack in (encoder, decoder) for module in stack.modules() if isinstance(module, Attention)]
    show.equal("blocks of encoder and decoder", [len(blocks(encoder)), len(blocks(decoder))], [6, 6])
    show.equal("attention layers: one in each encoder block, two in each decoder block", len(attentions), 18)
    show.equal("heads and width of a head", sorted({(a.heads, a.head_dim) for a in attentions}), [(8, 64)])


ROWS = (
    Row("R40", "Encoder block: self-attention, feed-forward, residual, norm; 6 of them", encoder_block, 1.0),
    Row("R41", "Decoder block: masked self-attention, encoder-decoder attention, feed-forward", decoder_block, 1.0),
    Row("R42", "Post-norm and pre-norm: which one trains without warm-up", norm_order, 10.0, page="lessons"),
    Row("R43", "Attention is the only interaction between vectors", only_interaction),
    Row("R45", "The published Transformer: 6 + 6 blocks, width 512, 8 heads of 64", published_shape, 1.0),
)
