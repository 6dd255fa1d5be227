"""Visual question answering: a question attends to the grid over an image, several times.

Stacked attention networks (https://arxiv.org/abs/1511.02274).
Shapes: B questions, I images, T tokens, E extra positions, N cells of a grid, D width, L answers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch import Tensor, nn

from saccade.models.text.bert import pool
from saccade.models.vision.encoder import VisionEncoder
from saccade.nn.ablation import patch_embeddings
from saccade.nn.attention import Attention
from saccade.nn.kernels import dropout
from saccade.nn.layers import RMSNorm, initialize_zero_residual
from saccade.nn.linear import Linear
from saccade.nn.masks import Padding
from saccade.nn.positions import SinusoidalGrid
from saccade.nn.transformer import Transformer, TransformerConfig, final_norm, make_score


@dataclass(frozen=True)
class AnsweringConfig:
    """Shape of what reads the question."""

    question: TransformerConfig = field(default_factory=lambda: TransformerConfig(dim=96, depth=2, heads=4, hidden=192))
    """layers over the words of a question, each of which attends to the other words and to the image"""
    hops: int = 2
    """how often the question as a whole attends to the image before it is answered"""

    def __post_init__(self) -> None:
        if self.hops < 1:
            raise ValueError(f"hops must be at least 1, but is {self.hops}")
        if not self.question.depth:
            raise ValueError("question.depth must be at least 1, but is 0")
        if self.question.dim % 4:
            raise ValueError(
                f"question.dim must be a multiple of 4 for positions on a grid, but is {self.question.dim}"
            )


class VisualAnswering(nn.Module):
    """Logits of the answers to a question on an image.

    Each word attends to the cells of the image (question.0.cross, ...), then the mean u of the words does, hop by hop:
    u_k = u_k-1 + attention(u_k-1, cells) (hop1, hop2, ...).
    """

    def __init__(self, encoder: VisionEncoder, config: AnsweringConfig, vocabulary: int, answers: int) -> None:
        super().__init__()
        shape = config.question
        self.config, self.encoder = config, encoder
        self.project = Linear(encoder.dim, shape.dim)
        self.cell_norm = RMSNorm(shape.dim, gain=False)
        self.position = SinusoidalGrid(shape.dim)  # without it nothing is left of anything
        self.embedding = nn.Embedding(vocabulary, shape.dim)
        self.embedding_norm = RMSNorm(shape.dim, gain=False)
        self.question = Transformer(shape, memory_dim=shape.dim)
        for hop in range(1, config.hops + 1):
            attention = Attention(
                shape.dim, shape.heads, memory_dim=shape.dim, score=make_score(shape), bias=shape.bias
            )
            self.add_module(f"hop{hop}", attention)
        self.norm = final_norm(shape)
        self.head = Linear(shape.dim, answers)
        for name, module in self.named_children():
            if name == "head":  # its own name does not say that it is one
                nn.init.zeros_(self.head.weight)
                nn.init.zeros_(self.head.bias)
            elif name != "encoder":
                initialize_zero_residual(module)

    def cells(self, images: Tensor) -> Tensor:
        """Return the vectors (I, N, D) of the cells of images, with their positions.

        Images are uint8 pixels (I, 3, H, W), or the vectors (I, E + N, its width) that the encoder has computed before.
        """
        if images.dim() == 4:
            rows, columns = self.encoder.grid(images.shape[-2], images.shape[-1])
            images = self.encoder(images)
        else:
            rows = columns = math.isqrt(images.shape[1] - len(self.encoder.extra))
        vectors = images[:, len(self.encoder.extra) :].to(self.project.weight.dtype)
        cells: Tensor = self.cell_norm(self.project(vectors))
        place: Tensor = self.position(rows, columns, cells.device)
        return cells + place.to(cells.dtype)

    def forward(
        self,
        images: Tensor,
        ids: Tensor,
        keep: Tensor | None = None,
        targets: Tensor | None = None,
        *,
        states: list[Tensor] | None = None,
    ) -> Tensor:
        """Return the logits (B, L) of questions on images (as `cells` reads them), or the mean loss.

        `ids` (B, T) are the tokens of the questions, as many for each image, and `keep` their padding mask (None: no
        padding). `targets` (B, L) are the probabilities of the answers; all 0: this question has none. `states` is
        filled with the questions after each hop.
        """
        cells = self.cells(images)  # (I, N, D): attention shares them between the questions on an image
        embedded = patch_embeddings(self.embedding_norm(self.embedding(ids)))
        embedded = dropout(embedded, self.config.question.dropout, self.training)
        words = self.question(embedded, cells, mask=None if keep is None else Padding(keep))
        u = pool(words, keep, "mean")[:, None]  # (B, 1, D)
        for hop in range(1, self.config.hops + 1):
            u = u + self.get_submodule(f"hop{hop}")(self.norm(u), cells)
            if states is not None:
                states.append(u[:, 0])
        logits = self.logits(u[:, 0])
        if targets is None:
            return logits
        loss = -(targets * logits.float().log_softmax(-1)).sum()
        return loss / targets.any(1).sum().clamp_min(1)

    def logits(self, question: Tensor) -> Tensor:
        """Return the logits (B, L) of questions after a hop (B, D)."""
        logits: Tensor = self.head(self.norm(question))
        return logits
