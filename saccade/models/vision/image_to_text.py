"""Image to text: a decoder attends to the grid of an image encoder, word by word or letter by letter.

LSTM with additive attention: Show, attend and tell (https://arxiv.org/abs/1502.03044); or a Transformer decoder.
Shapes: B rows, N positions of the encoder (extra ones and the grid), T tokens, E encoder width, D decoder width.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from saccade.models.seq2seq.interface import Memory, Seq2Seq, Vocabularies
from saccade.models.seq2seq.recurrent import RecurrentDecoder, RecurrentDecoderConfig
from saccade.models.seq2seq.transformer import EmbeddedConfig, TransformerDecoder
from saccade.models.vision.encoder import VisionEncoder
from saccade.models.vision.lines import LineEncoder
from saccade.nn.ablation import patch_embeddings
from saccade.nn.ctc import CTCHead
from saccade.nn.kernels import dropout
from saccade.nn.layers import RMSNorm
from saccade.nn.linear import Linear
from saccade.nn.positions import Learned
from saccade.nn.transformer import Transformer


@dataclass(frozen=True)
class TextDecoderConfig(EmbeddedConfig):
    """Shape of a Transformer decoder."""

    depth: int = 2
    """layers"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.depth < 1:
            raise ValueError(f"depth must be at least 1, but is {self.depth}")


@dataclass(frozen=True)
class DecoderConfig:
    """Decoder and its shape; only the shape of the chosen decoder is used."""

    decoder: Literal["transformer", "lstm"] = "transformer"
    """transformer: cross-attention in every layer; lstm: one additive attention, as in Show, attend and tell"""
    transformer: TextDecoderConfig = field(default_factory=TextDecoderConfig)
    lstm: RecurrentDecoderConfig = field(
        default_factory=lambda: RecurrentDecoderConfig(dim=256, hidden=512, cell="lstm", dropout=0.3)
    )


class ImageToText(Seq2Seq):
    """A decoder over the positions of an image encoder."""

    encoder: VisionEncoder

    def add_memory(self, inputs: int, width: int, positions: int, dropout: float) -> None:
        """Add the layers that turn vectors of the encoder into a memory; with `positions`, each has an embedding."""
        self.project = Linear(inputs, width)
        self.memory_norm = RMSNorm(width, gain=False)
        self.position = Learned(positions, width) if positions else None
        self.memory_dropout = dropout

    def encode(self, source: Tensor, keep: Tensor) -> Memory:
        """Encode uint8 pixels (B, 3, H, W), or the vectors (B, N, E) of a frozen encoder that were computed before."""
        x = self.memory_norm(self.project(self._vectors(source, keep)))  # (B, N, D)
        if self.position is not None:
            x = x + self.position(0, x.shape[1], x.device).to(x.dtype)
        x = dropout(x, self.memory_dropout, self.training)
        real = keep[..., None]
        mean = (x * real).sum(1) / real.sum(1).clamp_min(1)  # (B, D)
        return Memory(x, keep, state=(mean,))

    def _vectors(self, source: Tensor, keep: Tensor) -> Tensor:
        if source.dtype != torch.uint8:
            return patch_embeddings(source.to(self.project.weight.dtype))
        lines = isinstance(self.encoder, LineEncoder)
        vectors: Tensor = self.encoder(source, keep=keep) if lines else self.encoder(source)
        return vectors


class TransformerImageToText(ImageToText, TransformerDecoder):
    """A Transformer decoder over an image."""

    def __init__(self, config: TextDecoderConfig, encoder: VisionEncoder, positions: int, vocabulary: int) -> None:
        sizes = Vocabularies(0, vocabulary)
        super().__init__(config, sizes)
        self.decoder = Transformer(config, config.dim)
        self.add_memory(encoder.dim, config.dim, positions, config.embedding_dropout)
        self.init_weights(sizes)
        self.encoder = encoder  # last: it has weights already


class RecurrentImageToText(ImageToText, RecurrentDecoder):
    """An LSTM with attention over an image; its first state comes from the mean of the grid."""

    def __init__(self, config: RecurrentDecoderConfig, encoder: VisionEncoder, positions: int, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.target = nn.Embedding(vocabulary, config.dim)
        self.add_memory(encoder.dim, config.hidden, positions, config.dropout)
        self.add_decoder(config.hidden, vocabulary, attention=True)
        self.encoder = encoder


def build_image_to_text(
    config: DecoderConfig, encoder: VisionEncoder, vocabulary: int, *, positions: int = 0, ctc_frames: int = 0
) -> ImageToText:
    """Return a new decoder over an encoder; `positions`: those of its output, if it does not know them itself.

    With `ctc_frames` it has a CTC head, which predicts that many labels or blanks at each position.
    """
    model: ImageToText
    if config.decoder == "lstm":
        model = RecurrentImageToText(config.lstm, encoder, positions, vocabulary)
    else:
        model = TransformerImageToText(config.transformer, encoder, positions, vocabulary)
    if ctc_frames:
        model.ctc = CTCHead(model.project.out_features, vocabulary, ctc_frames)
    return model
