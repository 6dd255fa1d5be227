"""A few element-wise pieces as single autograd nodes: fewer passes over memory than their plain form.

Each is tested against the plain formula, forward and backward. Shapes: E is the last axis.
"""

from typing import Any

import torch
import torch.nn.functional as F
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


class _Dropout(torch.autograd.Function):
    """x keep / share kept. The choice is made by 16 random bits a value, four values to one draw."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, share: float) -> Tensor:
        draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        dropped = round(share * 2**16)
        keep = (draws.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - 2**15).view(torch.uint8)
        ctx.save_for_backward(keep)
        ctx.scale = 2**16 / (2**16 - dropped)
        return (x * keep).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return (gradients[0] * keep) * ctx.scale, None


def dropout(x: Tensor, share: float, training: bool) -> Tensor:
    """Put this share of the values to 0 and stretch the rest, so that the mean stays; a CPU counts in 1/65536."""
    if not training or not share:
        return x
    if x.device.type != "cpu" or share * 2**16 >= 2**16 - 1:
        return F.dropout(x, share)
    result: Tensor = _Dropout.apply(x, share)  # type: ignore[no-untyped-call]
    return result


class _TokenLoss(torch.autograd.Function):
    """Some rows at a time: logits, softmax and both gradients while they are in the processor's cache.

    log sum exp = largest logit - log of its softmax, which is never small. The gradient of the logits is
    softmax - (1 - s) onehot - s / V for a smoothing s. With a pull, the two readings of a token are in one block.
    """

    ROWS = 128

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, labels: Tensor, smoothing: float, pull: float) -> Tensor:
        readings = 2 if pull else 1
        count, total = len(features), features.new_zeros((), dtype=torch.float64)
        learns = any(ctx.needs_input_grad)
        slope, weight_slope = torch.empty_like(features), torch.zeros_like(weight) if learns else weight
        inputs, slopes = (part.unflatten(0, (readings, -1)) for part in (features, slope))  # (1 or 2, N, D)
        labels = labels.unflatten(0, (readings, -1))
        for first in range(0, count // readings, _TokenLoss.ROWS // readings):
            rows = slice(first, first + _TokenLoss.ROWS // readings)
            x, label = inputs[:, rows].flatten(0, 1), labels[:, rows].reshape(-1, 1)
            logits = x @ weight.t()  # (rows, V)
            top, at = logits.max(1, keepdim=True)
            chances = logits.softmax(1)
            fit = (1 - smoothing) * logits.gather(1, label)
            if smoothing:
                fit = fit + smoothing * logits.mean(1, keepdim=True)
            whole = top - chances.gather(1, at).log()
            total += (whole - fit).sum()
            pulled = None
            if pull:
                apart, pulled = _apart(logits - whole, chances)
                total += pull / 2 * apart
            if learns:
                chances.scatter_add_(1, label, torch.full_like(fit, smoothing - 1))
                if smoothing:
                    chances.sub_(smoothing / len(weight))
                if pulled is not None:
                    chances.add_(pulled, alpha=pull / 2)
                slopes[:, rows] = (chances @ weight).unflatten(0, (readings, -1))
                weight_slope.addmm_(chances.t(), x)
        ctx.save_for_backward(slope, weight_slope)
        ctx.count = count
        return (total / count).to(features.dtype)

    @staticmethod
    @once_differentiable  # a second derivative would be wrong, so it raises
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        slope, weight_slope = ctx.saved_tensors
        share = gradients[0] / ctx.count
        return slope * share, weight_slope * share, None, None, None


def _apart(logs: Tensor, chances: Tensor) -> tuple[Tensor, Tensor]:
    """Sum of both Kullback-Leibler divergences of two halves of rows, and its gradient for the logits (rows, V)."""
    (one, other), (p, q) = logs.chunk(2), chances.chunk(2)
    further, more = one - other, p - q
    there, back = ((part * further).sum(1, keepdim=True) for part in (p, q))  # KL(p, q) and -KL(q, p)
    return (there - back).sum(), torch.cat((p * (further - there) + more, q * (back - further) - more))


def token_loss(
    features: Tensor, weight: Tensor, labels: Tensor, smoothing: float = 0.0, bias: Tensor | None = None
) -> Tensor:
    """Mean cross-entropy of features (N, D) through an output layer (V, D).

    Without a bias the logits (N, V) are never all there.
    """
    if bias is not None or _plain(features, weight):
        return F.cross_entropy(F.linear(features, weight, bias), labels, label_smoothing=smoothing)
    result: Tensor = _TokenLoss.apply(features, weight, labels, smoothing, 0.0)  # type: ignore[no-untyped-call]
    return result


def consistent_loss(features: Tensor, weight: Tensor, labels: Tensor, smoothing: float, pull: float) -> Tensor:
    """Mean cross-entropy of two readings of the same tokens, one half after the other, and how far they are apart.

    R-Drop, https://arxiv.org/abs/2106.14448: dropout makes the readings differ; `pull` is the alpha of that paper.
    """
    if _plain(features, weight):
        logits = F.linear(features, weight)  # (2 N, V)
        one, other = logits.log_softmax(1).chunk(2)
        apart = ((one.exp() - other.exp()) * (one - other)).sum(1).mean()  # both Kullback-Leibler divergences
        return F.cross_entropy(logits, labels, label_smoothing=smoothing) + pull / 4 * apart
    result: Tensor = _TokenLoss.apply(features, weight, labels, smoothing, pull)  # type: ignore[no-untyped-call]
    return result


def _plain(features: Tensor, weight: Tensor) -> bool:
    """Whether torch's own layers do it: elsewhere than on a CPU, or in half precision."""
    short = torch.is_autocast_enabled(features.device.type) or features.dtype != weight.dtype
    return short or features.device.type != "cpu" or not len(features)
