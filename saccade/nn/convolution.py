"""1-D convolution over a sequence: each layer sees a few neighbours, higher layers see further.

Shapes: B rows, T tokens, D width.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.nn.cache import LayerCache
from saccade.nn.kernels import dropout


class Convolution(nn.Module):
    """Convolution of odd width k with a gated linear unit (https://arxiv.org/abs/1705.03122).

    Centred for an encoder; causal (sees only the past) for a decoder.
    """

    def __init__(self, dim: int, width: int, *, causal: bool = False) -> None:
        super().__init__()
        if width % 2 == 0 and not causal:
            raise ValueError(f"width must be odd for a centred convolution, but is {width}")
        self.left = width - 1 if causal else width // 2
        self.right = 0 if causal else width // 2
        self.filter = nn.Conv1d(dim, 2 * dim, width)

    def forward(self, x: Tensor, *, cache: LayerCache | None = None) -> Tensor:
        """(B, T, D) -> (B, T, D); with a cache a causal one goes on after the tokens of earlier calls."""
        padded = F.pad(x.transpose(1, 2), (self.left, self.right))  # (B, D, T + k - 1)
        if cache is not None:
            if cache.state:
                padded = torch.cat((cache.state[0], padded[:, :, self.left :]), dim=2)
            cache.state = (padded[:, :, padded.shape[2] - self.left :],)
        return F.glu(self.filter(padded), dim=1).transpose(1, 2)  # (B, T, D)


class ConvolutionStack(nn.Module):
    """A stack of residual convolutions: `depth` layers of width k see 1 + depth (k - 1) tokens."""

    def __init__(self, dim: int, depth: int, width: int, *, causal: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.layers = nn.ModuleList(Convolution(dim, width, causal=causal) for _ in range(depth))
        self.receptive_field = 1 + depth * (width - 1)

    def forward(self, x: Tensor, *, keep: Tensor | None = None) -> Tensor:
        """(B, T, D) -> (B, T, D); padding (`keep` False) counts as zeros at every layer, as beyond the edge."""
        for layer in self.layers:
            if keep is not None:
                x = x * keep[..., None]
            x = (x + layer(dropout(x, self.dropout, self.training))) * math.sqrt(0.5)  # keeps the variance
        return x
