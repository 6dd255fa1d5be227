"""pix2tex: the picture of a formula to LaTeX (https://github.com/lukas-blecher/LaTeX-OCR).

Residual convolutions, a Vision Transformer over their cells (ViT, section 3.1, "Hybrid architecture",
https://arxiv.org/abs/2010.11929) and a Transformer decoder. Shapes: B rows, H height, W width, R grid rows, C grid
columns, N = 1 + R C positions, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.models.seq2seq.interface import Memory, Vocabularies
from saccade.models.seq2seq.to_text import ToText
from saccade.models.seq2seq.transformer import EmbeddedConfig, TransformerDecoder
from saccade.models.vision.efficientnet import SameConvolution
from saccade.models.vision.encoder import VisionEncoder
from saccade.nn.ablation import patch_embeddings
from saccade.nn.linear import Linear
from saccade.nn.positions import LearnedGrid
from saccade.nn.transformer import Layer, Transformer, TransformerConfig

FORMULA_MEAN, FORMULA_STD = (0.7931,) * 3, (0.1738,) * 3
STEM = 64  # channels of the first convolution; the first stage has four times as many, each later one twice as many
GROUPS = 32  # of the norms


@dataclass(frozen=True)
class Pix2TexConfig:
    """Shape of the convolutions, of the encoder and of the decoder."""

    encoder: TransformerConfig
    decoder: EmbeddedConfig
    blocks: tuple[int, ...] = (2, 3, 7)
    """residual blocks of each stage of convolutions; every stage but the first halves the resolution"""
    height: int = 192
    """of the largest picture, which has a learned position for each of its cells"""
    width: int = 672
    vocabulary: int = 8000
    """rows of the output layer"""

    def __post_init__(self) -> None:
        if not self.blocks or min(self.blocks) < 1:
            raise ValueError(f"blocks must be at least 1 in each stage, but is {list(self.blocks)}")
        if self.height % self.cell or self.width % self.cell or min(self.height, self.width) < self.cell:
            size = f"{self.height} x {self.width}"
            raise ValueError(f"height and width must be multiples of a cell of {self.cell} pixels, but are {size}")
        if self.encoder.dim != self.decoder.dim:
            raise ValueError(
                f"the dim of encoder and decoder must be equal, but are {self.encoder.dim} and {self.decoder.dim}"
            )

    @property
    def cell(self) -> int:
        """Side of a cell in pixels."""
        return 2 << len(self.blocks)

    @property
    def depth(self) -> int:
        """Number of blocks and layers."""
        return sum(self.blocks) + self.encoder.depth + self.decoder.depth


class NormConvolution(nn.Module):
    """A convolution and a group norm; its weights were standardized when they were loaded."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.convolution = SameConvolution(inputs, outputs, kernel, stride, bias=False)
        self.norm = nn.GroupNorm(GROUPS, outputs)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(self.convolution(x))
        return out


class Bottleneck(nn.Module):
    """Residual block: fewer channels, 3 x 3, more channels (https://arxiv.org/abs/1512.03385)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        inner = outputs // 4
        self.reduce = NormConvolution(inputs, inner, 1)
        self.transform = NormConvolution(inner, inner, 3, stride)
        self.expand = NormConvolution(inner, outputs, 1)
        self.shortcut = NormConvolution(inputs, outputs, 1, stride) if inputs != outputs else None

    def forward(self, x: Tensor) -> Tensor:
        update = self.expand(F.relu(self.transform(F.relu(self.reduce(x)))))
        return F.relu(update + (x if self.shortcut is None else self.shortcut(x)))


class CornerGrid(LearnedGrid):
    """Learned embedding of the cells of the largest grid; a smaller one has those of its upper left corner."""

    def forward(self, rows: int, columns: int) -> Tensor:
        if rows > self.grid[0] or columns > self.grid[1]:
            most = f"{self.grid[0]} x {self.grid[1]}"
            raise ValueError(f"the grid must be at most {most} cells, but is {rows} x {columns}")
        extra, cells = self.table[: self.extra], self.table[self.extra :].unflatten(0, self.grid)
        return torch.cat((extra, cells[:rows, :columns].flatten(0, 1)))  # (E + R C, D)


class FormulaEncoder(VisionEncoder):
    """Grey levels of a formula to a class token and one vector for each cell."""

    name = "pix2tex"
    extra = ("class",)

    def __init__(
        self, config: Pix2TexConfig, mean: Sequence[float] = FORMULA_MEAN, std: Sequence[float] = FORMULA_STD
    ) -> None:
        super().__init__(mean, std)
        self.config, self.dim = config, config.encoder.dim
        self.stem = NormConvolution(1, STEM, 7, stride=2)
        widths = [STEM, *(4 * STEM << stage for stage in range(len(config.blocks)))]
        self.blocks = nn.Sequential()
        for stage, (inputs, outputs) in enumerate(pairwise(widths)):
            self.blocks.append(Bottleneck(inputs, outputs, stride=2 if stage else 1))
            self.blocks.extend(Bottleneck(outputs, outputs, 1) for _ in range(config.blocks[stage] - 1))
        self.project = nn.Conv2d(widths[-1], self.dim, 1)
        self.token = nn.Parameter(torch.zeros(1, self.dim))
        self.position = CornerGrid(self.grid(config.height, config.width), self.dim, extra=1)
        self.encoder = Transformer(config.encoder)

    def grid(self, height: int, width: int) -> tuple[int, int]:
        cell = self.config.cell
        if height % cell or width % cell or not height or not width:
            raise ValueError(f"an image must have sides that are multiples of {cell}, but is {height} x {width}")
        return height // cell, width // cell

    def forward(self, pixels: Tensor, *, states: list[Tensor] | None = None) -> Tensor:
        """Return the vectors (B, N, D) of uint8 pixels (B, 3, H, W), whose three colours are equal."""
        place = self.position(*self.grid(pixels.shape[-2], pixels.shape[-1]))
        x = F.relu(self.stem(self.normalize(pixels)[:, :1]))  # (B, 64, H/2, W/2)
        x = self.blocks(F.max_pool2d(F.pad(x, (0, 1, 0, 1)), 3, 2))  # (B, its width, R, C)
        x = self.project(x).flatten(2).transpose(1, 2)  # (B, R C, D)
        x = torch.cat((self.token.expand(len(x), -1, -1), x), dim=1) + place  # (B, N, D)
        result: Tensor = self.encoder(patch_embeddings(x), states=states)
        return result


def gated_layer(config: TransformerConfig) -> Layer:
    """Return a decoder layer whose attention outputs pass a gated linear unit; q, k and v have no bias.

    The gate of Attention on Attention (https://arxiv.org/abs/1908.06954), of the attended values alone.
    """
    layer = Layer(config, config.dim)
    assert layer.cross is not None
    for attention in (layer.self, layer.cross):
        inner = config.heads * config.head_width
        attention.add_module("out", nn.Sequential(Linear(inner, 2 * config.dim), nn.GLU()))
    for projection in (layer.self.qkv, layer.cross.q, layer.cross.kv):
        projection.register_parameter("bias", None)
    return layer


class Pix2Tex(ToText, TransformerDecoder):
    """Encoder of a formula and decoder of its LaTeX."""

    encoder: FormulaEncoder

    def __init__(self, config: Pix2TexConfig) -> None:
        super().__init__(config.decoder, Vocabularies(0, config.vocabulary))
        self.encoder = FormulaEncoder(config)
        self.decoder = Transformer(config.decoder, config.decoder.dim, make_layer=lambda _: gated_layer(config.decoder))

    def encode(self, source: Tensor, keep: Tensor) -> Memory:
        """Encode uint8 pixels (B, 3, H, W), each in its upper left part; `keep` (B, N): its class token and its cells.

        Every picture is encoded alone: its norms are computed over all of it, so that a margin would change them.
        """
        cell, grid = self.encoder.config.cell, self.encoder.grid(source.shape[-2], source.shape[-1])
        vectors = []
        for pixels, real in zip(source, keep[:, 1:].unflatten(1, grid), strict=True):
            rows, columns = int(real[:, 0].sum()), int(real[0].sum())
            vectors.append(self.encoder(pixels[None, :, : rows * cell, : columns * cell])[0])
        values = vectors[0].new_zeros(*keep.shape, self.encoder.dim)
        return Memory(values.masked_scatter(keep[..., None], torch.cat(vectors)), keep)

    def embed(self, table: nn.Embedding, ids: Tensor) -> Tensor:
        embedded: Tensor = patch_embeddings(table(ids))
        return embedded
