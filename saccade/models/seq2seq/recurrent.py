"""RNN encoder-decoder: https://arxiv.org/abs/1409.3215; with attention: https://arxiv.org/abs/1409.0473.

Shapes: B rows, S source tokens, T target tokens, D embedding width, H state width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from saccade.models.seq2seq.interface import Memory, Seq2Seq, Vocabularies
from saccade.nn.ablation import patch_embeddings
from saccade.nn.attention import Additive, Attention, Bilinear, Dot, Score
from saccade.nn.cache import KVCache
from saccade.nn.kernels import dropout
from saccade.nn.layers import RMSNorm
from saccade.nn.linear import Linear
from saccade.nn.location import LocationAttention
from saccade.nn.masks import Padding
from saccade.nn.recurrent import Cell, Recurrent, State


@dataclass(frozen=True)
class RecurrentDecoderConfig:
    """Shape of a recurrent decoder."""

    dim: int = 192
    """width of the embeddings"""
    hidden: int = 256
    """width of the hidden states"""
    depth: int = 1
    """layers"""
    cell: Cell = "gru"
    """rnn, gru or lstm"""
    score: Literal["additive", "dot", "bilinear", "location"] = "additive"
    """score function of the attention, where there is one; location: additive, and it depends on where the tokens
    before attended, for sounds"""
    dropout: float = 0.2
    """dropout probability, of embeddings and before the output layer"""

    def __post_init__(self) -> None:
        for name in ("dim", "hidden", "depth"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, but is {getattr(self, name)}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, but is {self.dropout}")


@dataclass(frozen=True)
class RecurrentConfig(RecurrentDecoderConfig):
    """Shape of a recurrent encoder and decoder."""

    depth: int = 1
    """layers of the encoder and of the decoder"""
    bidirectional: bool = True
    """read the source in both directions"""


SCORES: dict[str, Callable[[int], Score]] = {"additive": Additive, "dot": lambda width: Dot(), "bilinear": Bilinear}


class RecurrentDecoder(Seq2Seq):
    """A decoder that reads one vector of the source, or with attention a weighted mean of its memory at every step.

    `Memory.state` holds the vector of the source, from which the first state is computed.
    """

    config: RecurrentDecoderConfig
    target: nn.Embedding

    def add_decoder(self, width: int, vocabulary: int, *, attention: bool) -> None:
        """Add the layers for a memory, and a vector of the source, of this width."""
        config = self.config
        self.bridge = Linear(width, config.depth * config.hidden)
        self.attention: Attention | None = None
        if attention and config.score == "location":
            self.attention = LocationAttention(config.hidden, width)
        elif attention:
            self.attention = Attention(config.hidden, 1, memory_dim=width, score=SCORES[config.score](config.hidden))
        context = config.hidden if attention else width
        self.decoder = Recurrent(config.cell, config.dim + context, config.hidden, depth=config.depth)
        self.merge = Linear(config.hidden + context + config.dim, config.dim)
        self.norm = RMSNorm(config.dim, gain=False)
        self.head = Linear(config.dim, vocabulary, bias=False)
        nn.init.zeros_(self.head.weight)

    def decode(self, ids: Tensor, memory: Memory, *, cache: KVCache | None = None) -> Tensor:
        x = self.drop(patch_embeddings(self.norm(self.target(ids))))  # (B, T, D)
        state = self._state(memory, len(ids), cache)
        if self.attention is None:
            fixed = _expand(memory.state[0], len(ids))  # (B, 2H)
            context = fixed[:, None].expand(-1, ids.shape[1], -1)
            states, state = self.decoder(torch.cat((x, context), dim=-1), state)
        else:
            states, context, state = self._attend(x, memory, state, cache)
        if cache is not None:
            cache.layer("state").state = tuple(part.transpose(0, 1) for part in state)
            cache.advance(ids.shape[1])
        merged = torch.tanh(self.merge(torch.cat((states, context, x), dim=-1)))
        return self.drop(merged)  # (B, T, D)

    def _attend(self, x: Tensor, memory: Memory, state: State, cache: KVCache | None) -> tuple[Tensor, Tensor, State]:
        """Decode token by token: the previous state attends to the source, then the cell reads token and context."""
        assert self.attention is not None
        projected = (cache or KVCache(1)).layer("memory")  # keys and values of the source are projected once
        mask = Padding(memory.keep).lower(1, memory.values.shape[1], 0, x.device)
        states, contexts = [], []
        for token in x.unbind(1):  # (B, D)
            query = state[0][-1][:, None]  # (B, 1, H)
            context = self.attention(query, memory.values, mask=mask, cache=projected)[:, 0]  # (B, H)
            out, state = self.decoder.step(torch.cat((token, context), dim=-1), state)
            states.append(out)
            contexts.append(context)
        return torch.stack(states, dim=1), torch.stack(contexts, dim=1), state

    def _state(self, memory: Memory, rows: int, cache: KVCache | None) -> State:
        """Return the decoder state: from the cache, or at the first step from the vector of the source."""
        if cache is not None and cache.layer("state").state:
            return tuple(part.transpose(0, 1).contiguous() for part in cache.layer("state").state)
        first = torch.tanh(self.bridge(_expand(memory.state[0], rows)))  # (B, depth x H)
        h = first.unflatten(1, (self.config.depth, -1)).transpose(0, 1).contiguous()
        return (h, torch.zeros_like(h)) if self.config.cell == "lstm" else (h,)

    def drop(self, x: Tensor) -> Tensor:
        """Apply the dropout of the config."""
        return dropout(x, self.config.dropout, self.training)


class RecurrentTranslator(RecurrentDecoder):
    """The decoder reads one vector of the source, c = h_T, or with attention a weighted mean of all h_i per step."""

    config: RecurrentConfig

    def __init__(self, config: RecurrentConfig, sizes: Vocabularies, *, attention: bool) -> None:
        super().__init__()
        self.config = config
        width = config.hidden * (2 if config.bidirectional else 1)
        self.source = nn.Embedding(sizes.source, config.dim)
        self.target = nn.Embedding(sizes.target, config.dim)
        self.encoder = Recurrent(
            config.cell, config.dim, config.hidden, depth=config.depth, bidirectional=config.bidirectional
        )
        self.add_decoder(width, sizes.target, attention=attention)

    def encode(self, source: Tensor, keep: Tensor) -> Memory:
        x = self.drop(patch_embeddings(self.norm(self.source(source))))  # (B, S, D)
        values, last = self.encoder(x, keep=keep)
        directions = 2 if self.config.bidirectional else 1
        final = last[0][-directions:].transpose(0, 1).flatten(1)  # (B, H or 2H): h_T, and h_1 of the backward direction
        return Memory(values, keep, state=(final,))


def _expand(state: Tensor, rows: int) -> Tensor:
    """Repeat the state of each source for its beams."""
    return state if len(state) == rows else state.repeat_interleave(rows // len(state), dim=0)
