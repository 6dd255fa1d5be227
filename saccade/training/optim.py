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
    matrix_lr: float = 0.03
    """peak learning rate of Muon"""
    embedding_lr: float = 0.15
    """peak learning rate of embeddings, beside Muon"""
    output_lr: float = 0.02
    """peak learning rate of an output layer 128 wide, beside Muon; it falls as the width grows"""
    lr: float = 0.001
    """peak learning rate of AdamW for everything else"""
    new_head_lr: float = 0.0
    """with adamw: peak learning rate of a fresh output layer on top of a pretrained network; 0: lr"""
    beta1: float = 0.9
    """decay of AdamW's mean of gradients"""
    beta2: float = 0.99
    """decay of AdamW's mean of squared gradients"""
    momentum: float = 0.85
    """momentum of Muon"""
    weight_decay: float = 0.0
    """decay of matrices and embeddings, relative to their learning rate"""
    clip: float = 0.0
    """largest norm of the gradient; 0: no limit"""
    warmup: int = 10
    """steps over which the learning rate rises from 0"""
    schedule: Literal["wsd", "cosine", "linear", "inverse_sqrt", "constant"] = "wsd"
    """wsd: level, then a straight line down; the others fall from the end of the warm-up"""
    cooldown: float = 0.6
    """wsd: share of the run that goes down"""
    floor: float = 0.0
    """learning rate at the end, as a share of the peak"""

    def __post_init__(self) -> None:
        for name in ("matrix_lr", "embedding_lr", "output_lr", "lr", "new_head_lr", "weight_decay", "clip", "warmup"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, but is {getattr(self, name)}")
        for name in ("beta1", "beta2", "momentum"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, but is {getattr(self, name)}")
        for name in ("cooldown", "floor"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be between 0 and 1, but is {getattr(self, name)}")


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
    matrices: list[Tensor] = []
    groups: dict[tuple[float, float], list[Tensor]] = {}  # by learning rate and weight decay
    roles = _roles(player) if config.kind == "muon" else {}
    for name, weight in player.named_parameters():
        if not weight.requires_grad:  # a frozen weight must not decay either
            continue
        role = roles.get(name)
        if role == "matrix":
            matrices.append(weight)
            continue
        lr = {"embedding": config.embedding_lr, "head": config.output_lr * 128 / weight.shape[-1]}.get(
            role or "", config.lr
        )
        if config.kind == "adamw" and config.new_head_lr and name.startswith("head."):
            lr = config.new_head_lr
        groups.setdefault((lr, config.weight_decay if weight.dim() > 1 else 0.0), []).append(weight)
    optimizers: list[torch.optim.Optimizer] = []
    if groups:
        listed = [{"params": found, "lr": lr, "weight_decay": decay} for (lr, decay), found in groups.items()]
        optimizers.append(torch.optim.AdamW(listed, betas=(config.beta1, config.beta2), fused=True))
    if matrices:
        optimizers.append(Muon(matrices, config.matrix_lr, config.momentum, config.weight_decay))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return optimizers


def _roles(player: nn.Module) -> dict[str, str]:
    """What Muon needs to know: matrix, embedding or head (by the custom of the house, the output layer's name)."""
    found: dict[str, str] = {}
    for name, module in player.named_modules():
        weight = f"{name}.weight" if name else "weight"
        if isinstance(module, nn.Embedding):
            found[weight] = "embedding"
        elif isinstance(module, nn.Linear):
            found[weight] = "head" if name.rpartition(".")[2] == "head" else "matrix"
        elif isinstance(module, nn.RNNBase):
            found |= {f"{name}.{own}": "matrix" for own, value in module.named_parameters() if value.dim() == 2}
    heads = {id(player.get_parameter(name)) for name, role in found.items() if role == "head"}
    tied = [name for name in found if id(player.get_parameter(name)) in heads]
    return {**found, **dict.fromkeys(tied, "head")}


class Muon(torch.optim.Optimizer):
    """Momentum made orthogonal: every direction of a matrix moves by the same amount.

    Keller Jordan, https://kellerjordan.github.io/posts/muon. The Newton-Schulz iteration runs in float32 over all
    matrices of one shape at once, whose momenta lie in one tensor.
    """

    def __init__(self, params: Iterable[Tensor], lr: float, momentum: float, weight_decay: float) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self._momenta: dict[torch.Size, Tensor] = {}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = {}
            for weight in group["params"]:
                shapes.setdefault(weight.shape, []).append(weight)
            for weights in shapes.values():
                self._move(weights, group)

    def _move(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        """One step of all the matrices of one shape."""
        ahead = torch.stack([torch.zeros_like(w) if w.grad is None else w.grad for w in weights])
        momentum = self._momentum(weights).lerp_(ahead, 1 - group["momentum"])
        steps = orthogonalise(ahead.lerp_(momentum, group["momentum"]))  # Nesterov
        rows, columns = weights[0].shape
        if group["weight_decay"]:
            torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(weights, list(steps.unbind()), alpha=-group["lr"] * math.sqrt(max(1.0, rows / columns)))

    def _momentum(self, weights: list[Tensor]) -> Tensor:
        """The momenta of one shape; each weight's state is a view of its part."""
        shape = weights[0].shape
        if shape not in self._momenta:
            known = [self.state[weight].get("momentum", torch.zeros_like(weight)) for weight in weights]
            self._momenta[shape] = torch.stack(known)
            for weight, part in zip(weights, self._momenta[shape], strict=True):
                self.state[weight]["momentum"] = part
        return self._momenta[shape]


QUINTIC = (3.4445, -4.7750, 2.0315)  # coefficients that drive singular values towards 1 in few steps


def orthogonalise(matrices: Tensor, iterations: int = 5) -> Tensor:
    """The nearest matrices (N, R, C) with singular values near 1, by a quintic Newton-Schulz iteration."""
    x = matrices.float()  # in bfloat16 the Gram matrix loses its sign and the iteration blows up
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.transpose(1, 2)
    x = x / (1.01 * x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = QUINTIC
    gram = product = torch.bmm(x, x.transpose(1, 2))
    for done in range(iterations):
        # Everything happens in the small square: p = aI + bG + cG^2, x <- p x, G <- p G p.
        factor = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        factor.diagonal(dim1=1, dim2=2).add_(a)
        product = torch.bmm(factor, product) if done else factor
        if done < iterations - 1:
            gram = torch.bmm(torch.bmm(factor, gram), factor)
    out = torch.bmm(product, x)
    return (out.transpose(1, 2) if tall else out).to(matrices.dtype)
