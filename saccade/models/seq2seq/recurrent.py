"""RNN encoder-decoder, without attention (https://arxiv.org/abs/1409.3215) and with it (https://arxiv.org/abs/1409.0473).

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
from saccade.nn.masks import Padding
from saccade.nn.recurrent import Cell, Recurrent, State


@dataclass(frozen=True)
class RecurrentConfig:
    """The shape of a recurrent encoder and decoder."""

    dim: int = 192
    """width of the embeddings"""
    state: int = 256
    """width of the states"""
    depth: int = 1
    """layers of the encoder and of the decoder"""
    cell: Cell = "gru"
    """rnn, gru or lstm"""
    both_ways: bool = True
    """the encoder reads forwards and backwards"""
    score: Literal["additive", "dot", "bilinear"] = "additive"
    """fit of a decoder state and a source token, where there is attention"""
    dropout: float = 0.2
    """share of values dropped in training, of embeddings and of what the output layer reads"""

    def __post_init__(self) -> None:
        for name in ("dim", "state", "depth"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, but is {getattr(self, name)}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, but is {self.dropout}")


SCORES: dict[str, Callable[[int], Score]] = {"additive": Additive, "dot": lambda width: Dot(), "bilinear": Bilinear}


class RecurrentTranslator(Seq2Seq):
    """The decoder knows the source by one vector, c = h_T, or with attention by a new mean of all h_i at each step."""

    def __init__(self, config: RecurrentConfig, sizes: Vocabularies, *, attends: bool) -> None:
        super().__init__()
        self.config = config
        width = config.state * (2 if config.both_ways else 1)
        self.source = nn.Embedding(sizes.source, config.dim)
        self.target = nn.Embedding(sizes.target, config.dim)
        self.encoder = Recurrent(config.cell, config.dim, config.state, depth=config.depth, both_ways=config.both_ways)
        self.bridge = nn.Linear(width, config.depth * config.state)
        self.attention: Attention | None = None
        if attends:
            self.attention = Attention(config.state, 1, memory_dim=width, score=SCORES[config.score](config.state))
        context = config.state if attends else width
        self.decoder = Recurrent(config.cell, config.dim + context, config.state, depth=config.depth)
        self.merge = nn.Linear(config.state + context + config.dim, config.dim)
        self.norm = RMSNorm(config.dim, gain=False)
        self.head = nn.Linear(config.dim, sizes.target, bias=False)
        nn.init.zeros_(self.head.weight)

    def encode(self, source: Tensor, keep: Tensor) -> Memory:
        x = self._drop(patch_embeddings(self.norm(self.source(source))))  # (B, S, D)
        values, last = self.encoder(x, keep=keep)
        ways = 2 if self.config.both_ways else 1
        final = last[0][-ways:].transpose(0, 1).flatten(1)  # (B, H or 2H): h_T, and h_1 of the other way
        return Memory(values, keep, summary=(final,))

    def decode(self, ids: Tensor, memory: Memory, *, cache: KVCache | None = None) -> Tensor:
        x = self._drop(patch_embeddings(self.norm(self.target(ids))))  # (B, T, D)
        state = self._state(memory, len(ids), cache)
        if self.attention is None:
            fixed = _spread(memory.summary[0], len(ids))  # (B, 2H)
            context = fixed[:, None].expand(-1, ids.shape[1], -1)
            states, state = self.decoder(torch.cat((x, context), dim=-1), state)
        else:
            states, context, state = self._attend(x, memory, state, cache)
        if cache is not None:
            cache.layer("state").state = tuple(part.transpose(0, 1) for part in state)
            cache.advance(ids.shape[1])
        merged = torch.tanh(self.merge(torch.cat((states, context, x), dim=-1)))
        return self._drop(merged)  # (B, T, D)

    def _attend(self, x: Tensor, memory: Memory, state: State, cache: KVCache | None) -> tuple[Tensor, Tensor, State]:
        """Token after token: the state before it looks at the source, then reads the token and what was seen."""
        assert self.attention is not None
        kept = (cache or KVCache(1)).layer("memory")  # keys and values of the source are projected once
        mask = Padding(memory.keep).lower(1, memory.values.shape[1], 0, x.device)
        states, contexts = [], []
        for token in x.unbind(1):  # (B, D)
            query = state[0][-1][:, None]  # (B, 1, H)
            context = self.attention(query, memory.values, mask=mask, cache=kept)[:, 0]  # (B, H)
            out, state = self.decoder.step(torch.cat((token, context), dim=-1), state)
            states.append(out)
            contexts.append(context)
        return torch.stack(states, dim=1), torch.stack(contexts, dim=1), state

    def _state(self, memory: Memory, rows: int, cache: KVCache | None) -> State:
        """The state of the decoder: from the cache, or at the beginning made of the encoder's last."""
        if cache is not None and cache.layer("state").state:
            return tuple(part.transpose(0, 1).contiguous() for part in cache.layer("state").state)
        first = torch.tanh(self.bridge(_spread(memory.summary[0], rows)))  # (B, depth x H)
        h = first.unflatten(1, (self.config.depth, -1)).transpose(0, 1).contiguous()
        return (h, torch.zeros_like(h)) if self.config.cell == "lstm" else (h,)

    def _drop(self, x: Tensor) -> Tensor:
        return dropout(x, self.config.dropout, self.training)


def _spread(summary: Tensor, rows: int) -> Tensor:
    """One summary for each row, where beams share a source."""
    return summary if len(summary) == rows else summary.repeat_interleave(rows // len(summary), dim=0)
