"""LoRA: fine-tune a few numbers beside weights that stay as they are (https://arxiv.org/abs/2106.09685).

Shapes: I inputs, O outputs, R rank.
"""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn


class LoraLinear(nn.Linear):
    """A linear layer with a learned change of low rank: y = x W + x A B; B begins as 0, so at first nothing changes."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias = layer.weight, layer.bias  # the very same numbers, frozen
        self.weight.requires_grad_(False)
        if self.bias is not None:
            self.bias.requires_grad_(False)
        self.lower = nn.Parameter(layer.weight.new_empty(rank, layer.in_features))  # (R, I)
        self.upper = nn.Parameter(layer.weight.new_zeros(layer.out_features, rank))  # (O, R)
        nn.init.normal_(self.lower, std=1 / math.sqrt(layer.in_features))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias) + F.linear(F.linear(x, self.lower), self.upper)

    def merged(self) -> nn.Linear:
        """A plain layer that does the same."""
        layer = nn.Linear(self.in_features, self.out_features, bias=self.bias is not None, device=self.weight.device)
        layer.weight = nn.Parameter(self.weight.detach() + self.upper.detach() @ self.lower.detach())
        if self.bias is not None:
            layer.bias = nn.Parameter(self.bias.detach().clone())
        return layer


def add(model: nn.Module, rank: int) -> None:
    """Freeze a model and give every linear layer of it a change of this rank to learn."""
    model.requires_grad_(False)
    for owner, name, layer in _linear(model, nn.Linear):
        setattr(owner, name, LoraLinear(layer, rank))


def merge(model: nn.Module) -> None:
    """Put what was learned into the weights; the model has its old form again."""
    for owner, name, layer in _linear(model, LoraLinear):
        assert isinstance(layer, LoraLinear)
        setattr(owner, name, layer.merged())


def _linear(model: nn.Module, kind: type[nn.Linear]) -> list[tuple[nn.Module, str, nn.Linear]]:
    """Every linear layer of exactly this kind with the module that holds it and its name there."""
    return [
        (owner, name, layer)
        for owner in model.modules()
        for name, layer in owner.named_children()
        if type(layer) is kind and isinstance(layer, nn.Linear)
    ]
