"""LoRA adapters: fine-tune low-rank updates of frozen weights (https://arxiv.org/abs/2106.09685).

Shapes: I inputs, O outputs, R rank.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import TypeGuard, TypeVar

from torch import Tensor, nn

from saccade.nn.linear import Linear, is_plain, linear

Layer = TypeVar("Layer", bound=nn.Linear)


class LoraLinear(nn.Linear):
    """Linear layer with a trainable low-rank update: y = x Wᵀ + b + x Aᵀ Bᵀ; B starts at 0."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias = layer.weight, layer.bias  # shared with the layer, frozen
        self.weight.requires_grad_(False)
        if self.bias is not None:
            self.bias.requires_grad_(False)
        self.lora_a = nn.Parameter(layer.weight.new_empty(rank, layer.in_features))  # (R, I)
        self.lora_b = nn.Parameter(layer.weight.new_zeros(layer.out_features, rank))  # (O, R)
        nn.init.normal_(self.lora_a, std=1 / math.sqrt(layer.in_features))

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias) + linear(linear(x, self.lora_a), self.lora_b)

    def merged(self) -> nn.Linear:
        """Return an equivalent plain linear layer."""
        layer = Linear(self.in_features, self.out_features, bias=self.bias is not None, device=self.weight.device)
        layer.weight = nn.Parameter(self.weight.detach() + self.lora_b.detach() @ self.lora_a.detach())
        if self.bias is not None:
            layer.bias = nn.Parameter(self.bias.detach().clone())
        return layer


def add_lora(model: nn.Module, rank: int) -> None:
    """Freeze a model and replace each of its linear layers by one with a trainable update of this rank, in place."""
    model.requires_grad_(False)
    for parent, name, layer in _children(model, is_plain):
        setattr(parent, name, LoraLinear(layer, rank))


def merge_lora(model: nn.Module) -> nn.Module:
    """Return an equivalent model without adapters: a copy, or the model itself where it has none."""
    if not _children(model, _has_lora):
        return model
    merged = copy.deepcopy(model)
    for parent, name, layer in _children(merged, _has_lora):
        setattr(parent, name, layer.merged())
    return merged


def _has_lora(layer: nn.Module) -> TypeGuard[LoraLinear]:
    return isinstance(layer, LoraLinear)


def _children(model: nn.Module, select: Callable[[nn.Module], TypeGuard[Layer]]) -> list[tuple[nn.Module, str, Layer]]:
    """Return every selected layer with its parent module and its name there."""
    return [
        (parent, name, layer) for parent in model.modules() for name, layer in parent.named_children() if select(layer)
    ]
