"""Tokenizers of source and target, with their special tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from saccade.core import Role, TokenAxis
from saccade.data.text.axes import token_axis
from saccade.data.text.tokenizers import BEGIN, END, Tokenizer


class SpecialIds(NamedTuple):
    """Ids of the special tokens around a source and a target."""

    source_end: int
    target_start: int
    target_end: int


@dataclass(frozen=True)
class TargetTokenizer:
    """The tokenizer of generated texts, with the tokens a text starts and ends with."""

    tokenizer: Tokenizer
    start: int
    end: int

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Self:
        """Return a tokenizer whose vocabulary contains the special tokens."""
        return cls(tokenizer, tokenizer.specials[BEGIN], tokenizer.specials[END])

    def decode(self, ids: Sequence[int]) -> str:
        """Return a target as text."""
        return self.tokenizer.decode(ids).strip()

    def output_axis(self, ids: Sequence[int]) -> TokenAxis:
        """Return the axis of the tokens that are predicted, the end token included."""
        return token_axis(Role.TARGET, self.tokenizer, [*ids, self.end])

    def input_axis(self, ids: Sequence[int]) -> TokenAxis:
        """Return the axis of the target tokens that the decoder reads, the start token included."""
        return token_axis(Role.TARGET, self.tokenizer, [self.start, *ids])


@dataclass(frozen=True)
class PairTokenizers:
    """The tokenizers of a pair of texts."""

    source: Tokenizer
    target: Tokenizer
    special: SpecialIds
    max_source: int | None = None
    """longer sources are truncated to this many tokens; None: never"""

    @classmethod
    def of(cls, source: Tokenizer, target: Tokenizer, max_source: int | None = None) -> Self:
        """Return tokenizers whose vocabularies contain their special tokens."""
        ids = SpecialIds(source.specials[END], target.specials[BEGIN], target.specials[END])
        return cls(source, target, ids, max_source)

    @property
    def joint(self) -> bool:
        """Whether source and target share one vocabulary."""
        return self.source is self.target

    @property
    def output(self) -> TargetTokenizer:
        """The tokenizer of the target with its special tokens."""
        return TargetTokenizer(self.target, self.special.target_start, self.special.target_end)

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of sources, truncated as in training."""
        return [ids[: self.max_source] for ids in self.source.encode_batch(texts)]

    def source_axis(self, ids: Sequence[int]) -> TokenAxis:
        """Return the axis of a source with its end token."""
        return token_axis(Role.SOURCE, self.source, [*ids, self.special.source_end])
