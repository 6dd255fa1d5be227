"""Small residual network, with or without self-attention between its convolutions.

Deep Residual Learning (https://arxiv.org/abs/1512.03385); self-attention: https://arxiv.org/abs/1805.08318.
Shapes: B rows, C channels, H x W cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.models.vision.encoder import VisionEncoder
from saccade.nn.ablation import patch_embeddings
from saccade.nn.attention import QKNorm
from saccade.nn.grid_attention import GridAttention

EPSILON = 5e-4  # added to the variance of a component


@dataclass(frozen=True)
class ResNetConfig:
    """Shape of a convolutional network."""

    widths: tuple[int, ...] = (32, 128, 128)
    """channels of each stage; every stage halves height and width"""
    stride: int = 0
    """step of the first convolution; 0: 1 for images of 32 pixels, 2 for 64, ..."""
    attention_stage: int = 2
    """with attention: the stage after which all cells attend to each other; counted from 1"""
    heads: int = 4
    """heads of this attention"""

    def __post_init__(self) -> None:
        if not self.widths or min(self.widths) < 1:
            raise ValueError(f"widths must be at least one number of channels, but is {list(self.widths)}")
        if self.stride < 0 or self.heads < 1:
            raise ValueError(f"stride must be 0 or more and heads at least 1, but are {self.stride} and {self.heads}")
        if not 1 <= self.attention_stage <= len(self.widths):
            raise ValueError(f"attention_stage must be 1 to {len(self.widths)}, but is {self.attention_stage}")


class WhitenedPatches(nn.Module):
    """Fixed filters whose outputs on the training images are uncorrelated and have variance 1, then GELU.

    They are the principal components of small patches and their negatives (https://arxiv.org/abs/2404.00498).
    """

    COMPONENTS = 12

    filters: Tensor

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.stride, self.size, self.channels = stride, 2 * stride, 2 * self.COMPONENTS
        patch = 3 * self.size**2
        filters = torch.eye(patch)[: self.COMPONENTS].view(-1, 3, self.size, self.size)
        self.register_buffer("filters", torch.cat((filters, -filters)))
        self.bias = nn.Parameter(torch.zeros(self.channels))

    def adapt(self, images: Tensor) -> None:
        """Compute the filters from normalized images (N, 3, H, W)."""
        patches = images.double().unfold(2, self.size, self.stride).unfold(3, self.size, self.stride)
        rows = patches.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(0, 2)  # (N H W, 3 size size)
        variances, components = torch.linalg.eigh(rows.t() @ rows / len(rows))
        largest = slice(-self.COMPONENTS, None)
        scaled = components[:, largest] / (variances[largest] + EPSILON).sqrt()
        filters = scaled.t().flip(0).reshape(-1, 3, self.size, self.size)
        self.filters.copy_(torch.cat((filters, -filters)))

    def forward(self, x: Tensor) -> Tensor:
        before = self.stride // 2
        x = F.pad(x, (before, self.stride - before) * 2)
        return F.gelu(F.conv2d(x, self.filters, self.bias, self.stride))  # (B, 24, H / stride, W / stride)


class ConvNorm(nn.Module):
    """Convolution, optional pooling, batch norm, GELU."""

    def __init__(self, inputs: int, outputs: int, *, pool: bool = False) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.pool = pool
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.convolution(x)
        if self.pool:
            x = F.max_pool2d(x, 2)
        return F.gelu(self.norm(x))


class Stage(nn.Module):
    """A convolution that halves the grid, then one with a residual connection."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.reduce = ConvNorm(inputs, outputs, pool=True)
        self.refine = ConvNorm(outputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.reduce(x)
        result: Tensor = x + self.refine(x)
        return result


class ResNet(VisionEncoder):
    """Stages of convolutions; with `attention`, one self-attention module between two of them."""

    def __init__(self, config: ResNetConfig, *, attention: bool, size: int = 32) -> None:
        """`size`: side of the training images, which decides the stride of the first convolution."""
        super().__init__()
        self.config, self.dim, self.name = config, config.widths[-1], "cnn+attention" if attention else "cnn"
        stride = config.stride or max(1, size // 32)
        self.reduction = stride * 2 ** len(config.widths)
        self.stem = WhitenedPatches(stride)
        inputs = self.stem.channels
        for number, width in enumerate(config.widths, 1):
            self.add_module(f"stage{number}", Stage(inputs, width))
            inputs = width
        self.attention: GridAttention | None = None
        if attention:
            channels = config.widths[config.attention_stage - 1]
            self.attention = GridAttention(channels, config.heads, score=QKNorm(channels // config.heads))

    def adapt(self, pixels: Tensor) -> list[str]:
        names = super().adapt(pixels)
        self.stem.adapt(self.normalize(pixels))
        return [*names, "stem.filters"]

    def forward(self, pixels: Tensor, *, states: list[Tensor] | None = None) -> Tensor:
        return patch_embeddings(self.cells(self.normalize(pixels)))

    def cells(self, x: Tensor) -> Tensor:
        """Return the vectors (B, R C, D) of normalized images (B, 3, H, W)."""
        x = self.stem(x.contiguous(memory_format=torch.channels_last))  # (B, C, H, W)
        for number in range(1, len(self.config.widths) + 1):
            x = self.get_submodule(f"stage{number}")(x)
            if self.attention is not None and number == self.config.attention_stage:
                x = self.attention(x)
        return x.permute(0, 2, 3, 1).flatten(1, 2)

    def pool(self, features: Tensor) -> Tensor:
        """Return the maximum of each feature: (B, R C, D) -> (B, D)."""
        return features.amax(1)

    def grid(self, height: int, width: int) -> tuple[int, int]:
        return height // self.reduction, width // self.reduction
