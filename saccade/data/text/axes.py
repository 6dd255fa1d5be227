"""Axes: the tokens along a map as people read them, and the words they belong to."""

from __future__ import annotations

from collections.abc import Sequence

from saccade.core.task import Axis
from saccade.data.text.tokenizers import Tokenizer
from saccade.data.text.words import word_numbers


def token_axis(kind: str, tokenizer: Tokenizer, ids: Sequence[int]) -> Axis:
    """The pieces of some ids and the words they belong to; characters stay by themselves."""
    words = () if tokenizer.kind == "characters" else tuple(word_numbers(tokenizer.raw(ids)))
    return Axis(kind, tuple(tokenizer.pieces(ids)), words)
