"""Small convolutional classifier whose pooled features compare sets of images with each other.

Shapes: B rows, C channels, H x W pixels, D features, L labels.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.nn.linear import Linear

WIDTHS = (24, 48, 64)


class SmallCNN(nn.Module):
    """Strided convolutions, the mean over all cells, and an output for each label."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, channels: int, labels: int) -> None:
        super().__init__()
        pairs = zip((channels, *WIDTHS), WIDTHS, strict=False)
        self.convolutions = nn.ModuleList(nn.Conv2d(before, after, 3, 2, 1) for before, after in pairs)
        self.head = Linear(WIDTHS[-1], labels)
        self.register_buffer("mean", torch.zeros(WIDTHS[-1]))
        self.register_buffer("deviation", torch.ones(WIDTHS[-1]))

    def pool(self, images: Tensor) -> Tensor:
        """Return the vectors (B, D) of images (B, C, H, W) with values from -1 to 1."""
        x = images
        for convolution in self.convolutions:
            x = F.gelu(convolution(x))
        return x.mean((2, 3))

    def features(self, images: Tensor) -> Tensor:
        """Return the vectors (B, D) with mean 0 and variance 1 over the training images."""
        return (self.pool(images) - self.mean) / self.deviation

    def forward(self, images: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy of labels (B,)."""
        return F.cross_entropy(self.head(self.pool(images)), targets)
