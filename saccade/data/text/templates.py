"""Input templates: how one text or two become the sequence that an encoder reads, with special tokens and segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from saccade.data.text.tokenizers import Tokenizer
from saccade.errors import ModelFileError

# First and last token, the number of separators between two texts, and the mask: of BERT and of RoBERTa.
SPECIAL_TOKENS = (("[CLS]", "[SEP]", 1, "[MASK]"), ("<s>", "</s>", 2, "<mask>"))


@dataclass(frozen=True)
class InputTemplate:
    """The special tokens around texts: [CLS] first [SEP] second [SEP]."""

    cls_id: int
    sep_id: int
    separators: tuple[int, ...]
    """ids between two texts"""
    mask_id: int | None
    max_length: int
    """maximum number of tokens of a sequence, special tokens included"""

    @classmethod
    def of(cls, tokenizer: Tokenizer, max_length: int) -> InputTemplate:
        """Return the template of a tokenizer, or else that of BERT or RoBERTa for the special tokens that it has."""
        layout = tokenizer.special_layout()
        for first, last, count, mask in SPECIAL_TOKENS:
            if first not in tokenizer.specials or last not in tokenizer.specials:
                continue
            cls_id, sep_id = tokenizer.specials[first], tokenizer.specials[last]
            before, between, after = layout or ((cls_id,), (sep_id,) * count, (sep_id,))
            if before != (cls_id,) or after != (sep_id,):
                actual = " and ".join(" ".join(tokenizer.pieces(ids)) or "nothing" for ids in (before, after))
                raise ModelFileError(
                    f"the tokenizer must put {first} before a text and {last} after it, but puts {actual}; such a "
                    "template in a tokenizer.json is not supported"
                )
            return cls(cls_id, sep_id, between, tokenizer.specials.get(mask), max_length)
        supported = " or ".join(f"{first} and {last}" for first, last, *_ in SPECIAL_TOKENS)
        raise ModelFileError(
            f"the tokenizer must have the special tokens {supported}, but has "
            f"{', '.join(tokenizer.specials) or 'none'}; use the tokenizer.json that belongs to the model"
        )

    def special_count(self, texts: int) -> int:
        """Return the number of special tokens around one text or two."""
        return 2 + (len(self.separators) if texts == 2 else 0)

    def truncate(self, first: int, second: int | None = None) -> tuple[int, ...]:
        """Return how many tokens of one text or two are kept.

        Of two texts the longer one is truncated first, as `longest_first` of transformers does.
        """
        if second is None:
            return (min(first, self.max_length - self.special_count(1)),)
        room = self.max_length - self.special_count(2)
        short, long = sorted((first, second))
        if short + long > room:
            long = max(short, room - short)
            if short + long > room:
                short, long = room // 2, room - room // 2
        return (long, short) if first > second else (short, long)

    def build(self, first: Sequence[int], second: Sequence[int] | None = None) -> tuple[list[int], int]:
        """Return the ids for one text or two, and where the second text starts; long texts are truncated."""
        if second is None:
            ids = [self.cls_id, *first[: self.truncate(len(first))[0]], self.sep_id]
            return ids, len(ids)
        first_length, second_length = self.truncate(len(first), len(second))
        head = [self.cls_id, *first[:first_length], *self.separators]
        return [*head, *second[:second_length], self.sep_id], len(head)


def pad_rows(rows: Sequence[Sequence[int]], fill: int = 0) -> NDArray[np.int64]:
    """Return rows (B, T) of unequal length, padded at their ends."""
    out = np.full((len(rows), max(map(len, rows), default=0)), fill, dtype=np.int64)
    for line, row in zip(out, rows, strict=True):
        line[: len(row)] = row
    return out
