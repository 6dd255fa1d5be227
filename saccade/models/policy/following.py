"""Instruction following: words to actions, one after another, with a look at the surroundings at every step.

Listen, Attend, and Walk (https://arxiv.org/abs/1506.04089): a bidirectional LSTM reads the instruction, and an LSTM
that attends to its words acts. Here what is around the walker is attended to as well.
Shapes: B episodes, L words, T steps, N cells of a view, W words of landmarks, D width, A actions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.nn.ablation import patch_embeddings
from saccade.nn.attention import Attention, Cosine, Heads
from saccade.nn.cache import KVCache, LayerCache
from saccade.nn.kernels import dropout
from saccade.nn.layers import FeedForward, RMSNorm, initialize_zero_residual
from saccade.nn.linear import Linear
from saccade.nn.masks import Padding
from saccade.nn.recurrent import Recurrent, State
from saccade.nn.transformer import Transformer, TransformerConfig

HEADINGS = 4
TERRAIN = 4  # the first words of cells: outside, wall, floor, door
NEAR = 3  # cells each way that the decoder reads without attention: its own and those around it


@dataclass(frozen=True)
class FollowerConfig:
    """Shape of a model that follows instructions."""

    encoder: Literal["lstm", "transformer"] = "lstm"
    """what reads the instruction; lstm: in both directions, as published"""
    dim: int = 128
    """width of words, states and attention"""
    heads: int = 4
    """heads of every attention layer"""
    depth: int = 1
    """layers of the encoder"""
    hops: int = 2
    """how often the surroundings are attended to before an action"""
    view: int = 9
    """cells of the map that the walker sees, each way; odd"""
    view_width: int = 16
    """features of a head that attends to the surroundings: a cell is described by a few words"""
    channels: int = 32
    """features of the terrain around a cell, by a convolution"""
    dropout: float = 0.1
    """dropout probability of words and before the output layer"""

    def __post_init__(self) -> None:
        for name in ("dim", "heads", "depth", "hops", "view_width", "channels"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, but is {getattr(self, name)}")
        if self.dim % (2 * self.heads):
            raise ValueError(f"dim must be a multiple of 2 heads, but {self.dim} is not a multiple of {2 * self.heads}")
        if self.view < NEAR or self.view % 2 == 0:
            raise ValueError(f"view must be odd and at least {NEAR}, but is {self.view}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, but is {self.dropout}")


class Observations(NamedTuple):
    """What is observed before each action."""

    cells: Tensor  # (B, T, N, W) uint8: words of the cells in sight
    heading: Tensor  # (B, T)
    previous: Tensor  # (B, T), the action before; A: none

    def at(self, step: int) -> Observations:
        """Return one step."""
        return Observations(*(value[:, step : step + 1] for value in self))


class Instruction(NamedTuple):
    """An encoded instruction."""

    memory: Tensor  # (B, L, 2D): embedding and encoding of each word (the multi-level aligner)
    keep: Tensor  # (B, L), True for a real word
    cache: LayerCache
    """keys and values of the words, which are projected once"""


class InstructionFollower(nn.Module):
    """Logits of the actions: the state attends to the words, then what was read to the cells around the walker."""

    def __init__(self, config: FollowerConfig, vocabulary: int, landmarks: int, actions: int) -> None:
        """`vocabulary`: words of instructions. `landmarks`: words that describe cells."""
        super().__init__()
        self.config, self.actions = config, actions
        dim = config.dim
        self.embedding = nn.Embedding(vocabulary, dim)
        self.norm = RMSNorm(dim, gain=False)
        if config.encoder == "lstm":
            self.encoder: Recurrent | Transformer = Recurrent(
                "lstm", dim, dim // 2, depth=config.depth, bidirectional=True
            )
        else:
            shape = TransformerConfig(dim, config.depth, config.heads, hidden=2 * dim, dropout=config.dropout)
            self.encoder = Transformer(shape)
        self.bridge = Linear(dim, dim)
        self.previous = nn.Embedding(actions + 1, dim)
        self.near = Linear(NEAR * NEAR * landmarks + HEADINGS, dim)
        self.words = Attention(dim, config.heads, memory_dim=2 * dim, score=Cosine())
        self.decoder = Recurrent("lstm", 2 * dim, dim)
        self.merge = Linear(3 * dim, dim)
        # Of the terrain alone: a landmark is the sum of its words, so that no pair of them can be learnt by heart.
        self.convolution = nn.Conv2d(TERRAIN + 1, config.channels, NEAR, padding=NEAR // 2)
        cell = landmarks + config.channels + 2 * config.view
        for hop in range(1, config.hops + 1):
            heads = Heads(config.heads, width=config.view_width)
            attention = Attention(dim, heads, memory_dim=cell)
            self.add_module(f"view{hop}", attention)
            self.add_module(f"feed{hop}", FeedForward(dim, 2 * dim))
        self.head = Linear(dim, actions)
        for name, module in self.named_children():
            if name == "head":  # its own name does not say that it is one
                nn.init.zeros_(self.head.weight)
                nn.init.zeros_(self.head.bias)
            else:
                initialize_zero_residual(module)
        assert isinstance(self.words.out, Linear)
        nn.init.normal_(self.words.out.weight, std=1 / math.sqrt(dim))  # the only way of the words to the actions
        places = torch.cat(
            [torch.eye(config.view).repeat_interleave(config.view, 0), torch.eye(config.view).repeat(config.view, 1)], 1
        )
        self.register_buffer("places", places, persistent=False)  # (N, 2V): row and column of each cell

    places: Tensor

    def encode(self, ids: Tensor, keep: Tensor) -> tuple[Instruction, State]:
        """Return the encoded instructions (B, L), and the first state of the decoder."""
        words = patch_embeddings(self.norm(self.embedding(ids)))  # (B, L, D)
        words = dropout(words, self.config.dropout, self.training)
        if isinstance(self.encoder, Recurrent):
            encoded, _ = self.encoder(words, keep=keep)
        else:
            encoded = self.encoder(words, mask=Padding(keep)) * keep[..., None]
        mean = encoded.sum(1) / keep.sum(1, keepdim=True)
        first = torch.tanh(self.bridge(mean))[None]  # (1, B, D)
        memory = torch.cat((words, encoded), dim=-1)
        return Instruction(memory, keep, KVCache(1).layer("words")), (first, torch.zeros_like(first))

    def recur(self, instruction: Instruction, seen: Observations, state: State) -> tuple[Tensor, State]:
        """Return what the decoder knows at each step (B, T, D), step by step, and its last state."""
        near = self.near(self._nearby(seen))  # (B, T, D)
        inputs = self.norm(near) + self.previous(seen.previous)
        mask = Padding(instruction.keep).lower(1, instruction.memory.shape[1], 0, near.device)
        states, contexts = [], []
        for observed in inputs.unbind(1):
            query = (state[0][-1] + observed)[:, None]  # what is seen now tells which clause comes next
            context = self.words(query, instruction.memory, mask=mask, cache=instruction.cache)[:, 0]  # (B, D)
            out, state = self.decoder.step(torch.cat((context, observed), dim=-1), state)
            states.append(out)
            contexts.append(context)
        parts = (torch.stack(states, dim=1), torch.stack(contexts, dim=1), inputs)
        return self.merge(torch.cat(parts, dim=-1)), state

    def decide(self, states: Tensor, cells: Tensor) -> list[Tensor]:
        """Return the logits (M, A) after each hop of the `states` (M, D) of steps that see cells (M, N, W)."""
        terrain = cells[..., :TERRAIN].to(states.dtype)
        terrain = torch.cat((terrain, 1 - terrain.amax(-1, keepdim=True)), dim=-1)  # (M, N, 5): the last, an object
        grid = terrain.unflatten(1, (self.config.view, self.config.view)).permute(0, 3, 1, 2)
        around = F.relu(self.convolution(grid.contiguous(memory_format=torch.channels_last)))  # (M, C, V, V)
        place = self.places.to(states.dtype).expand(len(cells), -1, -1)
        memory = torch.cat((cells.to(states.dtype), around.permute(0, 2, 3, 1).flatten(1, 2), place), dim=-1)
        u, logits = states[:, None], []
        for hop in range(1, self.config.hops + 1):
            u = u + self.get_submodule(f"view{hop}")(self.norm(u), memory)
            u = u + self.get_submodule(f"feed{hop}")(self.norm(u))
            final = dropout(self.norm(u[:, 0]), self.config.dropout, self.training)
            logits.append(self.head(final))
        return logits

    def forward(self, ids: Tensor, keep: Tensor, seen: Observations, targets: Tensor | None = None) -> Tensor:
        """Return the logits (B, T, A) of the actions of whole episodes, or the mean loss.

        `targets` (B, T) are the actions of the expert; -1: the episode is over.
        """
        instruction, state = self.encode(ids, keep)
        states, _ = self.recur(instruction, seen, state)
        logits = self.decide(states.flatten(0, 1), seen.cells.flatten(0, 1))[-1]  # (B T, A)
        if targets is None:
            return logits.view(*seen.heading.shape, -1)
        return F.cross_entropy(logits.float(), targets.flatten(), ignore_index=-1)

    def step(self, instruction: Instruction, seen: Observations, state: State) -> tuple[list[Tensor], State]:
        """Return the logits (B, A) of one more step after each hop, and the next state."""
        states, state = self.recur(instruction, seen, state)
        return self.decide(states[:, 0], seen.cells[:, 0]), state

    def _nearby(self, seen: Observations) -> Tensor:
        """Return the words of the nearest cells and the heading as one vector (B, T, 9W + 4)."""
        middle, reach = self.config.view // 2, NEAR // 2
        grid = seen.cells.unflatten(2, (self.config.view, self.config.view))
        inner = slice(middle - reach, middle + reach + 1)
        near = grid[:, :, inner, inner].flatten(2).to(self.merge.weight.dtype)
        vector: Tensor = torch.cat((near, F.one_hot(seen.heading, HEADINGS).to(near.dtype)), dim=-1)
        return vector
