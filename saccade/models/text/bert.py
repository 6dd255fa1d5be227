"""BERT: a bidirectional Transformer encoder of a text or a pair of texts (https://arxiv.org/abs/1810.04805).

Shapes: B rows, T tokens, D width, V vocabulary, N selected tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.nn.ablation import patch_embeddings
from saccade.nn.kernels import dropout
from saccade.nn.layers import ACTIVATIONS, initialize_gpt2, initialize_zero_residual, make_norm
from saccade.nn.linear import Linear
from saccade.nn.listeners import emit
from saccade.nn.masks import Mask, Padding, Segments
from saccade.nn.positions import Learned
from saccade.nn.transformer import Transformer, TransformerConfig


@dataclass(frozen=True)
class BertConfig(TransformerConfig):
    """The shape of an encoder; the size of its vocabulary comes from the data."""

    dropout: float = 0.1
    """dropout probability in the feed-forward network and before each residual connection"""
    embedding_dropout: float = 0.1
    """dropout probability after the embedding"""
    segments: int = 2
    """number of segment (token type) embeddings; 0: none"""
    tie_embeddings: bool = False
    """share one matrix between the embedding and the output layer of the masked language model"""
    pooler: bool = False
    """dense layer with tanh over the first token, as in BERT for next sentence prediction"""
    mlm_activation: Literal["", "gelu"] = ""
    """activation of the masked-language-model head; empty: that of the feed-forward layers, GELU if they are gated"""
    init: Literal["zero_residual", "normal"] = "zero_residual"
    """initial weights; zero_residual: every block starts as the identity; normal: std 0.02, as published"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.segments < 0:
            raise ValueError(f"segments must be 0 or more, but is {self.segments}")
        if not 0 <= self.embedding_dropout < 1:
            raise ValueError(f"embedding_dropout must be at least 0 and below 1, but is {self.embedding_dropout}")


class EncoderInputs(NamedTuple):
    """A batch of token ids with their padding mask and segments."""

    ids: Tensor  # (B, T)
    keep: Tensor | None = None  # (B, T), True for a real token; None: no padding
    segments: Tensor | None = None  # (B, T), 1 for the second text; None: all 0
    lengths: Tensor | None = None  # (S,), of the texts that the only row holds one after the other; None: one a row


class Bert(nn.Module):
    """The encoder: token ids to contextual vectors."""

    def __init__(self, config: BertConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(vocabulary, config.dim)
        learned = config.position == "learned"  # added before the norm of the embedding, so not within the stack
        self.position = Learned(config.max_positions, config.dim) if learned else None
        self.segment = nn.Embedding(config.segments, config.dim) if config.segments else None
        self.norm = make_norm(config.norm, config.dim, bias=config.bias, epsilon=config.epsilon)
        self.encoder = Transformer(replace(config, position="none") if learned else config)
        self.pooler = Linear(config.dim, config.dim) if config.pooler else None
        init_weights(self, config)

    def forward(
        self,
        ids: Tensor,
        keep: Tensor | None = None,
        segments: Tensor | None = None,
        lengths: Tensor | None = None,
        *,
        states: list[Tensor] | None = None,
    ) -> Tensor:
        """Return the contextual vectors (B, T, D) of ids (B, T).

        `keep` is the padding mask (None: no padding), `segments` the token types (None: all 0), `lengths` those of the
        texts in one row without padding; `states` is filled with the embeddings and the output of each layer.
        """
        parts: dict[str, Tensor] = {"token embedding": self.embedding(ids)}
        mask: Mask | None = None if keep is None else Padding(keep)
        if lengths is not None:
            mask = Segments.of(lengths)
            parts["position"] = self._learned().at(mask.positions())
        elif self.position is not None:
            parts["position"] = self.position(0, ids.shape[1], ids.device)
        if self.segment is not None:
            # With one token type, as in RoBERTa, the two texts of a pair share it.
            single = segments is None or self.config.segments == 1
            parts["segment"] = self.segment.weight[:1, None] if single else self.segment(segments)
        emit(self, parts)
        x = reduce(add, parts.values())
        x = dropout(patch_embeddings(self.norm(x)), self.config.embedding_dropout, self.training)
        out: Tensor = self.encoder(x, mask=mask, states=states)
        return out

    def _learned(self) -> Learned:
        if self.position is None:
            raise ValueError(f"position must be learned for several texts in a row, but is {self.config.position}")
        return self.position

    def pooled(self, features: Tensor) -> Tensor:
        """Return the vector of the first token, through the pooler if there is one: (B, T, D) -> (B, D)."""
        first = features[:, 0]
        return first if self.pooler is None else torch.tanh(self.pooler(first))


class MLMHead(nn.Module):
    """Masked language model head: a dense layer, a norm and an output layer with a bias."""

    def __init__(self, config: BertConfig, vocabulary: int) -> None:
        super().__init__()
        self.dense = Linear(config.dim, config.dim)
        self.activation = ACTIVATIONS.get(config.mlm_activation or config.activation, F.gelu)
        self.norm = make_norm(config.norm, config.dim, bias=config.bias, epsilon=config.epsilon)
        self.head = Linear(config.dim, vocabulary)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits (..., V) for vectors (..., D)."""
        logits: Tensor = self.head(self.norm(self.activation(self.dense(features))))
        return logits


class PreTrainingLogits(NamedTuple):
    """Logits over the vocabulary, and of whether the second text of each row follows the first."""

    tokens: Tensor  # (B, T, V), or (N, V) of the selected tokens
    next_sentence: Tensor | None  # (B, 2); class 0: it follows, as published


class BertForPreTraining(nn.Module):
    """An encoder with its two pretraining heads: masked language model and next sentence prediction."""

    def __init__(self, config: BertConfig, vocabulary: int, *, mlm: bool = True, next_sentence: bool = False) -> None:
        super().__init__()
        self.config = config
        self.bert = Bert(config, vocabulary)
        self.mlm = MLMHead(config, vocabulary) if mlm else None
        head = Linear(config.dim, 2) if config.pooler else NextSentenceHead(config.dim)
        self.next_sentence = head if next_sentence else None
        init_weights(self, config)
        if config.tie_embeddings and self.mlm is not None:
            if config.init == "zero_residual":  # small enough for an output layer; the embedding norm rescales it
                nn.init.normal_(self.bert.embedding.weight, std=config.dim**-0.5)
            self.mlm.head.weight = self.bert.embedding.weight

    def forward(
        self,
        inputs: EncoderInputs,
        labels: Tensor | None = None,
        next_labels: Tensor | None = None,
        next_weight: Tensor | None = None,
        *,
        selected: Tensor | None = None,
    ) -> Tensor | PreTrainingLogits:
        """Return the training loss where `labels` (B, T; -1 ignored) are given, otherwise the logits.

        `next_labels` (B,) are 0 where the second text follows the first; `next_weight` scales their loss. Without
        labels, `selected` (B, T) limits the output layer to some tokens.
        """
        assert self.mlm is not None
        if labels is not None:
            selected = labels >= 0
        features = self.bert(*inputs)  # (B, T, D)
        tokens = self.mlm(features if selected is None else features[selected])  # only these reach the output layer
        follows = None if self.next_sentence is None else self.next_sentence_logits(features, inputs)
        if labels is None:
            return PreTrainingLogits(tokens, follows)
        loss = F.cross_entropy(tokens, labels[labels >= 0])
        if follows is not None and next_labels is not None:
            following = F.cross_entropy(follows, next_labels)
            loss = loss + (following if next_weight is None else next_weight * following)
        return loss

    def next_sentence_logits(self, features: Tensor, inputs: EncoderInputs) -> Tensor:
        """Return logits (B, 2) of whether the second text of each row follows the first, from the encoder output."""
        assert self.next_sentence is not None and inputs.segments is not None
        if self.config.pooler:
            logits: Tensor = self.next_sentence(self.bert.pooled(features))
        else:
            second = inputs.segments.bool()
            first = ~second if inputs.keep is None else inputs.keep & ~second
            logits = self.next_sentence(features, self.bert.embedding(inputs.ids), first, second)
        return logits


class NextSentenceHead(nn.Module):
    """Next sentence prediction from the mean vectors of the two texts and the tokens they share.

    The shared tokens enter as a sum, since each is separate evidence: a repeated name counts more than a repeated
    "the". No gradient flows through the sum: it grows with the length of the row and would dominate the encoder's.
    """

    SHARPNESS = 4  # exponent of the similarity: equal tokens count, similar ones hardly
    SUM_SCALE = 0.05  # brings the sum to the scale of the means

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.classifier = Linear(5 * dim, 2)

    def forward(self, features: Tensor, embedded: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Return logits (B, 2) from features and token embeddings (B, T, D) and the masks of both texts (B, T)."""
        embedded = F.normalize(embedded.detach(), dim=-1)
        across = (first[:, :, None] & second[:, None]) | (second[:, :, None] & first[:, None])  # (B, T, T)
        similarity = (embedded @ embedded.transpose(1, 2)).masked_fill(~across, 0.0).amax(-1)  # (B, T); 0 for padding
        shared = self.SUM_SCALE * (features.detach() * similarity[..., None] ** self.SHARPNESS).sum(1)
        a, b = (pool(features, mask, "mean") for mask in (first, second))
        logits: Tensor = self.classifier(torch.cat((a, b, (a - b).abs(), a * b, shared), dim=-1))
        return logits


def pool(features: Tensor, keep: Tensor | None, pooling: Literal["mean", "first"]) -> Tensor:
    """Return one vector for each text, the mean of its real tokens or the first one: (B, T, D) -> (B, D)."""
    if pooling == "first":
        return features[:, 0]
    if keep is None:
        return features.mean(1)
    return (features * keep[..., None]).sum(1) / keep.sum(1, keepdim=True)


def init_weights(model: nn.Module, config: BertConfig) -> None:
    """Initialize an encoder, with or without heads."""
    if config.init == "zero_residual":
        initialize_zero_residual(model)
    else:
        initialize_gpt2(model)
