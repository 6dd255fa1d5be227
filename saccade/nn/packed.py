"""Packed copies of a model: linear layers with weights in the processor's preferred layout, for inference only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from saccade.nn.linear import Linear, is_plain, onednn_available, onednn_linear
from saccade.nn.masks import Mask

MIN_WEIGHTS = 1 << 14  # a smaller layer is not worth packing

Model = TypeVar("Model", bound=nn.Module)
Kernel = Callable[[Tensor, Tensor, Tensor, Mask | None, float], Tensor | None]
"""softmax(scale q k) v from q, k, v (B, H, T, E), a mask or None, and scale; None: a case that it leaves to others"""


class PackedLinear(Linear):
    """A linear layer that multiplies by a packed copy of its weight; `weight` and `bias` are those of the original."""

    packed: Tensor

    def forward(self, input: Tensor) -> Tensor:
        return onednn_linear(input, self.packed, self.bias)


def pack(model: Model, rows: int, kernel: Kernel | None = None) -> Model:
    """Return a read-only copy whose float32 linear layers on a CPU are packed for about `rows` rows.

    Its attention layers compute by `kernel`, as far as that can (`nn/attention.py`). The copy shares all parameters,
    buffers and hooks, and the model itself is not changed. Packed weights are invisible to autograd and are not updated
    when the weights change. If nothing can be packed the model itself is returned.
    """
    if not _available() or not (kernel or any(_fits(module) for module in model.modules())):
        return model
    return _copy(model, rows, kernel, {})


def original(module: Any) -> Any:
    """Return the module that a packed copy was created from; any other module is its own original."""
    return module.__dict__.get("_original", module)


def _copy(module: Model, rows: int, kernel: Kernel | None, copies: dict[int, nn.Module]) -> Model:
    """Copy a tree of modules, each once, with tensors shared."""
    if id(module) not in copies:
        kind: type[nn.Module] = PackedLinear if _fits(module) else type(module)
        copy = copies[id(module)] = kind.__new__(kind)
        tables = {name: dict(value) for name, value in module.__dict__.items() if name in ("_parameters", "_buffers")}
        children = {name: child and _copy(child, rows, kernel, copies) for name, child in module._modules.items()}
        copy.__dict__ = {**module.__dict__, **tables, "_modules": children, "_original": original(module)}
        if kernel is not None and hasattr(kind, "kernel"):
            copy.__dict__["kernel"] = kernel
        if isinstance(module, nn.Linear) and kind is PackedLinear:
            copy.__dict__["packed"] = torch.ops.mkldnn._reorder_linear_weight(module.weight.detach(), rows)
    result = copies[id(module)]
    assert isinstance(result, type(module))
    return result


def packing_pays() -> bool:
    """Whether oneDNN's packed products of hundreds of rows are faster than MKL's: with AVX-512, not with AVX2."""
    return torch.backends.cpu.get_cpu_capability().startswith("AVX512")


def _available() -> bool:
    """Whether packed linear layers can be used here."""
    return onednn_available() and not torch.is_autocast_enabled("cpu")


def _fits(layer: nn.Module) -> bool:
    if not is_plain(layer) or "forward" in layer.__dict__:
        return False
    weight = layer.weight
    return weight.device.type == "cpu" and weight.dtype == torch.float32 and weight.numel() >= MIN_WEIGHTS
