"""Convolutional encoder-decoder with attention in every decoder layer (https://arxiv.org/abs/1705.03122).

Shapes: B rows, S source tokens, T target tokens, D width.
"""

import math
from dataclasses import dataclass

from torch import Tensor, nn

from saccade.models.seq2seq.interface import Memory, Seq2Seq, Vocabularies
from saccade.nn.ablation import patch_embeddings
from saccade.nn.attention import Attention
from saccade.nn.cache import KVCache
from saccade.nn.convolution import Convolution, ConvolutionStack
from saccade.nn.kernels import dropout
from saccade.nn.layers import RMSNorm
from saccade.nn.linear import Linear
from saccade.nn.masks import Padding
from saccade.nn.positions import Sinusoidal


@dataclass(frozen=True)
class ConvolutionConfig:
    """Shape of a convolutional encoder and decoder."""

    dim: int = 192
    """width of every layer"""
    depth: int = 4
    """layers of the encoder"""
    decoder_depth: int = 3
    """layers of the decoder"""
    kernel_size: int = 3
    """kernel size of the convolutions; odd"""
    dropout: float = 0.1
    """dropout probability, of embeddings and before each layer"""

    def __post_init__(self) -> None:
        for name in ("dim", "depth", "decoder_depth", "kernel_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, but is {getattr(self, name)}")
        if self.kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd, but is {self.kernel_size}")
        if self.dim % 2:
            raise ValueError(f"dim must be even, but is {self.dim}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, but is {self.dropout}")


class DecoderLayer(nn.Module):
    """A causal convolution, then cross-attention."""

    def __init__(self, config: ConvolutionConfig) -> None:
        super().__init__()
        self.convolution = Convolution(config.dim, config.kernel_size, causal=True)
        self.cross = Attention(config.dim, 1, memory_dim=config.dim)
        self.dropout = config.dropout

    def forward(self, x: Tensor, memory: Tensor, mask: Padding, cache: KVCache | None, name: str) -> Tensor:
        convolution_cache = cache.layer(f"{name}.convolution") if cache else None
        cross_cache = cache.layer(f"{name}.cross") if cache else None
        y: Tensor = self.convolution(dropout(x, self.dropout, self.training), cache=convolution_cache)
        y = (y + self.cross(y, memory, mask=mask, cache=cross_cache)) * math.sqrt(0.5)
        return (x + y) * math.sqrt(0.5)


class ConvolutionTranslator(Seq2Seq):
    """Convolutional encoder and decoder, with cross-attention in every decoder layer."""

    def __init__(self, config: ConvolutionConfig, sizes: Vocabularies) -> None:
        super().__init__()
        self.config = config
        self.source = nn.Embedding(sizes.source, config.dim)
        self.target = nn.Embedding(sizes.target, config.dim)
        self.norm = RMSNorm(config.dim, gain=False)
        self.position = Sinusoidal(config.dim)
        self.encoder = ConvolutionStack(config.dim, config.depth, config.kernel_size, dropout=config.dropout)
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_depth))
        self.head = Linear(config.dim, sizes.target, bias=False)
        nn.init.zeros_(self.head.weight)

    def encode(self, source: Tensor, keep: Tensor) -> Memory:
        return Memory(self.encoder(self._embed(self.source, source, 0), keep=keep), keep)

    def decode(self, ids: Tensor, memory: Memory, *, cache: KVCache | None = None) -> Tensor:
        x = self._embed(self.target, ids, cache.start if cache else 0)
        mask = Padding(memory.keep)
        for index, layer in enumerate(self.decoder):
            x = layer(x, memory.values, mask, cache, str(index))
        if cache is not None:
            cache.advance(ids.shape[1])
        return dropout(x, self.config.dropout, self.training)

    def _embed(self, table: nn.Embedding, ids: Tensor, start: int | Tensor) -> Tensor:
        x = (patch_embeddings(self.norm(table(ids))) + self.position(start, ids.shape[1], ids.device)) * math.sqrt(0.5)
        return dropout(x, self.config.dropout, self.training)
