"""Quantized linear layers: weights of 16, 8 or 4 bits, which become float32 when they are used.

Shapes: O outputs, I inputs, S = I / 32 groups.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WeightType = Literal["float16", "int8", "int4"]
WEIGHT_TYPES: tuple[str, ...] = get_args(WeightType)
GROUP = 32  # inputs with a common scale and offset in weights of 4 bits
RANGES = (1.0, 0.95, 0.9, 0.85, 0.8)  # parts of the range of a group that the integers may cover


class QuantizedLinear(nn.Module):
    """A linear layer with rounded weights; inputs and outputs are float32."""

    weight: Tensor
    """(O, I) float16 or int8; int4 from 0 to 15, one in a byte"""
    scales: Tensor
    """int8: (O,); int4: scale and offset of each group (O, S, 2); float16: none"""

    def __init__(self, layer: nn.Linear, kind: WeightType) -> None:
        super().__init__()
        self.in_features, self.out_features, self.kind = layer.in_features, layer.out_features, kind
        weight = layer.weight.detach().float()
        finite = weight.isfinite()
        if not finite.all():
            raise FloatingPointError(f"weights must be finite, but one is {weight[~finite][0]}")
        if kind == "float16":
            rounded, scales = weight.half(), torch.empty(0)
            if not rounded.isfinite().all():
                raise OverflowError(f"weights must be at most 65504 for float16, but one is {weight.abs().max():.4g}")
        else:
            rounded, scales = round_int8(weight) if kind == "int8" else round_int4(weight)
        self.register_buffer("weight", rounded)
        self.register_buffer("scales", scales)
        self.bias = None if layer.bias is None else nn.Parameter(layer.bias.detach().clone(), requires_grad=False)

    def dequantize(self) -> Tensor:
        """Return the weights (O, I) as float32."""
        weight = self.weight.float()
        if self.kind == "int4":
            scale, offset = self.scales.repeat_interleave(GROUP, dim=1)[:, : self.in_features].unbind(2)
            return weight * scale + offset
        return weight * self.scales[:, None] if self.kind == "int8" else weight

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.dequantize(), self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, {self.kind}"


def round_int8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return int8 weights (O, I) and a scale for each output (O,)."""
    scales = (weight.abs().amax(1) / 127).clamp_min(1e-30)
    return (weight / scales[:, None]).round().clamp(-127, 127).to(torch.int8), scales


def round_int4(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return weights from 0 to 15 (O, I), and scale and offset of each group of 32 inputs (O, S, 2).

    Of several ranges the one with the smallest squared error is taken. Scales and offsets have 16 bits (bfloat16).
    """
    inputs = weight.shape[1]
    groups = F.pad(weight, (0, -inputs % GROUP)).unflatten(1, (-1, GROUP))  # (O, S, 32)
    low, high = groups.amin(2, keepdim=True), groups.amax(2, keepdim=True)
    best, error = torch.zeros_like(groups), torch.full_like(low, torch.inf)
    scales = torch.zeros(*groups.shape[:2], 2, device=weight.device)
    for part in RANGES:
        scale = (part * (high - low) / 15).to(torch.bfloat16).float()
        offset = ((low + high - part * (high - low)) / 2).to(torch.bfloat16).float()
        integers = ((groups - offset) / torch.where(scale == 0, 1.0, scale)).round().clamp(0, 15)
        residual = (integers * scale + offset - groups).square().sum(2, keepdim=True)
        better = residual < error
        best, error = torch.where(better, integers, best), torch.where(better, residual, error)
        scales = torch.where(better, torch.cat((scale, offset), 2), scales)
    return best.to(torch.int8).flatten(1)[:, :inputs], scales
