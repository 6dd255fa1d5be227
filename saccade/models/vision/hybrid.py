"""Convolutions, then a Transformer over the cells of their output.

ViT, section 3.1, "Hybrid architecture" (https://arxiv.org/abs/2010.11929). Shapes: B rows, R x C cells, D width.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from saccade.models.vision.encoder import VisionEncoder
from saccade.models.vision.resnet import ResNet, ResNetConfig
from saccade.nn.ablation import patch_embeddings
from saccade.nn.layers import initialize_zero_residual
from saccade.nn.linear import Linear
from saccade.nn.transformer import Transformer, TransformerConfig


@dataclass(frozen=True)
class HybridConfig:
    """Shape of the convolutions and of the Transformer."""

    convolution: ResNetConfig = field(default_factory=lambda: ResNetConfig(widths=(32, 128)))
    transformer: TransformerConfig = field(
        default_factory=lambda: TransformerConfig(dim=128, depth=2, heads=4, hidden=256, position="learned")
    )


class Hybrid(VisionEncoder):
    """A Transformer whose tokens are the cells of a convolutional network's output."""

    def __init__(self, config: HybridConfig, size: int = 32) -> None:
        super().__init__()
        self.config, self.dim, self.name = config, config.transformer.dim, "hybrid"
        self.convolution = ResNet(config.convolution, attention=False, size=size)
        self.project = Linear(self.convolution.dim, self.dim)
        self.encoder = Transformer(config.transformer)
        for part in (self.project, self.encoder):
            initialize_zero_residual(part)

    def forward(self, pixels: Tensor, *, states: list[Tensor] | None = None) -> Tensor:
        x = patch_embeddings(self.project(self.convolution.cells(self.normalize(pixels))))  # (B, R C, D)
        result: Tensor = self.encoder(x, states=states)
        return result

    def adapt(self, pixels: Tensor) -> list[str]:
        return [*super().adapt(pixels), *(f"convolution.{name}" for name in self.convolution.adapt(pixels))]

    def grid(self, height: int, width: int) -> tuple[int, int]:
        return self.convolution.grid(height, width)
