"""Linear layers and matrix products on the faster of the two libraries that torch has for them on a CPU.

MKL, torch's choice for float32, does not use the AVX-512 units of processors that are not Intel's; oneDNN does, and
computes the products of a training step there in about half the time.

Shapes: M rows, I inputs, O outputs.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CPU_INFO = Path("/proc/cpuinfo")
MIN_ROWS, MIN_PRODUCTS = 16, 1 << 22  # below these oneDNN takes longer to start than it saves


@cache
def onednn_pays() -> bool:
    """Whether oneDNN multiplies float32 matrices faster than MKL: with AVX-512 on a processor that is not Intel's.

    A property of the processor, not a measurement: a resumed run must decide as the run did.
    """
    wide = torch.backends.cpu.get_cpu_capability().startswith("AVX512")
    return wide and onednn_available() and CPU_INFO.exists() and "GenuineIntel" not in CPU_INFO.read_text()


def onednn_available() -> bool:
    """Whether this build of torch has oneDNN's linear layers."""
    present = all(hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise"))
    return torch.backends.mkldnn.is_available() and present


def onednn_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x (..., I) times the transpose of weight (O, I), which may be packed, plus bias (O); without gradients."""
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return y


class _Linear(torch.autograd.Function):
    """The three products of a linear layer by oneDNN; the gradients are linear layers again, so they have gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return onednn_linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad
        grad = grads[0].reshape(-1, len(weight))  # (M, O)
        x_grad = linear(grad, weight.t()).view(x.shape) if for_x else None
        weight_grad = _transposed_product(grad, x.reshape(-1, x.shape[-1])) if for_weight else None
        return x_grad, weight_grad, grad.sum(0) if for_bias else None


def _transposed_product(a: Tensor, b: Tensor) -> Tensor:
    """Return the transpose of a (M, O) times b (M, I); oneDNN copies its first operand, so that is the smaller one."""
    return linear(a.t(), b.t()) if a.shape[1] <= b.shape[1] else linear(b.t(), a.t()).t()


_linear: Callable[..., Tensor] = _Linear.apply


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x (..., I) times the transpose of weight (O, I), plus bias (O)."""
    if not _by_onednn(x, weight):
        return F.linear(x, weight, bias)
    return _linear(x, weight, bias)


class Linear(nn.Linear):
    """`torch.nn.Linear` on the faster library."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


def is_plain(layer: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether a layer is a linear layer and nothing more, such as one with an adapter."""
    return type(layer) in (nn.Linear, Linear)


def _by_onednn(x: Tensor, weight: Tensor) -> bool:
    if torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu") or not onednn_pays():
        return False
    plain = x.dtype == weight.dtype == torch.float32 and x.device.type == weight.device.type == "cpu"
    inputs = weight.shape[1]
    rows = x.numel() // max(1, inputs)
    return plain and x.shape[-1] == inputs and rows >= MIN_ROWS and rows * weight.numel() >= MIN_PRODUCTS
