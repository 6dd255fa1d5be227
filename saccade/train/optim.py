"""Optimizers and schedules: AdamW, Muon for matrices, and the learning rate as a pure function of the step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class OptimConfig:
    """How weights move."""

    kind: Literal["muon", "adamw"] = "muon"
    """muon: orthogonal steps for the matrices of linear layers, AdamW for the rest; adamw: for all"""
    lr: float = 0.01
    """peak learning rate of AdamW"""
    matrix_lr: float = 0.04
    """peak learning rate of Muon"""
    beta1: float = 0.9
    """decay of AdamW's mean of gradients"""
    beta2: float = 0.95
    """decay of AdamW's mean of squared gradients"""
    momentum: float = 0.95
    """momentum of Muon"""
    weight_decay: float = 0.0
    """decay of matrices and embeddings by AdamW, and of matrices by Muon, relative to the learning rate"""
    clip: float = 1.0
    """largest norm of the gradient; 0: no limit"""
    warmup: int = 10
    """steps over which the learning rate rises from 0"""
    schedule: Literal["wsd", "cosine", "linear", "inverse_sqrt", "constant"] = "wsd"
    """wsd: level, then a straight line down; the others fall from the end of the warm-up"""
    cooldown: float = 0.6
    """wsd: share of the run that goes down"""
    floor: float = 0.0
    """learning rate at the end, as a share of the peak"""


def rate(config: OptimConfig, step: int, total: int | None) -> float:
    """The learning rate of a step (from 0) as a share of its peak; `total` None: the end is not known yet."""
    if step < config.warmup:
        return (step + 1) / config.warmup
    if config.schedule == "inverse_sqrt":
        return math.sqrt(max(config.warmup, 1) / (step + 1))
    if total is None or config.schedule == "constant":
        return 1.0
    left = (total - step) / max(1, total - config.warmup)  # 1 after the warm-up, towards 0 at the end
    if config.schedule == "wsd":
        fall = min(1.0, (total - step) / max(1.0, config.cooldown * total))
    elif config.schedule == "linear":
        fall = left
    else:
        fall = 0.5 - 0.5 * math.cos(math.pi * left)
    return config.floor + (1 - config.floor) * max(0.0, fall)


def build(config: OptimConfig, player: nn.Module) -> list[torch.optim.Optimizer]:
    """The optimizers of one player; each group keeps its peak rate as `peak`."""
    matrices = matrix_names(player) if config.kind == "muon" else set()
    named = [(name, value) for name, value in player.named_parameters() if value.requires_grad]
    chosen = [value for name, value in named if name in matrices]
    rest = [value for name, value in named if name not in matrices]
    betas = (config.beta1, config.beta2)
    groups = [
        {"params": [value for value in rest if value.dim() >= 2], "weight_decay": config.weight_decay},
        {"params": [value for value in rest if value.dim() < 2], "weight_decay": 0.0},
    ]
    optimizers: list[torch.optim.Optimizer] = []
    if rest:
        groups = [group for group in groups if group["params"]]
        optimizers.append(torch.optim.AdamW(groups, lr=config.lr, betas=betas, eps=1e-10, fused=True))
    if chosen:
        optimizers.append(Muon(chosen, config.matrix_lr, config.momentum, config.weight_decay))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return optimizers


def matrix_names(player: nn.Module) -> set[str]:
    """Weights of linear layers, but for an output layer, which by the custom of the house is called `head`."""
    return {
        f"{name}.weight" if name else "weight"
        for name, module in player.named_modules()
        if isinstance(module, nn.Linear) and name.rpartition(".")[2] != "head"
    }


class Muon(torch.optim.Optimizer):
    """Momentum made orthogonal: every direction of a matrix moves by the same amount.

    Keller Jordan, https://kellerjordan.github.io/posts/muon. The Newton-Schulz iteration runs in float32 on a CPU
    (bfloat16 is slow there) over all matrices of one shape at once.
    """

    def __init__(self, params: Iterable[Tensor], lr: float, momentum: float, weight_decay: float) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = {}
            for weight in group["params"]:
                if weight.grad is not None:
                    shapes.setdefault(weight.shape, []).append(weight)
            for weights in shapes.values():
                self._move(weights, group)

    def _move(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        """One step of all the matrices of one shape."""
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        for weight in weights:
            if "momentum" not in self.state[weight]:
                self.state[weight]["momentum"] = torch.zeros_like(weight)
        means = [self.state[weight]["momentum"] for weight in weights]
        torch._foreach_lerp_(means, gradients, 1 - group["momentum"])
        ahead = torch._foreach_lerp(gradients, means, group["momentum"])  # Nesterov
        steps = orthogonalise(torch.stack(tuple(ahead)))
        rows, columns = weights[0].shape
        size = group["lr"] * math.sqrt(max(1.0, rows / columns))
        if group["weight_decay"]:
            torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(weights, list(steps.unbind()), alpha=-size)


def orthogonalise(matrices: Tensor, iterations: int = 5) -> Tensor:
    """The nearest matrices (N, R, C) with singular values near 1, by a quintic Newton-Schulz iteration."""
    low = matrices.device.type == "cuda"
    x = matrices.bfloat16() if low else matrices.float()
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.transpose(1, 2)
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(iterations):
        gram = x @ x.transpose(1, 2)
        gram = torch.baddbmm(gram, gram, gram, beta=-4.7750, alpha=2.0315)
        x = torch.baddbmm(x, gram, x, beta=3.4445)
    return (x.transpose(1, 2) if tall else x).to(matrices.dtype)
