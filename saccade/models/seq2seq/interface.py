"""Sequence to sequence: what every architecture that reads a source and writes a target has in common.

Shapes: B rows, S source tokens, T target tokens, D width, V vocabulary.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from saccade.nn.cache import KVCache
from saccade.nn.layers import initialise, initialise_xavier
from saccade.nn.universal import Halting


@dataclass(frozen=True)
class Memory:
    """What was read of a source: everything that decoding may look at."""

    values: Tensor  # (B, S, D)
    keep: Tensor  # (B, S), True for a real token
    summary: tuple[Tensor, ...] = ()
    """the last state of a recurrent encoder, rows first"""
    halting: list[Halting] = field(default_factory=list)
    """where tokens choose how many steps they take: what each stack that ran on this memory did"""

    def select(self, rows: Tensor) -> Memory:
        """The memory of some of the rows."""
        return Memory(self.values[rows], self.keep[rows], tuple(part[rows] for part in self.summary))


class Seq2Seq(nn.Module, abc.ABC):
    """Reads a source once, then says at every target position how likely each token is to come next."""

    head: nn.Linear

    @abc.abstractmethod
    def encode(self, source: Tensor, keep: Tensor) -> Memory:
        """Read the ids (B, S) of which `keep` are real."""

    @abc.abstractmethod
    def decode(self, ids: Tensor, memory: Memory, *, cache: KVCache | None = None) -> Tensor:
        """Features (B, T, D) for `head` after each of the target ids (B, T), which follow those in the cache."""

    def forward(self, source: Tensor, keep: Tensor, ids: Tensor) -> Tensor:
        """Teacher forcing: logits (B, T, V) after each of the given target ids."""
        logits: Tensor = self.head(self.decode(ids, self.encode(source, keep)))
        return logits


@dataclass(frozen=True)
class Vocabularies:
    """How many tokens there are on each side; joint: both sides share one vocabulary."""

    source: int
    target: int
    joint: bool = False


def begin_weights(model: nn.Module, begin: Literal["silent", "xavier"]) -> None:
    """The first weights of a model."""
    if begin == "xavier":
        initialise_xavier(model)
    else:
        initialise(model)


class DecoderState:
    """Targets being written: a step function for the searches in `decode`, over any model here.

    Rows are the beams of a sentence, one sentence after the other; the beams of a sentence share its memory.
    """

    def __init__(self, model: Seq2Seq, memory: Memory, max_positions: int) -> None:
        self.model, self.memory, self.cache = model, memory, KVCache(max_positions)

    @torch.no_grad()
    def step(self, ids: Tensor) -> Tensor:
        """The next ids (R, T) of every row -> logits (R, V) of what follows the last one."""
        features = self.model.decode(ids.to(self.memory.values.device), self.memory, cache=self.cache)
        logits: Tensor = self.model.head(features[:, -1])
        return logits

    def reorder(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Row i goes on as row rows[i] did; only these sentences stay (None: all)."""
        if sentences is not None:
            self.memory = self.memory.select(sentences)
        self.cache.reorder(rows, sentences, shared=True)
