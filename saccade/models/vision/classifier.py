"""Image classifier: a vision encoder, pooling over its positions, and one output for each label.

Shapes: B rows, N positions, D width, L labels.
"""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from saccade.models.vision.encoder import VisionEncoder

Pooling = Literal["encoder", "first", "mean", "max"]


class ImageClassifier(nn.Module):
    """Logits of the labels of an image.

    pooling: the first position, the mean or the maximum of the grid, or as the encoder itself pools.
    """

    def __init__(self, encoder: VisionEncoder, labels: int, *, pooling: Pooling = "mean", bias: bool = True) -> None:
        super().__init__()
        self.encoder, self.pooling = encoder, pooling
        self.head = nn.Linear(encoder.pooled_dim if pooling == "encoder" else encoder.dim, labels, bias=bias)
        nn.init.zeros_(self.head.weight)
        if bias:
            nn.init.zeros_(self.head.bias)

    def pool(self, vectors: Tensor) -> Tensor:
        """Return one vector (B, D) for the vectors (B, N, D) of an image."""
        if self.pooling == "encoder":
            return self.encoder.pool(vectors)
        if self.pooling == "first":
            return vectors[:, 0]
        grid = vectors[:, len(self.encoder.extra) :]
        return grid.mean(1) if self.pooling == "mean" else grid.amax(1)

    def forward(
        self,
        pixels: Tensor,
        targets: Tensor | None = None,
        *,
        smoothing: float = 0.0,
        states: list[Tensor] | None = None,
    ) -> Tensor:
        """Return the logits (B, L) of uint8 pixels (B, 3, H, W), or the mean loss.

        Targets are labels (B,), or probabilities (B, L) of mixed images.
        """
        logits: Tensor = self.head(self.pool(self.encoder(pixels, states=states)))
        if targets is None:
            return logits
        return F.cross_entropy(logits.float(), targets, label_smoothing=smoothing)
