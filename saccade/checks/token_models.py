"""Token models: one view of everything that reads a sequence and returns a vector or logits for each position.

A language model, an encoder, the decoder of an encoder-decoder model, and a policy over the steps of an episode.
Shapes: B rows, T positions, V outputs.
"""

from __future__ import annotations

import abc
import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from saccade.models.policy.policy import Policy
from saccade.models.seq2seq.interface import DecoderState, Memory, Seq2Seq
from saccade.models.text.bert import Bert
from saccade.models.text.gpt import GPT
from saccade.nn.cache import KVCache

SEED = 20_260_118
LENGTHS = (1, 2, 3, 5, 12, 33)  # of examples
MOST = 96  # positions of a state of decoding


@dataclass(frozen=True)
class SpecialToken:
    """A special token as the model uses it, and as the tokenizer names it (None: it has no such token)."""

    role: str
    used: int
    named: int | None


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer beside the embedding of the network it belongs to."""

    name: str
    tokens: int
    """ids of the tokenizer: 0 to tokens - 1"""
    rows: int
    """of the embedding"""
    outputs: int | None = None
    """rows of the output layer; None: there is none"""
    specials: tuple[SpecialToken, ...] = ()
    ends: tuple[int, ...] = ()
    """tokens that end a generated text"""
    pad: int | None = None
    generates: bool = False
    """whether texts of this vocabulary are generated"""


@dataclass
class TokenModel(abc.ABC):
    """A network over a sequence, with its cache where it has one."""

    network: Any
    name: str = "model"
    """of the network among those of the subject; `network` may be a part of it"""
    vocabulary: int = 2
    """ids 0 to vocabulary - 1 may be given"""
    limit: int | None = None
    """maximum number of positions; None: any number"""
    causal: ClassVar[bool] = False
    cached: ClassVar[bool] = False
    sides: tuple[str, ...] = ()
    """sides on which rows can be padded"""

    @abc.abstractmethod
    def logits(self, ids: Tensor) -> Tensor:
        """Return the outputs (B, T, V) for rows of equal length, without a cache."""

    def padded(self, rows: Sequence[Sequence[int]], side: str, fill: int) -> list[Tensor]:
        """Return the outputs of the real positions of each row, computed in one batch that is padded on a side."""
        raise NotImplementedError

    def single(self, row: Sequence[int], number: int = 0) -> Tensor:
        """Return the outputs of one row alone, as `padded` does for the row of this number."""
        return self.logits(self.tensor([row]))[0]

    def begin(self, rows: int) -> Any:
        """Return the state of incremental decoding of some rows."""
        raise NotImplementedError

    def step(self, state: Any, ids: Tensor) -> Tensor:
        """Feed ids (B, T) that follow those of the state; returns their outputs (B, T, V)."""
        raise NotImplementedError

    def reorder(self, state: Any, rows: Tensor) -> None:
        """Row i of the state becomes what row rows[i] was."""
        raise NotImplementedError

    def of(self, network: nn.Module) -> TokenModel:
        """Return the same view of another network of the same class, such as a copy in another dtype."""
        other = copy.copy(self)
        other.network = network
        return other

    def root(self) -> nn.Module:
        """Return the network that `of` replaces."""
        network: nn.Module = self.network
        return network

    def sample(self, length: int, row: int = 0) -> list[int]:
        """Return random ids of a row, always the same ones; a longer row starts with the shorter one."""
        generator = torch.Generator().manual_seed(SEED + row)
        return torch.randint(self.vocabulary, (4 * MOST,), generator=generator)[:length].tolist()

    def lengths(self) -> list[int]:
        """Return lengths to try, shortest first."""
        longest = min(LENGTHS[-1], self.limit or LENGTHS[-1])
        return [length for length in LENGTHS if length < longest] + [longest]

    def tensor(self, rows: Sequence[Sequence[int]]) -> Tensor:
        return torch.tensor([list(row) for row in rows], device=self.device)

    @property
    def device(self) -> torch.device:
        return next(iter(self.root().parameters())).device


def pad_rows(rows: Sequence[Sequence[int]], side: str, fill: int) -> tuple[list[list[int]], list[list[bool]]]:
    """Return rows of equal length and which positions are real; one position is padded even in the longest row."""
    width = max(map(len, rows)) + 1
    padding = [width - len(row) for row in rows]
    if side == "right":
        ids = [[*row, *[fill] * count] for row, count in zip(rows, padding, strict=True)]
        keep = [[True] * len(row) + [False] * count for row, count in zip(rows, padding, strict=True)]
    else:
        ids = [[*[fill] * count, *row] for row, count in zip(rows, padding, strict=True)]
        keep = [[False] * count + [True] * len(row) for row, count in zip(rows, padding, strict=True)]
    return ids, keep


@dataclass
class GPTModel(TokenModel):
    """A language model of ours; its rows are padded on the right and counted by the cache."""

    network: GPT
    causal: ClassVar[bool] = True
    cached: ClassVar[bool] = True
    sides: tuple[str, ...] = ("right",)

    def logits(self, ids: Tensor) -> Tensor:
        out: Tensor = self.network(ids)
        return out

    def padded(self, rows: Sequence[Sequence[int]], side: str, fill: int) -> list[Tensor]:
        """Read all rows but for their last token in a padded batch, then the last ones after their own lengths."""
        before = [row[:-1] for row in rows]
        ids, _ = pad_rows(before, side, fill)
        counts = torch.tensor([len(row) for row in before], device=self.device)
        cache = KVCache(len(ids[0]) + 1)
        first = self.network(self.tensor(ids), cache=cache, count=counts)
        last = self.network(self.tensor([row[-1:] for row in rows]), cache=cache)
        return [torch.cat((first[number, : len(row)], last[number])) for number, row in enumerate(before)]

    def begin(self, rows: int) -> KVCache:
        return KVCache(2 * MOST)

    def step(self, state: KVCache, ids: Tensor) -> Tensor:
        out: Tensor = self.network(ids, cache=state)
        return out

    def reorder(self, state: KVCache, rows: Tensor) -> None:
        state.reorder(rows)


@dataclass
class BertModel(TokenModel):
    """An encoder of ours inside of a network."""

    network: nn.Module
    path: str = ""
    """of the encoder in the network"""
    sides: tuple[str, ...] = ("right",)

    @property
    def encoder(self) -> Bert:
        part = self.network.get_submodule(self.path)
        assert isinstance(part, Bert)
        return part

    def logits(self, ids: Tensor) -> Tensor:
        out: Tensor = self.encoder(ids)
        return out

    def padded(self, rows: Sequence[Sequence[int]], side: str, fill: int) -> list[Tensor]:
        ids, keep = pad_rows(rows, side, fill)
        out = self.encoder(self.tensor(ids), torch.tensor(keep, device=self.device))
        return [out[number, : len(row)] for number, row in enumerate(rows)]


@dataclass
class DecoderModel(TokenModel):
    """The decoder of an encoder-decoder model of ours over one fixed source; a source of text can be padded."""

    network: Seq2Seq
    source: tuple[Tensor, Tensor] | None = None
    """source (1, ...) and keep (1, S) of an example; None: the source is text, and random ids are one"""
    source_vocabulary: int = 0
    causal: ClassVar[bool] = True
    cached: ClassVar[bool] = True
    sides: tuple[str, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        self.sides = ("right",) if self.source is None else ()

    def memory(self, rows: Sequence[int] = (0,)) -> Memory:
        """Return the memory of some sources: of text the rows are different ones of different lengths."""
        if self.source is not None:
            source, keep = (part.to(self.device) for part in self.source)
            source = source.to(next(self.network.parameters()).dtype) if source.is_floating_point() else source
            memory = self.network.encode(source, keep)
            return memory.select(torch.zeros(len(rows), dtype=torch.long, device=self.device))
        return self._encode([self._source(9 - 2 * row, row) for row in rows], 0)

    def _source(self, length: int, row: int) -> list[int]:
        generator = torch.Generator().manual_seed(SEED + 100 + row)
        return torch.randint(self.source_vocabulary, (4 * MOST,), generator=generator)[:length].tolist()

    def _encode(self, sources: Sequence[Sequence[int]], fill: int) -> Memory:
        if len(sources) == 1:
            ids, keep = [list(sources[0])], [[True] * len(sources[0])]
        else:
            ids, keep = pad_rows(sources, "right", fill)
        return self.network.encode(self.tensor(ids), torch.tensor(keep, device=self.device))

    def logits(self, ids: Tensor) -> Tensor:
        memory = self.memory().select(torch.zeros(len(ids), dtype=torch.long, device=self.device))
        out: Tensor = self.network.head(self.network.decode(ids, memory))
        return out

    def padded(self, rows: Sequence[Sequence[int]], side: str, fill: int) -> list[Tensor]:
        """Return the outputs of one target after each source of as many tokens as the row has, in one padded batch."""
        sources = [self._source(len(row), number) for number, row in enumerate(rows)]
        return list(self._targets(self._encode([*sources, self._source(1, 9)], fill)).unbind()[: len(rows)])

    def single(self, row: Sequence[int], number: int = 0) -> Tensor:
        return self._targets(self._encode([self._source(len(row), number)], 0))[0]

    def _targets(self, memory: Memory) -> Tensor:
        ids = self.tensor([self.sample(4)] * len(memory.keep))
        out: Tensor = self.network.head(self.network.decode(ids, memory))
        return out

    def begin(self, rows: int) -> DecoderState:
        return DecoderState(self.network, self.memory(), 2 * MOST)

    def step(self, state: DecoderState, ids: Tensor) -> Tensor:
        out: Tensor = self.network.head(self.network.decode(ids, state.memory, cache=state.cache))
        return out

    def reorder(self, state: DecoderState, rows: Tensor) -> None:
        state.reorder(rows, None)


@dataclass
class PolicyModel(TokenModel):
    """A policy over the steps of an episode: an id stands for a fixed random observation."""

    network: Policy
    causal: ClassVar[bool] = True
    vocabulary: int = 64

    def logits(self, ids: Tensor) -> Tensor:
        scale = self.network.normalize
        generator = torch.Generator().manual_seed(SEED)
        table = torch.randn(self.vocabulary, len(scale.mean), generator=generator).to(self.device)
        return self.network.outputs(table[ids].to(scale.mean.dtype) * scale.deviation + scale.mean)
