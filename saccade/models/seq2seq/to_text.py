"""Images and sounds to text: a decoder attends to the positions of any encoder, word by word or letter by letter.

LSTM with additive attention, as in Show, attend and tell (https://arxiv.org/abs/1502.03044), on images and on sounds;
or a Transformer decoder. Listen, attend and spell (https://arxiv.org/abs/1508.01211) also has an LSTM, but scores a key
by the dot product of two projections.
Shapes: B rows, N positions of the encoder (of an image: extra ones and the grid), T tokens, E encoder width, D decoder
width.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from torch import Tensor, nn

from saccade.models.seq2seq.interface import Memory, Seq2Seq, Vocabularies
from saccade.models.seq2seq.recurrent import RecurrentDecoder, RecurrentDecoderConfig
from saccade.models.seq2seq.transformer import EmbeddedConfig, TransformerDecoder
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


class SourceEncoder(Protocol):
    """An encoder of images or sounds."""

    @property
    def dim(self) -> int:
        """Width of the output vectors."""

    def read(self, source: Tensor, keep: Tensor) -> Tensor:
        """Return the vectors (B, N, E) of a batch of sources, of which the positions `keep` (B, N) are real."""


class ToText(Seq2Seq):
    """A decoder over the positions of an encoder."""

    encoder: SourceEncoder

    def add_memory(self, inputs: int, width: int, positions: int, dropout: float) -> None:
        """Add the layers that turn vectors of the encoder into a memory; with `positions`, each has an embedding."""
        self.project = Linear(inputs, width)
        self.memory_norm = RMSNorm(width, gain=False)
        self.position = Learned(positions, width) if positions else None
        self.memory_dropout = dropout

    def encode(self, source: Tensor, keep: Tensor) -> Memory:
        """Encode what the encoder reads: pixels (B, 3, H, W) or features of sounds (B, T, F)."""
        x = self.memory_norm(self.project(self.encoder.read(source, keep)))  # (B, N, D)
        if self.position is not None:
            x = x + self.position(0, x.shape[1], x.device).to(x.dtype)
        x = dropout(x, self.memory_dropout, self.training)
        real = keep[..., None]
        mean = (x * real).sum(1) / real.sum(1).clamp_min(1)  # (B, D)
        return Memory(x, keep, state=(mean,))


class TransformerToText(ToText, TransformerDecoder):
    """A Transformer decoder over an encoder."""

    def __init__(self, config: TextDecoderConfig, encoder: SourceEncoder, positions: int, vocabulary: int) -> None:
        sizes = Vocabularies(0, vocabulary)
        super().__init__(config, sizes)
        self.decoder = Transformer(config, config.dim)
        self.add_memory(encoder.dim, config.dim, positions, config.embedding_dropout)
        self.init_weights(sizes)
        self.encoder = encoder  # last: it has weights already


class RecurrentToText(ToText, RecurrentDecoder):
    """An LSTM with attention over an encoder; its first state comes from the mean of the positions."""

    def __init__(self, config: RecurrentDecoderConfig, encoder: SourceEncoder, positions: int, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.target = nn.Embedding(vocabulary, config.dim)
        self.add_memory(encoder.dim, config.hidden, positions, config.dropout)
        self.add_decoder(config.hidden, vocabulary, attention=True)
        self.encoder = encoder


def build_to_text(
    config: DecoderConfig, encoder: SourceEncoder, vocabulary: int, *, positions: int = 0, ctc_frames: int = 0
) -> ToText:
    """Return a new decoder over an encoder; `positions`: those of its output, if it does not know them itself.

    With `ctc_frames` it has a CTC head, which predicts that many labels or blanks at each position.
    """
    model: ToText
    if config.decoder == "lstm":
        model = RecurrentToText(config.lstm, encoder, positions, vocabulary)
    else:
        model = TransformerToText(config.transformer, encoder, positions, vocabulary)
    if ctc_frames:
        model.ctc = CTCHead(model.project.out_features, vocabulary, ctc_frames)
    return model
