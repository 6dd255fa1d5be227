"""Quantization of the linear layers of a model, for inference.

`quantize`: int8 weights and activations for many rows, about three times faster than float32 in an encoder on a CPU.
`quantize_weights`: weights of 16, 8 or 4 bits, for generation, which reads every weight for every token.
"""

from __future__ import annotations

import copy
import warnings
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from saccade.errors import ModelFileError, UsageError
from saccade.nn.linear import is_plain
from saccade.nn.quantized import WEIGHT_TYPES, QuantizedLinear, WeightType

Network = TypeVar("Network", bound=nn.Module)
MIN_WEIGHTS = 1 << 12  # smaller layers do not become faster


class Int8Linear(nn.Module):
    """Linear layer with packed int8 weights."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        weight = layer.weight.detach().float()
        scale = (weight.abs().amax(1) / 127).clamp_min(1e-12).double()
        zero_point = torch.zeros_like(scale, dtype=torch.long)
        with warnings.catch_warnings():  # deprecated, but its result is the only input linear_prepack accepts
            warnings.simplefilter("ignore")
            quantized = torch.quantize_per_channel(weight, scale, zero_point, 0, torch.qint8)
        bias = None if layer.bias is None else layer.bias.detach()
        self._packed = torch.ops.quantized.linear_prepack(quantized, bias)
        # Without VNNI instructions the 16-bit sums of products can overflow: quantize activations to 7 bits.
        self._reduce_range = not torch.cpu._is_vnni_supported()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.quantized.linear_dynamic(x, self._packed, self._reduce_range)
        return y


def quantize_weights(model: Network, kind: str, prefix: str = "") -> Network:
    """Return a copy of a language model with rounded weights in its linear layers; the output layer has 8 bits or more.

    Norms, embeddings and biases stay float32. Errors name the layer, of a submodule after its `prefix`.
    """
    if kind not in WEIGHT_TYPES:
        raise ValueError(f"weights must be {', '.join(WEIGHT_TYPES)}, but are '{kind}'")
    quantized = copy.copy(model)
    quantized.__dict__ = {**model.__dict__, "_modules": dict(model._modules)}
    for name, child in model.named_children():
        if is_plain(child):
            exact = name == "head" and kind == "int4"
            quantized._modules[name] = _round(child, "int8" if exact else cast(WeightType, kind), prefix + name)
        else:
            quantized._modules[name] = quantize_weights(child, kind, f"{prefix}{name}.")
    return quantized.eval()


def _round(layer: nn.Linear, kind: WeightType, name: str) -> QuantizedLinear:
    try:
        return QuantizedLinear(layer, kind)
    except FloatingPointError as error:
        raise ModelFileError(f"{name}: {error}; get the model again, or train it again") from error
    except OverflowError as error:
        raise UsageError(f"{name}: {error}; choose another dtype, such as int8") from error


def quantize(model: nn.Module) -> nn.Module:
    """Return a copy of a float32 model on a CPU with int8 linear layers; everything else stays float32."""
    if any(parameter.device.type != "cpu" for parameter in model.parameters()):
        raise UsageError("int8 layers run on a CPU only; add --device cpu")
    quantized = copy.deepcopy(model).eval().requires_grad_(False)
    for parent in list(quantized.modules()):
        for name, layer in list(parent.named_children()):
            if is_plain(layer) and layer.weight.numel() >= MIN_WEIGHTS:
                setattr(parent, name, Int8Linear(layer))
    return quantized
