"""Encoder-decoder Transformer (https://arxiv.org/abs/1706.03762).

Shapes: B rows, S source tokens, T target tokens, D width.
"""

import math
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from saccade.models.seq2seq.interface import Memory, Seq2Seq, Vocabularies, init_weights
from saccade.nn.ablation import patch_embeddings
from saccade.nn.cache import KVCache
from saccade.nn.kernels import dropout
from saccade.nn.layers import RMSNorm
from saccade.nn.linear import Linear
from saccade.nn.masks import Causal, Padding
from saccade.nn.transformer import Transformer, TransformerConfig


@dataclass(frozen=True)
class EmbeddedConfig(TransformerConfig):
    """Shape of a Transformer stack with its embeddings and output layer; vocabulary sizes come from the data."""

    dim: int = 192
    """width of the residual stream"""
    hidden: int = 384
    """inner width of the feed-forward"""
    dropout: float = 0.1
    """dropout probability in the feed-forward and before each residual"""
    embedding_dropout: float = 0.1
    """dropout probability after the embedding"""
    tie_embeddings: bool = False
    """share one matrix between the output layer and the target embedding and, with a joint vocabulary, the source
    embedding"""
    head_bias: bool = False
    """add a bias to the output layer, as Marian does"""
    embedding_norm: bool = True
    """normalize every embedding to root mean square 1; false: multiply it by sqrt(dim), as published"""
    init: Literal["zero_residual", "xavier"] = "zero_residual"
    """initial weights; zero_residual: every block starts as the identity; xavier: as published"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.embedding_dropout < 1:
            raise ValueError(f"embedding_dropout must be at least 0 and below 1, but is {self.embedding_dropout}")


@dataclass(frozen=True)
class TranslatorConfig(EmbeddedConfig):
    """Shape of the encoder and the decoder."""

    depth: int = 3
    """layers of the encoder"""
    decoder_depth: int = 2
    """layers of the decoder"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decoder_depth < 1:
            raise ValueError(f"decoder_depth must be at least 1, but is {self.decoder_depth}")


class Embedded(Seq2Seq):
    """Embeddings of the target, and of a source of text, and the output layer, tied or not, for one or two stacks."""

    def __init__(self, config: EmbeddedConfig, sizes: Vocabularies) -> None:
        super().__init__()
        self.config = config
        if sizes.source:
            self.source = nn.Embedding(sizes.source, config.dim)
        self.target = nn.Embedding(sizes.target, config.dim)
        self.norm = RMSNorm(config.dim, gain=False)
        self.head = Linear(config.dim, sizes.target, bias=config.head_bias)

    def init_weights(self, sizes: Vocabularies) -> None:
        """Initialize the weights, then tie them; called when all submodules exist."""
        init_weights(self, self.config.init)
        if self.config.tie_embeddings:
            nn.init.normal_(self.target.weight, std=self.config.dim**-0.5)  # small enough for an output layer
            self.head.weight = self.target.weight
            if sizes.joint:
                self.source.weight = self.target.weight

    def embed(self, table: nn.Embedding, ids: Tensor) -> Tensor:
        x: Tensor = table(ids)
        x = patch_embeddings(self.norm(x) if self.config.embedding_norm else x * math.sqrt(self.config.dim))
        return dropout(x, self.config.embedding_dropout, self.training)  # (B, T, D)


class TransformerDecoder(Embedded):
    """A Transformer decoder with cross-attention to the memory of any encoder."""

    decoder: Transformer

    def decode(self, ids: Tensor, memory: Memory, *, cache: KVCache | None = None) -> Tensor:
        x = self.embed(self.target, ids)
        out: Tensor = self.decoder(x, memory.values, mask=Causal(), memory_mask=Padding(memory.keep), cache=cache)
        return out


class Translator(TransformerDecoder):
    """The Transformer of 2017, and later variants by configuration."""

    def __init__(self, config: TranslatorConfig, sizes: Vocabularies) -> None:
        super().__init__(config, sizes)
        self.encoder = Transformer(config)
        self.decoder = Transformer(config, config.dim, depth=config.decoder_depth)
        self.init_weights(sizes)

    def encode(self, source: Tensor, keep: Tensor) -> Memory:
        return Memory(self.encoder(self.embed(self.source, source), mask=Padding(keep)), keep)
