"""Encoder of a line of text: convolutions over its grey levels, then a Transformer over the columns.

Shapes: B rows, H height, W width, N columns, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from saccade.models.columns import STRIDE, ColumnConfig, ColumnLayers
from saccade.models.vision.encoder import VisionEncoder

NOISE = 4.0  # standard deviation, of 255 grey levels, that is not amplified


@dataclass(frozen=True)
class LineConfig(ColumnConfig):
    """Shape of the convolutions and of the Transformer."""


def standardize(pixels: Tensor, real: Tensor) -> Tensor:
    """Return grey levels (B, 1, H, W) of pixels (B, 3, H, W) with mean 0 and variance 1 over the real columns.

    What covers the smaller part of a line, the text, is positive, be it dark or light.
    """
    grey = pixels.mean(1, keepdim=True)
    count = real.sum(3, keepdim=True) * grey.shape[2]  # (B, 1, 1, 1)
    x = (grey - (grey * real).sum((2, 3), keepdim=True) / count) * real
    x = x / (x.square().sum((2, 3), keepdim=True) / count + NOISE**2).sqrt()
    return x * (x**3).sum((2, 3), keepdim=True).sign()


class LineEncoder(VisionEncoder, ColumnLayers):
    """Pixels of a line of text to one vector for each column."""

    def __init__(self, config: LineConfig, height: int) -> None:
        super().__init__()
        self.config, self.dim = config, config.transformer.dim
        self.add_columns(config, height)

    def forward(self, pixels: Tensor, *, keep: Tensor | None = None, states: list[Tensor] | None = None) -> Tensor:
        """Return the vectors (B, N, D) of uint8 pixels (B, 3, H, W), of which the columns `keep` (B, N) are real."""
        keep = pixels.new_ones(len(pixels), pixels.shape[3] // STRIDE).bool() if keep is None else keep
        real = keep[:, None, None].repeat_interleave(STRIDE, dim=3)  # (B, 1, 1, W)
        return self.encode_columns(standardize(pixels.to(self.columns.weight.dtype), real), keep, states)

    def read(self, source: Tensor, keep: Tensor) -> Tensor:
        vectors: Tensor = self(source, keep=keep)
        return vectors

    def grid(self, height: int, width: int) -> tuple[int, int]:
        return 1, width // STRIDE
