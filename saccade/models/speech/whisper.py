"""Whisper: a log-mel spectrogram to text (https://arxiv.org/abs/2212.04356).

Two convolutions halve the frame rate; a Transformer encodes the frames, another one decodes the text. Shapes: B rows,
M mel bins, F frames of the spectrogram, S = F / 2 positions, T tokens, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.models.seq2seq.interface import Memory, Vocabularies
from saccade.models.seq2seq.transformer import EmbeddedConfig, TransformerDecoder
from saccade.nn.ablation import patch_embeddings
from saccade.nn.cache import KVCache
from saccade.nn.kernels import dropout
from saccade.nn.masks import Causal
from saccade.nn.transformer import Transformer, TransformerConfig

STRIDE = 2  # frames of the spectrogram by position


@dataclass(frozen=True)
class WhisperConfig:
    """Shape of the encoder and of the decoder."""

    encoder: TransformerConfig
    decoder: EmbeddedConfig
    mels: int = 80
    """mel bins of the spectrogram"""
    vocabulary: int = 51_864
    """rows of the output layer"""

    def __post_init__(self) -> None:
        for name in ("mels", "vocabulary"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, but is {getattr(self, name)}")
        if self.encoder.dim != self.decoder.dim:
            raise ValueError(
                f"the dim of encoder and decoder must be equal, but are {self.encoder.dim} and {self.decoder.dim}"
            )

    @property
    def depth(self) -> int:
        """Number of layers."""
        return self.encoder.depth + self.decoder.depth

    @property
    def tie_embeddings(self) -> bool:
        """Whether the output layer and the embedding of the text are one matrix."""
        return self.decoder.tie_embeddings


class FrameConvolution(nn.Conv1d):
    """A convolution over three frames and a GELU: (B, M, F) -> (B, D, F / stride)."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__(inputs, outputs, 3, stride, padding=1)

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(super().forward(input))


class Whisper(TransformerDecoder):
    """Encoder of a spectrogram and decoder of its text."""

    def __init__(self, config: WhisperConfig) -> None:
        sizes = Vocabularies(0, config.vocabulary)
        super().__init__(config.decoder, sizes)
        self.shape = config
        self.frames = FrameConvolution(config.mels, config.encoder.dim)
        self.halve = FrameConvolution(config.encoder.dim, config.encoder.dim, STRIDE)
        self.encoder = Transformer(config.encoder)
        self.decoder = Transformer(config.decoder, config.encoder.dim)
        self.init_weights(sizes)
        if self.encoder.position is not None:
            self.encoder.position.requires_grad_(False)  # sinusoids, as published

    @property
    def positions(self) -> int:
        """Positions of the encoder: half as many as there are frames in a window."""
        return self.shape.encoder.max_positions

    def encode(self, source: Tensor, keep: Tensor) -> Memory:
        """Encode spectrograms (B, M, F) of whole windows: silence is part of the input, so that every position counts.

        `keep` (B, S) is all true.
        """
        if source.shape[2] != STRIDE * self.positions:
            raise ValueError(f"a window must have {STRIDE * self.positions} frames, but has {source.shape[2]}")
        x = self.halve(self.frames(source)).transpose(1, 2)  # (B, S, D)
        x = patch_embeddings(x)
        return Memory(self.encoder(dropout(x, self.shape.encoder.dropout, self.training)), keep)

    def encode_windows(self, source: Tensor) -> Memory:
        """Encode spectrograms (B, M, F)."""
        keep = torch.ones(len(source), self.positions, dtype=torch.bool, device=source.device)
        return self.encode(source, keep)

    def decode(self, ids: Tensor, memory: Memory, *, cache: KVCache | None = None) -> Tensor:
        out: Tensor = self.decoder(self.embed(self.target, ids), memory.values, mask=Causal(), cache=cache)
        return out

    def embed(self, table: nn.Embedding, ids: Tensor) -> Tensor:
        embedded = patch_embeddings(table(ids))
        return dropout(embedded, self.config.embedding_dropout, self.training)  # (B, T, D)
