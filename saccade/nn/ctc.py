"""Connectionist temporal classification: an output layer that needs no alignment of its inputs with the labels.

https://www.cs.toronto.edu/~graves/icml_2006.pdf. Shapes: B rows, N positions, R frames of a position, T labels,
D width, V vocabulary; class V is the blank.
"""

from itertools import groupby

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.nn.linear import Linear


class CTCHead(nn.Module):
    """Predicts a label or a blank in each of the frames of every position of a memory."""

    def __init__(self, dim: int, vocabulary: int, frames: int = 1) -> None:
        """`frames`: predictions of a position, so that a position may hold several labels."""
        super().__init__()
        self.blank, self.frames = vocabulary, frames
        self.head = Linear(dim, frames * (vocabulary + 1))

    def forward(self, memory: Tensor) -> Tensor:
        """Return log probabilities (B, N R, V + 1) of a memory (B, N, D)."""
        logits: Tensor = self.head(memory).unflatten(2, (self.frames, -1)).flatten(1, 2)
        return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)

    def loss(self, memory: Tensor, keep: Tensor, labels: Tensor, count: int | None = None) -> Tensor:
        """Mean negative log likelihood per label of labels (B, T; -1 ignored), given the first positions `keep` (B, N).

        `count` is what the sum is divided by, if not the number of labels: that of the loss which this one is added to,
        so that micro-batches add up to the batch. A row whose labels do not fit into its frames is ignored.
        """
        losses = self._losses(self(memory), keep, labels, ignore_infinite=True)
        return losses.sum() / ((labels >= 0).sum() if count is None else count)

    def log_likelihood(self, log_probs: Tensor, keep: Tensor, labels: Tensor) -> Tensor:
        """Return the log probability (B,) of labels (B, T; -1 ignored), -inf where they do not fit into the frames."""
        return -self._losses(log_probs, keep, labels, ignore_infinite=False)

    def _losses(self, log_probs: Tensor, keep: Tensor, labels: Tensor, *, ignore_infinite: bool) -> Tensor:
        real = labels >= 0
        return F.ctc_loss(
            log_probs.transpose(0, 1),  # (N R, B, V + 1)
            labels[real],
            keep.sum(1) * self.frames,
            real.sum(1),
            blank=self.blank,
            reduction="none",
            zero_infinity=ignore_infinite,
        )

    def best_paths(self, log_probs: Tensor, keep: Tensor) -> list[list[int]]:
        """Return the labels of the most probable path of each row: repetitions are merged, blanks removed."""
        paths = []
        for path, frames in zip(log_probs.argmax(-1).tolist(), (keep.sum(1) * self.frames).tolist(), strict=True):
            merged = (label for label, _ in groupby(path[:frames]))
            paths.append([label for label in merged if label != self.blank])
        return paths
