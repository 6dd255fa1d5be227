"""Axes of attention maps over text: readable tokens, and the words they belong to."""

from __future__ import annotations

from collections.abc import Sequence

from saccade.core.axes import Role, TokenAxis
from saccade.data.text.tokenizers import Tokenizer
from saccade.data.text.words import word_numbers


def token_axis(role: Role, tokenizer: Tokenizer, ids: Sequence[int], second: int = 0) -> TokenAxis:
    """Return the tokens of some ids with the words they belong to; characters are not grouped.

    `second` is the position at which the second of two texts starts; 0, or the length: there is one.
    """
    words = () if tokenizer.kind == "characters" else tuple(word_numbers(tokenizer.raw(ids)))
    return TokenAxis(role, tuple(tokenizer.pieces(ids)), words, second % max(1, len(ids)))
