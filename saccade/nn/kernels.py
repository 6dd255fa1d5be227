"""Element-wise operations as single autograd nodes: fewer passes over memory than their plain form.

Each is tested against the plain formula, forward and backward. Shapes: E is the last axis.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from saccade.nn.context import ContextValue
from saccade.nn.linear import linear

_twice_differentiable = ContextValue("twice differentiable", False)


@contextmanager
def twice_differentiable() -> Iterator[None]:
    """Use plain operations in this context, also instead of fused attention, since they have second derivatives.

    For a gradient penalty, run the forward pass and `autograd.grad(..., create_graph=True)` inside the block.
    """
    with _twice_differentiable.set(True):
        yield


def needs_second_derivative() -> bool:
    """Whether this context needs operations with a second derivative."""
    return _twice_differentiable.get()


def _plain_operations() -> bool:
    """Whether to compute without these kernels: for a second derivative, or as a compiler fuses operations itself."""
    return torch.compiler.is_compiling() or needs_second_derivative()


class _RotatePairs(torch.autograd.Function):
    """A complex product rotates all pairs of features at once; the backward pass rotates them back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, angle: Tensor) -> Tensor:
        ctx.save_for_backward(angle)
        return _rotated(x, angle)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (angle,) = ctx.saved_tensors
        return _rotated(grads[0], angle.conj()), None


def _rotated(x: Tensor, angle: Tensor) -> Tensor:
    x = x if x.stride(-1) == 1 else x.contiguous()  # the gradient of a sum is an expanded scalar
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * angle).flatten(-2)


_rotate_pairs: Callable[..., Tensor] = _RotatePairs.apply


def rotate_pairs(x: Tensor, angle: Tensor) -> Tensor:
    """Multiply the pairs of features (2i, 2i + 1) of x (..., E), as complex numbers, by those of `angle` (..., E/2)."""
    if x.dtype in (torch.bfloat16, torch.float16):  # torch has no complex numbers of half precision
        return rotate_pairs(x.float(), angle).to(x.dtype)
    angle = angle.to(torch.complex128 if x.dtype == torch.float64 else torch.complex64)
    return _rotated(x, angle) if _plain_operations() else _rotate_pairs(x, angle)


class _RMSNormalize(torch.autograd.Function):
    """y = r x with r = 1 / sqrt(mean(x^2) + epsilon). The gradient loses its component along y: r (g - y mean(g y))."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, epsilon: float) -> Tensor:
        half = x.dtype in (torch.float16, torch.bfloat16)  # squares would overflow or lose precision
        length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32 if half else None)
        inverse = length.square_().div_(x.shape[-1]).add_(epsilon).rsqrt_()
        y = (x * inverse).to(x.dtype)
        ctx.save_for_backward(y, inverse)
        return y

    @staticmethod
    @once_differentiable  # a second derivative would be wrong, so it raises
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        y, inverse = ctx.saved_tensors
        along = (grads[0] * y).sum(-1, keepdim=True).mul_(-1 / y.shape[-1])
        return torch.addcmul(grads[0], y, along).mul_(inverse.to(y.dtype)), None


_rms_normalize: Callable[..., Tensor] = _RMSNormalize.apply


def rms_normalize(x: Tensor, epsilon: float = 1e-6) -> Tensor:
    """Scale each vector (..., E) to root mean square 1."""
    if _plain_operations():
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        return (x * (wide.square().mean(-1, keepdim=True) + epsilon).rsqrt()).to(x.dtype)
    return _rms_normalize(x, epsilon)


class _SquaredReLU(torch.autograd.Function):
    """max(x, 0)^2, whose derivative is 2 max(x, 0)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        positive = x.relu()
        ctx.save_for_backward(positive)
        return positive * positive

    @staticmethod
    @once_differentiable  # a second derivative would be wrong, so it raises
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (positive,) = ctx.saved_tensors
        return torch.mul(grads[0], positive).mul_(2)


_squared_relu: Callable[..., Tensor] = _SquaredReLU.apply


def squared_relu(x: Tensor) -> Tensor:
    """max(x, 0)^2: Primer (https://arxiv.org/abs/2109.08668)."""
    return x.relu().square() if _plain_operations() else _squared_relu(x)


class _Dropout(torch.autograd.Function):
    """x keep / (1 - p). The mask is drawn from 16 random bits per value, four values from one draw."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        dropped = round(p * 2**16)
        keep = (draws.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - 2**15).view(torch.uint8)
        ctx.save_for_backward(keep)
        ctx.scale = 2**16 / (2**16 - dropped)
        return (x * keep).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return (grads[0] * keep) * ctx.scale, None


_dropout: Callable[..., Tensor] = _Dropout.apply


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Zero each value with probability p and scale the others by 1 / (1 - p); on a CPU p is rounded to 1/65536."""
    if not training or not p:
        return x
    if x.device.type != "cpu" or p * 2**16 >= 2**16 - 1 or torch.compiler.is_compiling():
        return F.dropout(x, p)
    return _dropout(x, p)


class _TokenLoss(torch.autograd.Function):
    """Logits, softmax and gradients of a few rows at a time, while they are in the processor's cache.

    log sum exp = largest logit - log of its softmax, which is never small. The gradient of the logits is
    softmax - (1 - s) onehot - s / V for label smoothing s. With R-Drop (alpha > 0) both passes of a token are in one
    block.
    """

    ROWS = 128

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, labels: Tensor, smoothing: float, alpha: float) -> Tensor:
        passes = 2 if alpha else 1
        count, total = len(features), features.new_zeros((), dtype=torch.float64)
        needs_grad = any(ctx.needs_input_grad)
        grad, weight_grad = torch.empty_like(features), torch.zeros_like(weight) if needs_grad else weight
        inputs, grads = (part.unflatten(0, (passes, -1)) for part in (features, grad))  # (1 or 2, N, D)
        labels = labels.unflatten(0, (passes, -1))
        for first in range(0, count // passes, _TokenLoss.ROWS // passes):
            rows = slice(first, first + _TokenLoss.ROWS // passes)
            x, label = inputs[:, rows].flatten(0, 1), labels[:, rows].reshape(-1, 1)
            logits = linear(x, weight)  # (rows, V)
            top, at = logits.max(1, keepdim=True)
            probs = logits.softmax(1)
            target = (1 - smoothing) * logits.gather(1, label)
            if smoothing:
                target = target + smoothing * logits.mean(1, keepdim=True)
            log_sum_exp = top - probs.gather(1, at).log()
            total += (log_sum_exp - target).sum()
            kl_grad = None
            if alpha:
                kl, kl_grad = _symmetric_kl(logits - log_sum_exp, probs)
                total += alpha / 2 * kl
            if needs_grad:
                probs.scatter_add_(1, label, torch.full_like(target, smoothing - 1))
                if smoothing:
                    probs.sub_(smoothing / len(weight))
                if kl_grad is not None:
                    probs.add_(kl_grad, alpha=alpha / 2)
                grads[:, rows] = linear(probs, weight.t()).unflatten(0, (passes, -1))
                weight_grad.addmm_(probs.t(), x)
        ctx.save_for_backward(grad, weight_grad)
        ctx.count = count
        return (total / count).to(features.dtype)

    @staticmethod
    @once_differentiable  # a second derivative would be wrong, so it raises
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        grad, weight_grad = ctx.saved_tensors
        scale = grads[0] / ctx.count
        return grad * scale, weight_grad * scale, None, None, None


def _symmetric_kl(log_probs: Tensor, probs: Tensor) -> tuple[Tensor, Tensor]:
    """Return KL(p, q) + KL(q, p) of the two halves of the rows, summed, and its gradient for the logits (rows, V)."""
    (log_p, log_q), (p, q) = log_probs.chunk(2), probs.chunk(2)
    log_ratio, difference = log_p - log_q, p - q
    forward, backward = ((part * log_ratio).sum(1, keepdim=True) for part in (p, q))  # KL(p, q) and -KL(q, p)
    grad = torch.cat((p * (log_ratio - forward) + difference, q * (backward - log_ratio) - difference))
    return (forward - backward).sum(), grad


_token_loss: Callable[..., Tensor] = _TokenLoss.apply


def token_loss(
    features: Tensor, weight: Tensor, labels: Tensor, smoothing: float = 0.0, bias: Tensor | None = None
) -> Tensor:
    """Mean cross-entropy of features (N, D) through an output layer (V, D).

    Without a bias the logits (N, V) are never all in memory.
    """
    if bias is not None or _plain(features, weight):
        return F.cross_entropy(F.linear(features, weight, bias), labels, label_smoothing=smoothing)
    return _token_loss(features, weight, labels, smoothing, 0.0)


def rdrop_loss(features: Tensor, weight: Tensor, labels: Tensor, smoothing: float, alpha: float) -> Tensor:
    """Mean cross-entropy of two forward passes, concatenated, plus the KL divergence between them.

    R-Drop, https://arxiv.org/abs/2106.14448: the passes differ in their dropout.
    """
    if _plain(features, weight):
        logits = F.linear(features, weight)  # (2 N, V)
        log_p, log_q = logits.log_softmax(1).chunk(2)
        kl = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(1).mean()  # KL(p, q) + KL(q, p)
        return F.cross_entropy(logits, labels, label_smoothing=smoothing) + alpha / 4 * kl
    return _token_loss(features, weight, labels, smoothing, alpha)


def _plain(features: Tensor, weight: Tensor) -> bool:
    """Whether to use torch's own operations: not on a CPU, in half precision, compiled, or differentiated twice."""
    half = torch.is_autocast_enabled(features.device.type) or features.dtype != weight.dtype
    return half or features.device.type != "cpu" or not len(features) or _plain_operations()
