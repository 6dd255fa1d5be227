"""Columns: convolutions over a line of text or a spectrogram, then a Transformer over its columns.

CRNN (https://arxiv.org/abs/1507.05717), with self-attention instead of an LSTM.
Shapes: B rows, H height, W width, C channels, N columns, D width.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.nn.ablation import patch_embeddings
from saccade.nn.layers import RMSNorm, initialize_zero_residual
from saccade.nn.linear import Linear
from saccade.nn.masks import Padding
from saccade.nn.transformer import Transformer, TransformerConfig

STRIDE = 4  # pixels or frames of a column


@dataclass(frozen=True)
class ColumnConfig:
    """Shape of the convolutions and of the Transformer."""

    widths: tuple[int, ...] = (16, 32, 64, 128)
    """channels of each stage; every stage halves the height, the first two also the width"""
    transformer: TransformerConfig = field(
        default_factory=lambda: TransformerConfig(dim=128, depth=2, heads=4, hidden=256, position="sinusoidal")
    )

    def __post_init__(self) -> None:
        if len(self.widths) < 2 or min(self.widths) < 1:
            raise ValueError(f"widths must be at least two numbers of channels, but is {list(self.widths)}")


class ColumnConvolution(nn.Module):
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


class ColumnStage(nn.Module):
    """A convolution with a stride, then one with a residual connection."""

    def __init__(self, inputs: int, outputs: int, stride: tuple[int, int]) -> None:
        super().__init__()
        self.reduce = ColumnConvolution(inputs, outputs, stride)
        self.refine = ColumnConvolution(outputs, outputs)

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        x = self.reduce(x, real)
        result: Tensor = x + self.refine(x, real)
        return result


class ColumnLayers(nn.Module):
    """The layers that turn values (B, 1, H, W) into one vector for each column."""

    def add_columns(self, config: ColumnConfig, height: int) -> None:
        """Add the layers for values of this height."""
        depth, reduction = len(config.widths), 2 ** len(config.widths)
        if height % reduction:
            raise ValueError(f"height must be a multiple of {reduction} for {depth} stages, but is {height}")
        dim = config.transformer.dim
        inputs = (1, *config.widths[:-1])
        self.strides = [(2, 2), (2, 2), *[(2, 1)] * (depth - 2)]
        self.stages = nn.ModuleList(map(ColumnStage, inputs, config.widths, self.strides))
        self.columns = Linear(config.widths[-1] * (height // reduction), dim)
        self.norm = RMSNorm(dim, gain=False)
        self.encoder = Transformer(config.transformer)
        for part in (self.columns, self.encoder):
            initialize_zero_residual(part)

    def encode_columns(self, x: Tensor, keep: Tensor, states: list[Tensor] | None = None) -> Tensor:
        """Return the vectors (B, N, D) of values (B, 1, H, W), of which the columns `keep` (B, N) are real."""
        real = keep[:, None, None].repeat_interleave(STRIDE, dim=3)  # (B, 1, 1, W)
        x = x.contiguous(memory_format=torch.channels_last)
        for stage, (_, stride) in zip(self.stages, self.strides, strict=True):
            real = real[..., ::stride]
            x = stage(x, real)
        x = x.permute(0, 3, 2, 1).flatten(2)  # (B, N, H' C)
        x = patch_embeddings(self.norm(self.columns(x)))
        result: Tensor = self.encoder(x, mask=Padding(keep), states=states)
        return result
