"""Transformer layers over the output of another image encoder, and attention pooling.

Shapes: B rows, R x C cells, E extra positions, D width.
"""

from __future__ import annotations

import math

from torch import Tensor, nn

from saccade.models.vision.encoder import VisionEncoder
from saccade.nn.attention import Attention
from saccade.nn.kernels import dropout
from saccade.nn.layers import RMSNorm, initialize_zero_residual
from saccade.nn.linear import Linear
from saccade.nn.positions import SinusoidalGrid
from saccade.nn.transformer import Transformer, TransformerConfig, make_score


class GridTransformer(VisionEncoder):
    """A Transformer on a backbone, which may be frozen; one vector for an image by the mean, which attends to the grid.

    pool(x) = m + attention(m, x), with the mean m of the positions x.
    """

    def __init__(self, backbone: VisionEncoder, config: TransformerConfig) -> None:
        super().__init__(backbone.mean.tolist(), backbone.std.tolist())
        if config.dim % 4:
            raise ValueError(f"dim must be a multiple of 4 for positions on a grid, but is {config.dim}")
        self.config, self.dim, self.extra = config, config.dim, backbone.extra
        self.backbone = backbone
        self.project = Linear(backbone.dim, config.dim)
        self.norm = RMSNorm(config.dim, gain=False)
        self.position = SinusoidalGrid(config.dim)
        self.encoder = Transformer(config)
        self.attention_pool = Attention(
            config.dim, config.heads, memory_dim=config.dim, score=make_score(config), bias=config.bias
        )
        for module in (self.project, self.encoder, self.attention_pool):
            initialize_zero_residual(module)

    def grid(self, height: int, width: int) -> tuple[int, int]:
        return self.backbone.grid(height, width)

    def forward(self, pixels: Tensor, *, states: list[Tensor] | None = None) -> Tensor:
        """Return the vectors (B, E + R C, D) of uint8 pixels (B, 3, H, W).

        Instead of pixels, the vectors (B, E + R C, its width) of square images that the backbone has computed before.
        """
        extra = len(self.extra)
        if pixels.dim() == 4:
            rows, columns = self.grid(pixels.shape[-2], pixels.shape[-1])
            pixels = self.backbone(pixels)
        else:
            rows = columns = math.isqrt(pixels.shape[1] - extra)
        x = self.norm(self.project(pixels.to(self.project.weight.dtype)))
        place = self.position(rows, columns, x.device).to(x.dtype)
        x = x + nn.functional.pad(place, (0, 0, extra, 0))  # the extra positions have no place
        result: Tensor = self.encoder(dropout(x, self.config.dropout, self.training), states=states)
        return result

    def pool(self, features: Tensor) -> Tensor:
        mean = features.mean(1, keepdim=True)  # (B, 1, D)
        pooled: Tensor = mean + self.attention_pool(self.norm(mean), features)
        return pooled[:, 0]
