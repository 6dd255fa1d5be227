"""Sequence-to-sequence interface: the base class of all encoder-decoder models, their memory and decoding state.

Shapes: B rows, S source tokens, T target tokens, D width, V vocabulary.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from saccade.nn.cache import KVCache
from saccade.nn.ctc import CTCHead
from saccade.nn.kernels import rdrop_loss, token_loss
from saccade.nn.layers import initialize_xavier, initialize_zero_residual
from saccade.nn.universal import Halting


@dataclass(frozen=True)
class Memory:
    """Encoded source: everything that the decoder may attend to."""

    values: Tensor  # (B, S, D)
    keep: Tensor  # (B, S), True for a real token
    state: tuple[Tensor, ...] = ()
    """final state of a recurrent encoder, rows first"""
    halting: list[Halting] = field(default_factory=list)
    """with adaptive computation time: the steps of each stack that ran on this memory"""

    def select(self, rows: Tensor) -> Memory:
        """Return the memory of some of the rows."""
        return Memory(self.values[rows], self.keep[rows], tuple(part[rows] for part in self.state))


@dataclass(frozen=True)
class Seq2SeqLoss:
    """Weights of the terms of the training loss; the default is plain cross-entropy."""

    smoothing: float = 0.0
    """label smoothing"""
    consistency: float = 0.0
    """R-Drop: weight of the divergence between two forward passes under different dropout"""
    ponder: float = 0.0
    """weight of the steps per token, for models with adaptive computation time"""
    ctc: float = 0.0
    """weight of the CTC loss of the memory, for models with a CTC head"""


class Seq2Seq(nn.Module, abc.ABC):
    """Encodes a source once, then predicts the next token at every target position."""

    head: nn.Linear

    def __init__(self) -> None:
        super().__init__()
        self.ctc: CTCHead | None = None
        """an output layer on the memory: its loss teaches the encoder before the decoder knows where to attend"""

    @abc.abstractmethod
    def encode(self, source: Tensor, keep: Tensor) -> Memory:
        """Encode the ids (B, S), or the pixels of images, of which the positions `keep` (B, S) are real."""

    @abc.abstractmethod
    def decode(self, ids: Tensor, memory: Memory, *, cache: KVCache | None = None) -> Tensor:
        """Return the input of `head` (B, T, D) after each of the target ids (B, T), which follow those in the cache."""

    def forward(
        self,
        source: Tensor,
        keep: Tensor,
        ids: Tensor,
        labels: Tensor | None = None,
        loss: Seq2SeqLoss = Seq2SeqLoss(),
    ) -> Tensor:
        """Teacher forcing: logits (B, T, V), or with labels (B, T; -1 ignored) the mean training loss."""
        if labels is None:
            logits: Tensor = self.head(self.decode(ids, self.encode(source, keep)))
            return logits
        if loss.consistency:  # two passes as one batch
            source, keep, ids, labels = (part.repeat(2, 1) for part in (source, keep, ids, labels))
        memory = self.encode(source, keep)
        real = labels >= 0
        features, targets = self.decode(ids, memory)[real], labels[real]  # only real targets reach the output layer
        if loss.consistency:
            total = rdrop_loss(features, self.head.weight, targets, loss.smoothing, loss.consistency)
        else:
            total = token_loss(features, self.head.weight, targets, loss.smoothing, self.head.bias)
        if loss.ponder:
            for halting, tokens in zip(memory.halting, (keep, real), strict=False):
                total = total + loss.ponder * halting.cost[tokens].sum() / len(targets)
        if loss.ctc and self.ctc is not None:
            inputs = ids[:, 1:].masked_fill(~real[:, 1:], -1)  # the labels without the end token
            total = total + loss.ctc * self.ctc.loss(memory.values, keep, inputs, len(targets))
        return total


@dataclass(frozen=True)
class Vocabularies:
    """Vocabulary sizes, 0 for a source that is not text; joint: source and target share one vocabulary."""

    source: int
    target: int
    joint: bool = False


def init_weights(model: nn.Module, init: Literal["zero_residual", "xavier"]) -> None:
    """Initialize the weights of a model."""
    if init == "xavier":
        initialize_xavier(model)
    else:
        initialize_zero_residual(model)


class DecoderState:
    """State of incremental decoding with any model here, as the searches in `decode` need it.

    Rows are the beams of a sentence, one sentence after the other; the beams of a sentence share its memory.
    """

    def __init__(self, model: Seq2Seq, memory: Memory, max_positions: int) -> None:
        self.model, self.memory, self.cache = model, memory, KVCache(max_positions)

    @torch.no_grad()
    def step(self, ids: Tensor) -> Tensor:
        """Feed the next ids (R, T) of every row; returns the logits (R, V) after the last one."""
        features = self.model.decode(ids.to(self.memory.values.device), self.memory, cache=self.cache)
        logits: Tensor = self.model.head(features[:, -1])
        return logits

    def reorder(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Replace row i by row rows[i]; keep only these sentences (None: all)."""
        if sentences is not None:
            self.memory = self.memory.select(sentences)
        self.cache.reorder(rows, sentences, shared=True)
