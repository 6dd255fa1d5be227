"""Connectionist temporal classification: an output layer that needs no alignment of its inputs with the labels.

https://www.cs.toronto.edu/~graves/icml_2006.pdf. Shapes: B rows, N positions, R frames of a position, T labels,
D width, V vocabulary; class V is the blank.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CTCHead(nn.Module):
    """Predicts a label or a blank in each of the frames of every position of a memory."""

    def __init__(self, dim: int, vocabulary: int, frames: int = 1) -> None:
        """`frames`: predictions of a position, so that a position may hold several labels."""
        super().__init__()
        self.blank, self.frames = vocabulary, frames
        self.head = nn.Linear(dim, frames * (vocabulary + 1))

    def forward(self, memory: Tensor) -> Tensor:
        """Return log probabilities (B, N R, V + 1) of a memory (B, N, D)."""
        logits: Tensor = self.head(memory).unflatten(2, (self.frames, -1)).flatten(1, 2)
        return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)

    def loss(self, memory: Tensor, keep: Tensor, labels: Tensor) -> Tensor:
        """Mean negative log likelihood per label of labels (B, T; -1 ignored), given the first positions `keep` (B, N).

        A row whose labels do not fit into its frames is ignored.
        """
        real = labels >= 0
        total = F.ctc_loss(
            self(memory).transpose(0, 1),  # (N R, B, V + 1)
            labels[real],
            keep.sum(1) * self.frames,
            real.sum(1),
            blank=self.blank,
            reduction="sum",
            zero_infinity=True,
        )
        return total / real.sum()
