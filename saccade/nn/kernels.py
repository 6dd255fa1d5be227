"""A few element-wise pieces as single autograd nodes: fewer passes over memory than their plain form.

Each is tested against the plain formula, forward and backward.
"""

from typing import Any

import torch
from torch import Tensor


class _Turn(torch.autograd.Function):
    """Rotation of the pairs (i, i + E/2): the backward pass turns the other way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turned(x, cos, sin)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _turned(gradients[0], cos, -sin), None, None


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    torch.mul(first, cos, out=out[..., :half]).addcmul_(second, sin, value=-1)
    torch.mul(second, cos, out=out[..., half:]).addcmul_(first, sin)
    return out


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the pairs of features (i, i + E/2) of x (B, T, H, E) by the angles (B or 1, T, 1, E/2)."""
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    turned: Tensor = _Turn.apply(x, cos, sin)  # type: ignore[no-untyped-call]
    return turned


class _SquaredReLU(torch.autograd.Function):
    """max(x, 0)^2, whose derivative is 2 max(x, 0)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        positive = x.relu()
        ctx.save_for_backward(positive)
        return positive * positive

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (positive,) = ctx.saved_tensors
        return torch.mul(gradients[0], positive).mul_(2)


def squared_relu(x: Tensor) -> Tensor:
    """max(x, 0)^2: Primer (https://arxiv.org/abs/2109.08668)."""
    result: Tensor = _SquaredReLU.apply(x)  # type: ignore[no-untyped-call]
    return result
