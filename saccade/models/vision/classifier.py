"""Image classifier: a vision encoder, pooling over its positions, and one output for each label.

Shapes: B rows, N positions, D width, L labels.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from saccade.models.vision.encoder import VisionEncoder
from saccade.nn.linear import Linear


class ImageClassifier(nn.Module):
    """Logits of the labels of an image, from the vector to which its encoder pools it."""

    def __init__(self, encoder: VisionEncoder, labels: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = Linear(encoder.pooled_dim, labels)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

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
        logits: Tensor = self.head(self.encoder.vectors(pixels, states=states))
        if targets is None:
            return logits
        return F.cross_entropy(logits.float(), targets, label_smoothing=smoothing)
