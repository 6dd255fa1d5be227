"""A few element-wise pieces as single autograd nodes: fewer passes over memory than their plain form.

Each is tested against the plain formula, forward and backward. Shapes: E is the last axis.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class _Turn(torch.autograd.Function):
    """A complex product turns all pairs of neighbours at once; the backward pass turns the other way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, angle: Tensor) -> Tensor:
        ctx.save_for_backward(angle)
        return _turned(x, angle)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (angle,) = ctx.saved_tensors
        return _turned(gradients[0], angle.conj()), None


def _turned(x: Tensor, angle: Tensor) -> Tensor:
    x = x if x.stride(-1) == 1 else x.contiguous()  # the gradient of a sum is one number spread out
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * angle).flatten(-2)


def turn(x: Tensor, angle: Tensor) -> Tensor:
    """Turn the pairs of features (2i, 2i + 1) of x (..., E) by unit complex numbers (..., E/2)."""
    if x.dtype in (torch.bfloat16, torch.float16):  # there are no complex numbers that short
        return turn(x.float(), angle).to(x.dtype)
    turned: Tensor = _Turn.apply(x, angle.to(torch.complex128 if x.dtype == torch.float64 else torch.complex64))  # type: ignore[no-untyped-call]
    return turned


class _Level(torch.autograd.Function):
    """y = r x with r = 1 / sqrt(mean(x^2) + epsilon). The gradient loses its part along y: r (g - y mean(g y))."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, epsilon: float) -> Tensor:
        short = x.dtype in (torch.float16, torch.bfloat16)  # squares would overflow or lose their last digits
        length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32 if short else None)
        inverse = length.square_().div_(x.shape[-1]).add_(epsilon).rsqrt_()
        y = (x * inverse).to(x.dtype)
        ctx.save_for_backward(y, inverse)
        return y

    @staticmethod
    @once_differentiable  # a second derivative would be wrong, so it raises
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        y, inverse = ctx.saved_tensors
        along = (gradients[0] * y).sum(-1, keepdim=True).mul_(-1 / y.shape[-1])
        return torch.addcmul(gradients[0], y, along).mul_(inverse.to(y.dtype)), None


def level(x: Tensor, epsilon: float = 1e-6) -> Tensor:
    """Bring each vector (..., E) to root mean square 1."""
    result: Tensor = _Level.apply(x, epsilon)  # type: ignore[no-untyped-call]
    return result


class _SquaredReLU(torch.autograd.Function):
    """max(x, 0)^2, whose derivative is 2 max(x, 0)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        positive = x.relu()
        ctx.save_for_backward(positive)
        return positive * positive

    @staticmethod
    @once_differentiable  # a second derivative would be wrong, so it raises
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (positive,) = ctx.saved_tensors
        return torch.mul(gradients[0], positive).mul_(2)


def squared_relu(x: Tensor) -> Tensor:
    """max(x, 0)^2: Primer (https://arxiv.org/abs/2109.08668)."""
    result: Tensor = _SquaredReLU.apply(x)  # type: ignore[no-untyped-call]
    return result
