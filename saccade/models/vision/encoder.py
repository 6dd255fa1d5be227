"""Vision encoders: uint8 pixels to one vector for each cell of a grid.

Shapes: B rows, H height, W width, R grid rows, C grid columns, E extra positions before the grid, D width.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from saccade.nn.ablation import patch_embeddings

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class VisionEncoder(nn.Module, abc.ABC):
    """An encoder of images; what reads its output knows the width, the grid and the extra positions only."""

    name: str
    """of the architecture, as in `architectures.ENCODERS`"""
    config: Any
    """shape of the network"""
    dim: int
    """width of the output vectors"""
    extra: tuple[str, ...] = ()
    """names of the positions before those of the grid, such as ("class",)"""
    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float] = IMAGENET_MEAN, std: Sequence[float] = IMAGENET_STD) -> None:
        """Set the mean and the standard deviation of each colour of the training pictures, as parts of 1."""
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32))  # (3,)
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32))  # (3,)

    def normalize(self, pixels: Tensor) -> Tensor:
        """Return uint8 pixels (B, 3, H, W) as numbers of mean 0 and variance 1 in the type of the weights."""
        return normalize_pixels(pixels, self.mean, self.std)

    def adapt(self, pixels: Tensor) -> list[str]:
        """Set the weights that are computed from training images (N, 3, H, W), not learned; return their names."""
        scaled = pixels.double() / 255
        self.mean.copy_(scaled.mean((0, 2, 3)))
        self.std.copy_(scaled.std((0, 2, 3), correction=0).clamp_min(0.01))
        return ["mean", "std"]

    @abc.abstractmethod
    def forward(self, pixels: Tensor, *, states: list[Tensor] | None = None) -> Tensor:
        """Return the vectors (B, E + R C, D) of uint8 pixels (B, 3, H, W), the extra positions first.

        `states` is filled with the input of the first layer and the output of each.
        """

    @abc.abstractmethod
    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Return the rows and columns (R, C) of the grid over an image of this size."""

    def read(self, source: Tensor, keep: Tensor) -> Tensor:
        """Return the vectors (B, N, D) of uint8 pixels; vectors of a frozen encoder, computed before, are returned."""
        if source.dtype != torch.uint8:
            return patch_embeddings(source.to(self.mean.dtype))
        vectors: Tensor = self(source)
        return vectors

    @property
    def pooled_dim(self) -> int:
        """Width of the vector of a whole image."""
        return self.dim

    def vectors(self, pixels: Tensor, *, states: list[Tensor] | None = None) -> Tensor:
        """Return one vector for each image: (B, 3, H, W) -> (B, pooled_dim)."""
        return self.pool(self(pixels, states=states))

    def pool(self, features: Tensor) -> Tensor:
        """Return one vector for each image, of the class position or else the mean of the grid: (B, pooled_dim)."""
        return features[:, 0] if self.extra else features.mean(1)


def normalize_pixels(pixels: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Return uint8 pixels (B, 3, H, W) as numbers of mean 0 and variance 1 in the type of `mean` and `std` (3,)."""

    def spread(values: Tensor) -> Tensor:
        # In the memory order of an image: broadcasting 3 numbers over its pixels takes ten times as long.
        return torch.empty_like(pixels[:1], dtype=mean.dtype).copy_(values[:, None, None])  # (1, 3, H, W)

    return pixels.to(mean.dtype, copy=True).mul_(spread(1 / (255 * std))).sub_(spread(mean / std))
