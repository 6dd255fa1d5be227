"""Frames: how one text or two become the row that an encoder reads, with its marks and segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from saccade.data.text.tokenizers import Tokenizer
from saccade.errors import ModelFileError

MARKS = (("[CLS]", "[SEP]", 1, "[MASK]"), ("<s>", "</s>", 2, "<mask>"))  # of BERT and of RoBERTa


@dataclass(frozen=True)
class InputTemplate:
    """The marks around texts: begin, first text, middle, second text, end."""

    begin: int
    end: int
    middle: tuple[int, ...]
    mask: int | None
    max_length: int
    """most tokens of a row, marks included"""

    @classmethod
    def of(cls, tokenizer: Tokenizer, max_length: int) -> InputTemplate:
        """The marks that a tokenizer has, as BERT or RoBERTa use them."""
        for begin, end, times, mask in MARKS:
            if begin in tokenizer.specials and end in tokenizer.specials:
                last = tokenizer.specials[end]
                return cls(tokenizer.specials[begin], last, (last,) * times, tokenizer.specials.get(mask), max_length)
        known = " or ".join(f"{begin} and {end}" for begin, end, *_ in MARKS)
        raise ModelFileError(f"the tokenizer must have the marks {known}, but has {', '.join(tokenizer.specials)}")

    def row(self, first: Sequence[int], second: Sequence[int] | None = None) -> tuple[list[int], int]:
        """The tokens of one text or of two, and where the second segment begins; what is too long loses its end.

        Of two texts the longer one is cut first.
        """
        if second is None:
            kept = first[: self.max_length - 2]
            row = [self.begin, *kept, self.end]
            return row, len(row)
        room = self.max_length - 2 - len(self.middle)
        short = min(len(second), max(room // 2, room - len(first)))
        one, other = first[: room - short], second[:short]
        head = [self.begin, *one, *self.middle]
        return [*head, *other, self.end], len(head)


def rectangle(rows: Sequence[Sequence[int]], fill: int = 0) -> NDArray[np.int64]:
    """Rows (B, T) of unequal length, filled up at their ends."""
    out = np.full((len(rows), max(map(len, rows), default=0)), fill, dtype=np.int64)
    for line, row in zip(out, rows, strict=True):
        line[: len(row)] = row
    return out
