"""Transformer for translation: an encoder, and a decoder that looks at it (https://arxiv.org/abs/1706.03762).

Shapes: B rows, S source tokens, T target tokens, D width.
"""

import math
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from saccade.models.seq2seq.interface import Memory, Seq2Seq, Vocabularies, begin_weights
from saccade.nn.ablation import patch_embeddings
from saccade.nn.cache import KVCache
from saccade.nn.kernels import dropout
from saccade.nn.layers import RMSNorm
from saccade.nn.masks import Causal, Padding
from saccade.nn.transformer import Transformer, TransformerConfig


@dataclass(frozen=True)
class EmbeddedConfig(TransformerConfig):
    """The shape of a stack and of its ends; vocabularies come from the data."""

    dim: int = 192
    """width of the residual stream"""
    hidden: int = 384
    """inner width of the feed-forward"""
    dropout: float = 0.1
    """share of values dropped in training, in the feed-forward and before each residual"""
    embedding_dropout: float = 0.1
    """share of values dropped in training after the embedding"""
    tied: bool = False
    """the output layer re-uses the target embedding and, with a joint vocabulary, the source too"""
    head_bias: bool = False
    """the output layer has a bias, as that of Marian"""
    embedding_norm: bool = True
    """bring every embedding to root mean square 1; false: multiply it by sqrt(dim), as published"""
    begin: Literal["silent", "xavier"] = "silent"
    """first weights; silent: every block begins as the identity; xavier: as published"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.embedding_dropout < 1:
            raise ValueError(f"embedding_dropout must be at least 0 and below 1, but is {self.embedding_dropout}")


@dataclass(frozen=True)
class TranslatorConfig(EmbeddedConfig):
    """The shape of encoder and decoder."""

    depth: int = 3
    """layers of the encoder"""
    decoder_depth: int = 2
    """layers of the decoder"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decoder_depth < 1:
            raise ValueError(f"decoder_depth must be at least 1, but is {self.decoder_depth}")


class Embedded(Seq2Seq):
    """The ends of a Transformer: source and target embeddings and the output layer, tied or not."""

    def __init__(self, config: EmbeddedConfig, sizes: Vocabularies) -> None:
        super().__init__()
        self.config = config
        self.source = nn.Embedding(sizes.source, config.dim)
        self.target = nn.Embedding(sizes.target, config.dim)
        self.norm = RMSNorm(config.dim, gain=False)
        self.head = nn.Linear(config.dim, sizes.target, bias=config.head_bias)

    def begin(self, sizes: Vocabularies) -> None:
        """First weights, then the ties; called when all parts are there."""
        begin_weights(self, self.config.begin)
        if self.config.tied:
            nn.init.normal_(self.target.weight, std=self.config.dim**-0.5)  # small enough for an output layer
            self.head.weight = self.target.weight
            if sizes.joint:
                self.source.weight = self.target.weight

    def embed(self, table: nn.Embedding, ids: Tensor) -> Tensor:
        x: Tensor = table(ids)
        x = patch_embeddings(self.norm(x) if self.config.embedding_norm else x * math.sqrt(self.config.dim))
        return dropout(x, self.config.embedding_dropout, self.training)  # (B, T, D)


class Translator(Embedded):
    """The Transformer of 2017, and what has been learnt since, by configuration."""

    def __init__(self, config: TranslatorConfig, sizes: Vocabularies) -> None:
        super().__init__(config, sizes)
        self.encoder = Transformer(config)
        self.decoder = Transformer(config, config.dim, depth=config.decoder_depth)
        self.begin(sizes)

    def encode(self, source: Tensor, keep: Tensor) -> Memory:
        return Memory(self.encoder(self.embed(self.source, source), mask=Padding(keep)), keep)

    def decode(self, ids: Tensor, memory: Memory, *, cache: KVCache | None = None) -> Tensor:
        x = self.embed(self.target, ids)
        out: Tensor = self.decoder(x, memory.values, mask=Causal(), memory_mask=Padding(memory.keep), cache=cache)
        return out
