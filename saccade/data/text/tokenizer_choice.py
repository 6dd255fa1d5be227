"""Choice of a tokenizer for texts that are read or generated: its kind and the size of its vocabulary, by the data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

from saccade.data.text.alphabets import UNKNOWN
from saccade.data.text.tokenizer_training import train_tokenizer
from saccade.data.text.tokenizers import BEGIN, END, Tokenizer
from saccade.data.texts import Texts
from saccade.errors import UsageError

FEW_WORDS = 300  # distinct ones: phonemes, tags, labels
FEW_CHARACTERS = 512

Kind = Literal["characters", "words", "bpe"]


def choose_kind(texts: Sequence[str]) -> Kind:
    """Return how texts are tokenized: words if they are few, characters where a text is one word, else byte pairs."""
    words = [text.split() for text in texts]
    count = sum(map(len, words))
    if count > 1.5 * len(texts) and len({word for row in words for word in row}) <= min(FEW_WORDS, count / 20):
        return "words"
    if count <= 1.5 * len(texts) and len(set().union(*texts)) <= FEW_CHARACTERS:
        return "characters"
    return "bpe"


def vocabulary_size(columns: Iterable[Texts]) -> int:
    """Return a vocabulary size that grows with the square root of the text: about 5,000 tokens for 4 MB."""
    count = sum(int(texts.sizes.sum()) for texts in columns)
    return int(min(32_000, max(512, 2.5 * math.sqrt(count))))


def train_text_tokenizer(kind: Kind, texts: Iterable[str], size: int, setting: str) -> Tokenizer:
    """Train a tokenizer with the tokens a text starts and ends with; `setting` is the name of `size` for the user."""
    specials = (BEGIN, END) if kind == "bpe" else (BEGIN, END, UNKNOWN)
    min_size = 256 + len(specials)
    if kind == "bpe" and size < min_size:
        raise UsageError(f"{setting} must be at least {min_size} for bpe (all bytes), but is {size}")
    return train_tokenizer(kind, texts, size if kind == "bpe" else 1 << 16, specials, add_prefix_space=True)


def describe_kind(kind: Kind) -> str:
    """Return the name of the tokens of a kind."""
    return kind if kind != "bpe" else "bpe tokens"
