"""Sentences: running text cut where sentences end, as rows of tokens that remember their document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from saccade.data.text.tokenizers import Tokenizer
from saccade.data.token_rows import TokenRows

CLOSING, OPENING = r"[\"'\u201d\u2019)\]]*", r"[\"'\u201c\u2018(\[]*"
# After . ! ? at the end of a line, or before something that can begin a sentence; after the full stops of Chinese and
# Japanese; at an empty line.
END = re.compile(rf"(?<=[.!?]){CLOSING}(?:[^\S\n]*\n\s*|\s+(?={OPENING}[^\W\d_a-z]))|(?<=[\u3002\uff01\uff1f])|\n\s*\n")
SHORT = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|St|vs|etc|No|Prof|Rev|Sr|Jr|[A-Z])\.$")  # what ends on a dot in mid-sentence
TOGETHER = 2000  # sentences tokenized at once


def cut_sentences(text: str) -> Iterator[str]:
    """The sentences of a text, without the space around them."""
    start, held = 0, ""
    for found in END.finditer(text):
        piece = held + text[start : found.start()] + found.group().rstrip()
        start = found.end()
        if SHORT.search(piece) and "\n\n" not in found.group():
            held = piece + " "
            continue
        held = ""
        if piece.strip():
            yield " ".join(piece.split())
    piece = held + text[start:]
    if piece.strip():
        yield " ".join(piece.split())


@dataclass(frozen=True)
class Sentences:
    """Sentences as tokens, in the order of the text, and the number of the document each is in."""

    rows: TokenRows
    document: NDArray[np.int32]

    @classmethod
    def of(cls, texts: Iterable[tuple[int, str]], tokenizer: Tokenizer) -> Sentences:
        """Tokenize texts, each with the number of its document; what has no tokens is left out."""
        rows: list[list[int]] = []
        document: list[int] = []
        pieces = ((number, sentence) for number, text in texts for sentence in cut_sentences(text))
        while group := list(islice(pieces, TOGETHER)):
            for (number, _), ids in zip(group, tokenizer.encode_batch([text for _, text in group]), strict=True):
                if ids:
                    rows.append(ids)
                    document.append(number)
        return cls(TokenRows.of(rows), np.array(document, dtype=np.int32))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def tokens(self) -> int:
        return len(self.rows.ids)
