"""Heads on BERT: classification, regression, tagging, question answering and sentence vectors, each with its loss.

Shapes: B rows, T tokens, D width, C outputs, N selected tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.models.text.bert import Bert, BertConfig, EncoderInputs, pool
from saccade.models.text.pooling import SentencePooling
from saccade.nn.kernels import dropout
from saccade.nn.linear import Linear

Pooling = Literal["mean", "first", "tanh", "relu"]
MASKED_LOGIT = -1e4  # of a position that cannot be in the answer


class BertWithHead(nn.Module):
    """An encoder with one linear output layer, initialized to 0."""

    def __init__(self, config: BertConfig, vocabulary: int, outputs: int) -> None:
        super().__init__()
        self.bert = Bert(replace(config, pooler=False), vocabulary)
        self.head = Linear(config.dim, outputs)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def logits(self, features: Tensor) -> Tensor:
        """Return the outputs (..., C) for vectors (..., D) of the encoder."""
        out: Tensor = self.head(dropout(features, self.bert.config.dropout, self.training))
        return out


class BertWithPooling(BertWithHead):
    """A head over one vector for each row.

    pooling: the mean of the tokens, the first token, or the first token through a dense layer with tanh (as published
    for BERT and RoBERTa) or ReLU (DistilBERT).
    """

    def __init__(self, config: BertConfig, vocabulary: int, outputs: int, pooling: Pooling) -> None:
        super().__init__(config, vocabulary, outputs)
        self.pooling = pooling
        self.dense = Linear(config.dim, config.dim) if pooling in ("tanh", "relu") else None
        if self.dense is not None:
            nn.init.normal_(self.dense.weight, std=0.02)
            nn.init.zeros_(self.dense.bias)

    def pooled_logits(self, features: Tensor, keep: Tensor | None) -> Tensor:
        """Return the outputs (B, C) for the vectors (B, T, D) of tokens and their padding mask (B, T)."""
        if self.dense is None:
            return self.logits(pool(features, keep, "mean" if self.pooling == "mean" else "first"))
        activation = torch.tanh if self.pooling == "tanh" else F.relu
        return self.logits(activation(self.dense(features[:, 0])))


class BertForClassification(BertWithPooling):
    """One label for each row, or with `multi_label` any number of them."""

    def __init__(
        self,
        config: BertConfig,
        vocabulary: int,
        outputs: int,
        *,
        pooling: Pooling = "mean",
        multi_label: bool = False,
        class_weights: Sequence[float] = (),
    ) -> None:
        super().__init__(config, vocabulary, outputs, pooling)
        self.multi_label, self.class_weights = multi_label, tuple(class_weights)

    def forward(self, inputs: EncoderInputs, targets: Tensor | None = None) -> Tensor:
        """Return logits (B, C), or the loss for classes (B,) or, with several labels, 0 and 1 (B, C)."""
        logits = self.pooled_logits(self.bert(*inputs), inputs.keep)
        return logits if targets is None else self.loss(logits, targets)

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the cross-entropy of one label, or the binary cross-entropy of several."""
        weights = torch.tensor(self.class_weights, device=logits.device) if self.class_weights else None
        if self.multi_label:
            return F.binary_cross_entropy_with_logits(logits, targets, pos_weight=weights)
        loss = F.cross_entropy(logits, targets, weight=weights, reduction="sum")
        return loss / len(targets)  # by rows, not by their weights, so that micro-batches add up to the batch


class BertForRegression(BertWithPooling):
    """One standardized number for each row."""

    def __init__(self, config: BertConfig, vocabulary: int, *, pooling: Pooling = "mean") -> None:
        super().__init__(config, vocabulary, 1, pooling)

    def forward(self, inputs: EncoderInputs, targets: Tensor | None = None) -> Tensor:
        """Return the predicted numbers (B,), or their mean squared error."""
        numbers = self.pooled_logits(self.bert(*inputs), inputs.keep)[:, 0]
        return numbers if targets is None else F.mse_loss(numbers, targets)


class BertForTokenClassification(BertWithHead):
    """A class for each token."""

    def forward(self, inputs: EncoderInputs, targets: Tensor | None = None) -> Tensor:
        """Return logits (B, T, C), or the cross-entropy with the classes (B, T) of tokens; -1 is ignored."""
        features = self.bert(*inputs)
        if targets is None:
            return self.logits(features)
        real = targets >= 0
        return F.cross_entropy(self.logits(features[real]), targets[real])  # (N, C)


class BertForQuestionAnswering(BertWithHead):
    """Logits of the first and the last token of an answer."""

    def __init__(self, config: BertConfig, vocabulary: int) -> None:
        super().__init__(config, vocabulary, 2)

    def forward(self, inputs: EncoderInputs, targets: Tensor | None = None, allowed: Tensor | None = None) -> Tensor:
        """Return logits (B, T, 2), or the cross-entropy over positions with the first and last one (B, 2).

        `allowed` (B, T) are the positions that can be in an answer; None: all.
        """
        logits = self.logits(self.bert(*inputs))
        if targets is None:
            return logits
        if allowed is not None:
            logits = logits.masked_fill(~allowed[..., None], MASKED_LOGIT)
        return F.cross_entropy(logits, targets)


@dataclass(frozen=True)
class SimilarityLoss:
    """Settings of the loss for pairs of texts."""

    scale: float = 20.0
    """factor of the cosine similarities in the contrastive loss (inverse temperature)"""
    contrast: float = 0.0
    """pairs with at least this target are also used in the contrastive loss; 0: none"""


class SentenceEncoder(nn.Module):
    """An encoder that returns one vector for each text, trained on pairs by their cosine similarity."""

    def __init__(
        self,
        config: BertConfig,
        vocabulary: int,
        *,
        pooling: SentencePooling = SentencePooling(),
        loss: SimilarityLoss = SimilarityLoss(),
    ) -> None:
        super().__init__()
        self.bert = Bert(replace(config, pooler=False), vocabulary)
        self.pooling, self.loss = pooling, loss

    @classmethod
    def from_bert(cls, bert: Bert, pooling: SentencePooling) -> SentenceEncoder:
        """Return a sentence encoder that shares the weights of an encoder, without its pooler."""
        with torch.device("meta"):
            encoder = cls(bert.config, bert.embedding.num_embeddings, pooling=pooling)
        encoder.bert, bert.pooler = bert, None
        return encoder

    def forward(
        self, first: EncoderInputs, second: EncoderInputs | None = None, targets: Tensor | None = None
    ) -> Tensor:
        """Return the vectors (B, D) of texts, or the loss of pairs.

        With `targets` (B,) the cosine of a pair is trained towards its target; without, each text to be nearer to its
        partner than to the partners of the other rows (multiple negatives ranking, https://arxiv.org/abs/1705.00652).
        """
        if second is None:
            return self._vectors(first)
        a, b = (F.normalize(self._vectors(inputs), dim=-1) for inputs in (first, second))
        scale = self.loss.scale
        if targets is None:
            similarity, partner = scale * a @ b.t(), torch.arange(len(a), device=a.device)  # (B, B)
            return (F.cross_entropy(similarity, partner) + F.cross_entropy(similarity.t(), partner)) / 2
        loss = F.mse_loss((a * b).sum(-1), targets)
        positive = targets >= self.loss.contrast
        if self.loss.contrast and bool(positive.any()):
            similarity = scale * a[positive] @ b.t()  # (N, B)
            loss = loss + F.cross_entropy(similarity, positive.nonzero()[:, 0])
        return loss

    def _vectors(self, inputs: EncoderInputs) -> Tensor:
        return self.pooling(self.bert(*inputs), inputs.keep)
