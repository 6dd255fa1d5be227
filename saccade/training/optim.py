"""Optimizers and schedules: AdamW, Muon for matrices, SGD, and the learning rate as a pure function of the step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from saccade.runs.weights import is_sharded, local


@dataclass(frozen=True)
class OptimConfig:
    """Optimizer and learning-rate schedule."""

    kind: Literal["muon", "adamw", "sgd"] = "muon"
    """muon: orthogonalised momentum for matrices of linear layers and convolutions, AdamW for all others; adamw: AdamW
    alone; sgd: gradient descent without momentum, for losses whose gradient is a complete step"""
    matrix_lr: float = 0.03
    """peak learning rate of Muon"""
    embedding_lr: float = 0.15
    """with muon: peak learning rate of embeddings"""
    output_lr: float = 0.02
    """with muon: peak learning rate of an output layer of width 128; inversely proportional to the width"""
    lr: float = 0.001
    """peak learning rate of AdamW for all other parameters"""
    new_head_lr: float = 0.0
    """with adamw: peak learning rate of a new output layer on a pretrained network; 0: lr"""
    beta1: float = 0.9
    """AdamW: decay of the running mean of gradients"""
    beta2: float = 0.99
    """AdamW: decay of the running mean of squared gradients"""
    momentum: float = 0.85
    """momentum of Muon"""
    weight_decay: float = 0.0
    """decoupled weight decay of matrices and embeddings, multiplied by their learning rate"""
    clip: float = 0.0
    """maximum norm of the gradient; 0: no clipping"""
    warmup: int = 10
    """steps of linear warm-up from 0"""
    schedule: Literal["wsd", "cosine", "linear", "inverse_sqrt", "constant"] = "wsd"
    """wsd: constant, then linear decay; cosine, linear and inverse_sqrt decay from the end of the warm-up"""
    cooldown: float = 0.6
    """wsd: fraction of the run that decays"""
    floor: float = 0.0
    """learning rate at the end, as a fraction of the peak"""

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


def lr_scale(config: OptimConfig, step: int, total: int | None) -> float:
    """Return the learning rate of a step (from 0) as a fraction of its peak; `total` None: not yet decided."""
    if step < config.warmup:
        return (step + 1) / config.warmup
    if config.schedule == "inverse_sqrt":
        return math.sqrt(max(config.warmup, 1) / (step + 1))
    if total is None or config.schedule == "constant":
        return 1.0
    remaining = (total - step) / max(1, total - config.warmup)  # 1 after the warm-up, 0 at the end
    if config.schedule == "wsd":
        scale = min(1.0, (total - step) / max(1.0, config.cooldown * total))
    elif config.schedule == "linear":
        scale = remaining
    else:
        scale = 0.5 - 0.5 * math.cos(math.pi * remaining)
    return config.floor + (1 - config.floor) * max(0.0, scale)


def build_optimizers(config: OptimConfig, network: nn.Module) -> list[torch.optim.Optimizer]:
    """Return the optimizers of one network; each parameter group keeps its peak learning rate as `peak_lr`."""
    matrices: list[Tensor] = []
    groups: dict[tuple[float, float], list[Tensor]] = {}  # by learning rate and weight decay
    roles = _roles(network) if config.kind == "muon" else {}
    for name, weight in network.named_parameters():
        if not weight.requires_grad:  # a frozen weight must not decay either
            continue
        role = roles.get(name)
        if role == "matrix":
            matrices.append(weight)
            continue
        lr = config.embedding_lr if role == "embedding" else config.lr
        if role == "head":
            lr = config.output_lr * 128 / weight.shape[-1]
        if config.kind == "adamw" and config.new_head_lr and name.startswith("head."):
            lr = config.new_head_lr
        groups.setdefault((lr, config.weight_decay if weight.dim() > 1 else 0.0), []).append(weight)
    optimizers: list[torch.optim.Optimizer] = []
    if groups:
        param_groups = [{"params": params, "lr": lr, "weight_decay": decay} for (lr, decay), params in groups.items()]
        if config.kind == "sgd":
            optimizers.append(torch.optim.SGD(param_groups))
        else:
            optimizers.append(torch.optim.AdamW(param_groups, betas=(config.beta1, config.beta2), fused=True))
    if matrices:
        optimizers.append(Muon(matrices, config.matrix_lr, config.momentum, config.weight_decay))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak_lr"] = group["lr"]
    return optimizers


def _roles(network: nn.Module) -> dict[str, str]:
    """Return the role of each weight by name: matrix, embedding or head (an output layer is a module named `head`)."""
    roles: dict[str, str] = {}
    for name, module in network.named_modules():
        own = "parametrizations.weight.original" if is_parametrized(module, "weight") else "weight"
        weight = f"{name}.{own}" if name else own
        if isinstance(module, nn.Embedding):
            roles[weight] = "embedding"
        elif isinstance(module, nn.Linear):
            roles[weight] = "head" if name.rpartition(".")[2] == "head" else "matrix"
        elif isinstance(module, nn.Conv2d) and module.groups == 1:  # a matrix of filters
            roles[weight] = "matrix"
        elif isinstance(module, nn.RNNBase):
            roles |= {f"{name}.{part}": "matrix" for part, value in module.named_parameters() if value.dim() == 2}
    heads = {id(network.get_parameter(name)) for name, role in roles.items() if role == "head"}
    tied = [name for name in roles if id(network.get_parameter(name)) in heads]
    return {**roles, **dict.fromkeys(tied, "head")}


def state_shapes(optimizer: torch.optim.Optimizer, weight: Tensor) -> dict[str, torch.Size]:
    """Return the shape of each state tensor that an optimizer has for a weight, by name."""
    if isinstance(optimizer, Muon):
        return {"momentum": weight.shape}
    if isinstance(optimizer, torch.optim.SGD):
        return {}
    return {"step": torch.Size(()), "exp_avg": weight.shape, "exp_avg_sq": weight.shape}


class Muon(torch.optim.Optimizer):
    """Orthogonalised momentum: a step has the same size in every direction of a matrix.

    Keller Jordan, https://kellerjordan.github.io/posts/muon. The Newton-Schulz iteration runs in float32 over all
    matrices of one shape at once; their momenta are one tensor. Of matrices that are sharded by rows, each process
    has a shard of the momenta; the gradients with momentum are gathered, since a step depends on the whole matrix.
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
                self._update(weights, group)

    def _update(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        """Update all matrices of one shape."""
        gradients = torch.stack([local(torch.zeros_like(w) if w.grad is None else w.grad) for w in weights])
        momentum = self._momentum(weights).lerp_(gradients, 1 - group["momentum"])
        nesterov = _gathered(gradients.lerp_(momentum, group["momentum"]), weights[0])
        steps = orthogonalise(nesterov.flatten(2)).view(nesterov.shape)  # filters of a convolution as rows
        rows, columns = len(weights[0]), weights[0].shape[1:].numel()
        values = [local(weight) for weight in weights]
        if group["weight_decay"]:
            torch._foreach_mul_(values, 1 - group["lr"] * group["weight_decay"])
        own = _own_rows(steps, weights[0]).unbind()
        torch._foreach_add_(values, list(own), alpha=-group["lr"] * math.sqrt(max(1.0, rows / columns)))

    def _momentum(self, weights: list[Tensor]) -> Tensor:
        """Return the momenta of one shape as one tensor; the state of each weight is a view of it."""
        shape = weights[0].shape
        if shape not in self._momenta:
            momenta = [local(self.state[weight].get("momentum", torch.zeros_like(weight))) for weight in weights]
            self._momenta[shape] = torch.stack(momenta)
            for weight, momentum in zip(weights, self._momenta[shape], strict=True):
                self.state[weight]["momentum"] = _shard(momentum, weight)
        return self._momenta[shape]


def _shard(value: Tensor, weight: Tensor) -> Tensor:
    """Return this process's part of a tensor that is sharded as a weight is."""
    if not is_sharded(weight):
        return value
    from torch.distributed.tensor import DTensor

    shape, stride = weight.shape, weight.stride()
    return DTensor.from_local(value, weight.device_mesh, weight.placements, run_check=False, shape=shape, stride=stride)


def _gathered(rows: Tensor, weight: Tensor) -> Tensor:
    """Return whole matrices (N, R, C), of which this process has some rows if the weight is sharded."""
    if not is_sharded(weight):
        return rows
    from torch.distributed.tensor import DTensor, Shard

    shape = torch.Size((len(rows), *weight.shape))
    stride = torch.empty(shape, device="meta").stride()
    sharded = DTensor.from_local(rows, weight.device_mesh, [Shard(1)], run_check=False, shape=shape, stride=stride)
    return sharded.full_tensor()


def _own_rows(matrices: Tensor, weight: Tensor) -> Tensor:
    """Return the rows of whole matrices (N, R, C) that this process has: all, or those of its shard of the weight."""
    if not is_sharded(weight):
        return matrices
    from torch.distributed.tensor import Shard, distribute_tensor

    return distribute_tensor(matrices, weight.device_mesh, [Shard(1)], src_data_rank=None).to_local()


QUINTIC = (3.4445, -4.7750, 2.0315)  # coefficients that drive singular values towards 1 in few steps


def orthogonalise(matrices: Tensor, iterations: int = 5) -> Tensor:
    """Return the nearest matrices (N, R, C) with singular values near 1, by a quintic Newton-Schulz iteration."""
    x = matrices.float()  # in bfloat16 the Gram matrix loses its sign and the iteration blows up
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.transpose(1, 2)
    x = x / (1.01 * x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = QUINTIC
    gram = product = torch.bmm(x, x.transpose(1, 2))
    for iteration in range(iterations):
        # All products are of the small square Gram matrix: p = aI + bG + cG^2, x <- p x, G <- p G p.
        factor = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        factor.diagonal(dim1=1, dim2=2).add_(a)
        product = torch.bmm(factor, product) if iteration else factor
        if iteration < iterations - 1:
            gram = torch.bmm(torch.bmm(factor, gram), factor)
    out = torch.bmm(product, x)
    return (out.transpose(1, 2) if tall else out).to(matrices.dtype)
