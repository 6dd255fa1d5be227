"""Speech encoders: features of a sound to one vector for every few frames.

Shapes: B rows, T frames, F bands, S frames of a position, N = T / S positions, D width.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from saccade.models.columns import STRIDE, ColumnConfig, ColumnLayers
from saccade.nn.ablation import patch_embeddings
from saccade.nn.attention import Attention
from saccade.nn.kernels import dropout
from saccade.nn.layers import RMSNorm
from saccade.nn.linear import Linear
from saccade.nn.masks import Padding
from saccade.nn.recurrent import Recurrent
from saccade.nn.transformer import TransformerConfig


@dataclass(frozen=True)
class ConvolutionalConfig(ColumnConfig):
    """Shape of the convolutions and of the Transformer."""

    widths: tuple[int, ...] = (16, 32, 64)
    """channels of each stage; every stage halves the bands, the first two also the frames"""
    transformer: TransformerConfig = field(
        default_factory=lambda: TransformerConfig(
            dim=144, depth=4, heads=4, hidden=576, position="sinusoidal", dropout=0.1
        )
    )


@dataclass(frozen=True)
class PyramidConfig:
    """Shape of the pyramidal listener."""

    hidden: int = 128
    """width of the states of each direction"""
    depth: int = 3
    """layers above the first; each halves the number of positions"""
    dropout: float = 0.1
    """dropout probability between layers"""

    def __post_init__(self) -> None:
        for name in ("hidden", "depth"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, but is {getattr(self, name)}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, but is {self.dropout}")


class SpeechEncoder(nn.Module, abc.ABC):
    """An encoder of features; what reads its output knows its width and its stride only."""

    config: Any
    dim: int
    """width of the output vectors"""
    stride: int
    """frames of a position"""
    embedding_stride: int = 1
    """frames of one of the vectors that the first layer reads"""

    @abc.abstractmethod
    def forward(self, features: Tensor, keep: Tensor, *, states: list[Tensor] | None = None) -> Tensor:
        """Return the vectors (B, N, D) of features (B, N S, F), of which the positions `keep` (B, N) are real.

        `states` is filled with what each layer, if it were the last, would return.
        """

    def read(self, source: Tensor, keep: Tensor) -> Tensor:
        """Return the vectors (B, N, D), as a decoder reads them."""
        vectors: Tensor = self(source, keep)
        return vectors


class ConvolutionalEncoder(SpeechEncoder, ColumnLayers):
    """Convolutions over a spectrogram, then a Transformer over its columns."""

    def __init__(self, config: ConvolutionalConfig, bands: int) -> None:
        super().__init__()
        self.config, self.dim = config, config.transformer.dim
        self.stride = self.embedding_stride = STRIDE
        self.add_columns(config, bands)

    def forward(self, features: Tensor, keep: Tensor, *, states: list[Tensor] | None = None) -> Tensor:
        values = features.to(self.columns.weight.dtype).transpose(1, 2)[:, None]  # (B, 1, F, T)
        inner: list[Tensor] = []
        vectors = self.encode_columns(values, keep, None if states is None else inner)
        if states is not None:
            states += [*map(self.encoder.norm, inner[1:-1]), inner[-1]]
        return vectors


class PyramidEncoder(SpeechEncoder):
    """Bidirectional LSTMs, each of which reads two positions of the one below as one.

    Listen, attend and spell: https://arxiv.org/abs/1508.01211
    """

    def __init__(self, config: PyramidConfig, bands: int) -> None:
        super().__init__()
        self.config, self.dim, self.stride = config, 2 * config.hidden, 2**config.depth
        self.input = Linear(bands, self.dim)
        self.norm = RMSNorm(self.dim, gain=False)
        widths = [self.dim, *[2 * self.dim] * config.depth]
        self.layers = nn.ModuleList(Recurrent("lstm", width, config.hidden, bidirectional=True) for width in widths)

    def forward(self, features: Tensor, keep: Tensor, *, states: list[Tensor] | None = None) -> Tensor:
        x = patch_embeddings(self.norm(self.input(features.to(self.input.weight.dtype))))  # (B, T, D)
        for number, layer in enumerate(self.layers):
            if number:
                x = x.unflatten(1, (-1, 2)).flatten(2)  # (B, T / 2^number, 2 D)
            real = keep.repeat_interleave(self.stride >> number, dim=1)
            x, _ = layer(x, keep=real)
            x = dropout(x, self.config.dropout, self.training)
        if states is not None:
            states.append(x)
        return x


@dataclass(frozen=True)
class SpeechEncoderConfig:
    """Encoder and its shape; only the shape of the chosen encoder is used."""

    encoder: Literal["convolutional", "pyramid"] = "convolutional"
    """convolutional: convolutions and a Transformer; pyramid: the LSTMs of Listen, attend and spell"""
    convolutional: ConvolutionalConfig = field(default_factory=ConvolutionalConfig)
    pyramid: PyramidConfig = field(default_factory=PyramidConfig)


def build_speech_encoder(config: SpeechEncoderConfig, bands: int) -> SpeechEncoder:
    """Return a new encoder of features with this number of bands."""
    if config.encoder == "pyramid":
        return PyramidEncoder(config.pyramid, bands)
    return ConvolutionalEncoder(config.convolutional, bands)


class SpeechClassifier(nn.Module):
    """A learned query attends to the positions of an encoder, and an output layer reads what it gets."""

    def __init__(self, encoder: SpeechEncoder, classes: int, heads: int = 4) -> None:
        super().__init__()
        self.encoder = encoder
        self.query = nn.Parameter(torch.randn(1, 1, encoder.dim))
        self.cross = Attention(encoder.dim, heads, memory_dim=encoder.dim, bias=False)
        self.norm = RMSNorm(encoder.dim, gain=False)
        self.head = Linear(encoder.dim, classes)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, features: Tensor, keep: Tensor, labels: Tensor | None = None, smoothing: float = 0.0) -> Tensor:
        """Return the logits (B, classes), or with labels (B,) the mean loss."""
        logits = self.classify(self.encoder.read(features, keep), keep)
        if labels is None:
            return logits
        return nn.functional.cross_entropy(logits, labels, label_smoothing=smoothing)

    def classify(self, vectors: Tensor, keep: Tensor) -> Tensor:
        """Return the logits (B, classes) of the vectors (B, N, D) of the encoder."""
        query = self.query.to(vectors.dtype).expand(len(vectors), -1, -1)
        pooled = self.cross(query, vectors, mask=Padding(keep))[:, 0]  # (B, D)
        logits: Tensor = self.head(self.norm(pooled)).float()
        return logits
