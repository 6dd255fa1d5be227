"""Packed: linear layers on weights laid out for the processor, for models that are only read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

LEAST = 1 << 14  # weights of a layer that is worth it


@contextmanager
def packed(model: nn.Module, rows: int) -> Iterator[None]:
    """While it lasts, float32 linear layers on a CPU run on packed copies of their weights, made for about `rows` rows.

    The copies are not seen by autograd and do not follow a change of the weights.
    """
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)] if _available() else []
    layers = [layer for layer in linear if _fits(layer)]
    for layer in layers:
        weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), rows)
        layer.__dict__["forward"] = partial(_linear, weight, layer.bias)  # found before the method of the class
    try:
        yield
    finally:
        for layer in layers:
            del layer.__dict__["forward"]


def _available() -> bool:
    """Whether this build of torch has the packed product."""
    known = all(hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise"))
    return torch.backends.mkldnn.is_available() and known and not torch.is_autocast_enabled("cpu")


def _fits(layer: nn.Linear) -> bool:
    weight = layer.weight
    plain = type(layer) is nn.Linear and "forward" not in layer.__dict__
    return plain and weight.device.type == "cpu" and weight.dtype == torch.float32 and weight.numel() >= LEAST


def _linear(weight: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return y
