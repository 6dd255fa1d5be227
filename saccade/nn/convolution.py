"""1-D convolution over a sequence: the receptive field grows with the depth.

Shapes: B rows, T tokens, D width.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.nn.cache import LayerCache
from saccade.nn.kernels import dropout


class Convolution(nn.Module):
    """1-D convolution with a gated linear unit (https://arxiv.org/abs/1705.03122).

    Centred for an encoder, with an odd kernel size; causal for a decoder.
    """

    def __init__(self, dim: int, kernel_size: int, *, causal: bool = False) -> None:
        super().__init__()
        if kernel_size % 2 == 0 and not causal:
            raise ValueError(f"kernel_size must be odd for a centred convolution, but is {kernel_size}")
        self.left = kernel_size - 1 if causal else kernel_size // 2
        self.right = 0 if causal else kernel_size // 2
        self.filter = nn.Conv1d(dim, 2 * dim, kernel_size)

    def forward(self, x: Tensor, *, cache: LayerCache | None = None) -> Tensor:
        """Convolve (B, T, D) -> (B, T, D); with a cache a causal one continues after the tokens of earlier calls."""
        padded = F.pad(x.transpose(1, 2), (self.left, self.right))  # (B, D, T + k - 1)
        if cache is not None:
            if cache.state:
                padded = torch.cat((cache.state[0], padded[:, :, self.left :]), dim=2)
            cache.state = (padded[:, :, padded.shape[2] - self.left :],)
        return F.glu(self.filter(padded), dim=1).transpose(1, 2)  # (B, T, D)


class ConvolutionStack(nn.Module):
    """Residual convolutions: `depth` layers of kernel size k have a receptive field of 1 + depth (k - 1) tokens."""

    def __init__(self, dim: int, depth: int, kernel_size: int, *, causal: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.layers = nn.ModuleList(Convolution(dim, kernel_size, causal=causal) for _ in range(depth))
        self.receptive_field = 1 + depth * (kernel_size - 1)

    def forward(self, x: Tensor, *, keep: Tensor | None = None) -> Tensor:
        """Apply all layers: (B, T, D) -> (B, T, D); padding (`keep` False) is set to zero before every layer."""
        for layer in self.layers:
            if keep is not None:
                x = x * keep[..., None]
            x = (x + layer(dropout(x, self.dropout, self.training))) * math.sqrt(0.5)  # preserves the variance
        return x
