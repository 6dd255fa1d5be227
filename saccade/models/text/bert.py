"""BERT: an encoder that reads a text, or a pair of texts, in both directions (https://arxiv.org/abs/1810.04805).

Shapes: B rows, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.nn.ablation import patch_embeddings
from saccade.nn.kernels import dropout
from saccade.nn.layers import ACTIVATIONS, initialise, initialise_gpt2, make_norm
from saccade.nn.masks import Padding
from saccade.nn.positions import Learned
from saccade.nn.transformer import Transformer, TransformerConfig


@dataclass(frozen=True)
class BertConfig(TransformerConfig):
    """The shape of an encoder of texts; the vocabulary comes from the data."""

    dropout: float = 0.1
    """share of values dropped in training, in the feed-forward and before each residual"""
    embedding_dropout: float = 0.1
    """share of values dropped in training after the embedding"""
    segments: int = 2
    """texts of a row that are told apart by a learned vector of their own; 0: none"""
    tied: bool = False
    """what says which word is hidden re-uses the embedding"""
    pooler: bool = False
    """a dense layer with tanh over the first token, as BERT has it for pairs of sentences"""
    begin: Literal["silent", "normal"] = "silent"
    """first weights; silent: every block begins as the identity; normal: deviation 0.02, as published"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.segments < 0:
            raise ValueError(f"segments must be 0 or more, but is {self.segments}")
        if not 0 <= self.embedding_dropout < 1:
            raise ValueError(f"embedding_dropout must be at least 0 and below 1, but is {self.embedding_dropout}")


class Bert(nn.Module):
    """Reads ids and gives each a vector that knows all the others."""

    def __init__(self, config: BertConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(vocabulary, config.dim)
        learned = config.position == "learned"  # added before the norm of the embedding, so not within the stack
        self.position = Learned(config.max_positions, config.dim) if learned else None
        self.segment = nn.Embedding(config.segments, config.dim) if config.segments else None
        self.norm = make_norm(config.norm, config.dim, bias=config.bias, epsilon=config.epsilon)
        self.encoder = Transformer(replace(config, position="none") if learned else config)
        self.pooler = nn.Linear(config.dim, config.dim) if config.pooler else None
        begin_weights(self, config)

    def forward(
        self,
        ids: Tensor,
        keep: Tensor | None = None,
        segments: Tensor | None = None,
        *,
        states: list[Tensor] | None = None,
    ) -> Tensor:
        """Ids (B, T), of which `keep` are real (None: all), each of a segment (None: the first) -> (B, T, D).

        `states` is filled with the embeddings and what comes out of each layer.
        """
        x: Tensor = self.embedding(ids)
        if self.position is not None:
            x = x + self.position(0, ids.shape[1], ids.device)
        if self.segment is not None:
            x = x + (self.segment.weight[0] if segments is None else self.segment(segments))
        x = dropout(patch_embeddings(self.norm(x)), self.config.embedding_dropout, self.training)
        out: Tensor = self.encoder(x, mask=None if keep is None else Padding(keep), states=states)
        return out

    def pooled(self, features: Tensor) -> Tensor:
        """The first token's vector through the pooler, where there is one: (B, T, D) -> (B, D)."""
        first = features[:, 0]
        return first if self.pooler is None else torch.tanh(self.pooler(first))


class Words(nn.Module):
    """Says of a vector which token it stands for: a dense layer, a norm and an output layer with a bias."""

    def __init__(self, config: BertConfig, vocabulary: int) -> None:
        super().__init__()
        self.dense = nn.Linear(config.dim, config.dim)
        self.activation = ACTIVATIONS.get(config.activation, F.gelu)
        self.norm = make_norm(config.norm, config.dim, bias=config.bias, epsilon=config.epsilon)
        self.head = nn.Linear(config.dim, vocabulary)

    def forward(self, features: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.activation(self.dense(features))))  # (N, V)
        return logits


class BertForPreTraining(nn.Module):
    """An encoder with what it is trained by: which word is hidden, and whether the second text follows the first."""

    def __init__(self, config: BertConfig, vocabulary: int, *, words: bool = True, following: bool = False) -> None:
        super().__init__()
        self.config = config
        self.bert = Bert(config, vocabulary)
        self.words = Words(config, vocabulary) if words else None
        head = nn.Linear(config.dim, 2) if config.pooler else NextSentenceHead(config.dim)
        self.next = head if following else None  # 0: it follows, as published
        begin_weights(self, config)
        if config.tied and self.words is not None:
            if config.begin == "silent":  # small enough for an output layer; the norm after it makes it whole
                nn.init.normal_(self.bert.embedding.weight, std=config.dim**-0.5)
            self.words.head.weight = self.bert.embedding.weight

    def follows(self, features: Tensor, ids: Tensor, keep: Tensor | None, segments: Tensor) -> Tensor:
        """Whether the second text of each row follows the first, by their vectors (B, T, D): logits (B, 2)."""
        assert self.next is not None
        if self.config.pooler:
            logits: Tensor = self.next(self.bert.pooled(features))
        else:
            second = segments.bool()
            first = ~second if keep is None else keep & ~second
            logits = self.next(features, self.bert.embedding(ids), first, second)
        return logits


class NextSentenceHead(nn.Module):
    """Whether one text follows another: by the means of both, and by the sum of the tokens that each has of the other.

    A sum, since each such token is evidence of its own: that a name comes again says more than that a "the" does. The
    sum only reads: its gradient, as large as the row is long, would keep the encoder from learning its words.
    """

    SHARP = 4  # power of a likeness: the same word counts, one that is a little like it hardly
    SHARE = 0.05  # of the sum, which makes it about as large as the means

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.judge = nn.Linear(5 * dim, 2)

    def forward(self, features: Tensor, words: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Features and embedded words are (B, T, D); which tokens belong to which text (B, T). Logits (B, 2)."""
        words = F.normalize(words.detach(), dim=-1)
        apart = (first[:, :, None] & second[:, None]) | (second[:, :, None] & first[:, None])  # (B, T, T)
        likest = (words @ words.transpose(1, 2)).masked_fill(~apart, 0.0).amax(-1)  # (B, T); 0 for padding
        shared = self.SHARE * (features.detach() * likest[..., None] ** self.SHARP).sum(1)
        one, other = (pool(features, part, "mean") for part in (first, second))
        logits: Tensor = self.judge(torch.cat((one, other, (one - other).abs(), one * other, shared), dim=-1))
        return logits


class SentenceEncoder(nn.Module):
    """An encoder alone, under the name it has in every model."""

    def __init__(self, config: BertConfig, vocabulary: int) -> None:
        super().__init__()
        self.bert = Bert(replace(config, pooler=False), vocabulary)

    @classmethod
    def around(cls, bert: Bert) -> SentenceEncoder:
        """A given encoder, without its pooler."""
        with torch.device("meta"):
            made = cls(bert.config, bert.embedding.num_embeddings)
        made.bert, bert.pooler = bert, None
        return made


class BertWithHead(nn.Module):
    """An encoder with one linear layer on top, which begins as 0; over each token, or over one vector of all."""

    def __init__(self, config: BertConfig, vocabulary: int, outputs: int) -> None:
        super().__init__()
        self.bert = Bert(replace(config, pooler=False), vocabulary)
        self.head = nn.Linear(config.dim, outputs)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, features: Tensor) -> Tensor:
        """Vectors (..., D) -> (..., outputs)."""
        out: Tensor = self.head(dropout(features, self.bert.config.dropout, self.training))
        return out


def pool(features: Tensor, keep: Tensor | None, kind: Literal["mean", "first"]) -> Tensor:
    """One vector for each text: the mean of its real tokens, or the first one. (B, T, D) -> (B, D)."""
    if kind == "first":
        return features[:, 0]
    if keep is None:
        return features.mean(1)
    return (features * keep[..., None]).sum(1) / keep.sum(1, keepdim=True)


def begin_weights(model: nn.Module, config: BertConfig) -> None:
    """The first weights of an encoder, alone or with something on top."""
    if config.begin == "silent":
        initialise(model)
    else:
        initialise_gpt2(model)
