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
        """Return the template for the special tokens that a tokenizer has, as BERT or RoBERTa use them."""
        for first, last, count, mask in SPECIAL_TOKENS:
            if first in tokenizer.specials and last in tokenizer.specials:
                sep_id = tokenizer.specials[last]
                mask_id = tokenizer.specials.get(mask)
                return cls(tokenizer.specials[first], sep_id, (sep_id,) * count, mask_id, max_length)
        supported = " or ".join(f"{first} and {last}" for first, last, *_ in SPECIAL_TOKENS)
        raise ModelFileError(
            f"the tokenizer must have the special tokens {supported}, but has {', '.join(tokenizer.specials)}"
        )

    def build(self, first: Sequence[int], second: Sequence[int] | None = None) -> tuple[list[int], int]:
        """Return the ids for one text or two, and where the second segment starts; long texts are truncated.

        Of two texts the longer one is truncated first.
        """
        if second is None:
            ids = [self.cls_id, *first[: self.max_length - 2], self.sep_id]
            return ids, len(ids)
        room = self.max_length - 2 - len(self.separators)
        second_room = min(len(second), max(room // 2, room - len(first)))
        head = [self.cls_id, *first[: room - second_room], *self.separators]
        return [*head, *second[:second_room], self.sep_id], len(head)


def pad_rows(rows: Sequence[Sequence[int]], fill: int = 0) -> NDArray[np.int64]:
    """Return rows (B, T) of unequal length, padded at their ends."""
    out = np.full((len(rows), max(map(len, rows), default=0)), fill, dtype=np.int64)
    for line, row in zip(out, rows, strict=True):
        line[: len(row)] = row
    return out
