"""Encoder of a line of text: convolutions that keep the horizontal resolution, then a Transformer over the columns.

CRNN (https://arxiv.org/abs/1507.05717), with self-attention instead of an LSTM.
Shapes: B rows, H height, W width, C channels, N columns, D width.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.models.vision.encoder import VisionEncoder
from saccade.nn.ablation import patch_embeddings
from saccade.nn.layers import RMSNorm, initialize_zero_residual
from saccade.nn.linear import Linear
from saccade.nn.masks import Padding
from saccade.nn.transformer import Transformer, TransformerConfig

STRIDE = 4  # pixels of a column
NOISE = 4.0  # standard deviation, of 255 grey levels, that is not amplified


@dataclass(frozen=True)
class LineConfig:
    """Shape of the convolutions and of the Transformer."""

    widths: tuple[int, ...] = (16, 32, 64, 128)
    """channels of each stage; every stage halves the height, the first two also the width"""
    transformer: TransformerConfig = field(
        default_factory=lambda: TransformerConfig(dim=128, depth=2, heads=4, hidden=256, position="sinusoidal")
    )

    def __post_init__(self) -> None:
        if len(self.widths) < 2 or min(self.widths) < 1:
            raise ValueError(f"widths must be at least two numbers of channels, but is {list(self.widths)}")


class LineConvolution(nn.Module):
    """Convolution, batch norm, GELU; 0 in columns that are not real.

    Not a norm of each position: it would scale the noise of an empty background to the size of a letter.
    """

    def __init__(self, inputs: int, outputs: int, stride: tuple[int, int] = (1, 1)) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        """Return features (B, C, H', W') of (B, inputs, H, W), of which the columns `real` (B, 1, 1, W') are real."""
        return F.gelu(self.norm(self.convolution(x))) * real


class LineStage(nn.Module):
    """A convolution with a stride, then one with a residual connection."""

    def __init__(self, inputs: int, outputs: int, stride: tuple[int, int]) -> None:
        super().__init__()
        self.reduce = LineConvolution(inputs, outputs, stride)
        self.refine = LineConvolution(outputs, outputs)

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        x = self.reduce(x, real)
        result: Tensor = x + self.refine(x, real)
        return result


def standardize(pixels: Tensor, real: Tensor) -> Tensor:
    """Return grey levels (B, 1, H, W) of pixels (B, 3, H, W) with mean 0 and variance 1 over the real columns.

    What covers the smaller part of a line, the text, is positive, be it dark or light.
    """
    grey = pixels.mean(1, keepdim=True)
    count = real.sum(3, keepdim=True) * grey.shape[2]  # (B, 1, 1, 1)
    x = (grey - (grey * real).sum((2, 3), keepdim=True) / count) * real
    x = x / (x.square().sum((2, 3), keepdim=True) / count + NOISE**2).sqrt()
    return x * (x**3).sum((2, 3), keepdim=True).sign()


class LineEncoder(VisionEncoder):
    """Pixels of a line of text to one vector for each column."""

    def __init__(self, config: LineConfig, height: int) -> None:
        super().__init__()
        depth, reduction = len(config.widths), 2 ** len(config.widths)
        if height % reduction:
            raise ValueError(f"height must be a multiple of {reduction} for {depth} stages, but is {height}")
        self.config, self.dim = config, config.transformer.dim
        inputs = (1, *config.widths[:-1])
        self.strides = [(2, 2), (2, 2), *[(2, 1)] * (depth - 2)]
        self.stages = nn.ModuleList(map(LineStage, inputs, config.widths, self.strides))
        self.columns = Linear(config.widths[-1] * (height // reduction), self.dim)
        self.norm = RMSNorm(self.dim, gain=False)
        self.encoder = Transformer(config.transformer)
        for part in (self.columns, self.encoder):
            initialize_zero_residual(part)

    def forward(self, pixels: Tensor, *, keep: Tensor | None = None, states: list[Tensor] | None = None) -> Tensor:
        """Return the vectors (B, N, D) of uint8 pixels (B, 3, H, W), of which the columns `keep` (B, N) are real."""
        keep = pixels.new_ones(len(pixels), pixels.shape[3] // STRIDE).bool() if keep is None else keep
        real = keep[:, None, None].repeat_interleave(STRIDE, dim=3)  # (B, 1, 1, W)
        x = standardize(pixels.to(self.columns.weight.dtype), real).contiguous(memory_format=torch.channels_last)
        for stage, (_, stride) in zip(self.stages, self.strides, strict=True):
            real = real[..., ::stride]
            x = stage(x, real)
        x = x.permute(0, 3, 2, 1).flatten(2)  # (B, N, H' C)
        x = patch_embeddings(self.norm(self.columns(x)))
        result: Tensor = self.encoder(x, mask=Padding(keep), states=states)
        return result

    def grid(self, height: int, width: int) -> tuple[int, int]:
        return 1, width // STRIDE
