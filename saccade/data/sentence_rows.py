"""Sentences of a corpus as tokens, with the document each belongs to; cut and tokenized once per tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from saccade.core.callback import Progress, ignore_progress
from saccade.data.cache import EntryWriter, Record, cached
from saccade.data.formats.corpus import Corpus
from saccade.data.splitting import PARTS, Part
from saccade.data.text.sentences import cut_sentences
from saccade.data.text.tokenizers import Tokenizer
from saccade.data.token_rows import TokenRows
from saccade.data.tokenization import TokenWriter, open_tokens

BLOCK = 2000  # sentences tokenized at once


@dataclass(frozen=True)
class Sentences:
    """Sentences as tokens, in the order of the text, and the number of the document each is in."""

    rows: TokenRows
    document: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.rows)

    def fingerprint(self) -> str:
        """Return a hash of the sentences."""
        return self.rows.fingerprint()

    @property
    def tokens(self) -> int:
        return int(self.rows.lengths.sum())

    def cut(self, max_length: int) -> tuple[Sentences, NDArray[np.int64]]:
        """Return the sentences with each longer one cut into pieces of `max_length`, and the sentence of each piece."""
        counts = np.maximum(1, -(-self.rows.lengths // max_length))
        numbers = np.repeat(np.arange(len(self)), counts)
        within = np.arange(len(numbers)) - (np.cumsum(counts) - counts)[numbers]
        starts = self.rows.starts[numbers] + within * max_length
        ends = np.minimum(starts + max_length, self.rows.ends[numbers])
        return Sentences(TokenRows(self.rows.ids, starts, ends), self.document[numbers]), numbers


def build_sentences(
    corpus: Corpus, tokenizer: Tokenizer, *, progress: Progress = ignore_progress
) -> dict[Part, Sentences]:
    """Return the sentences of both parts of a corpus; those without tokens are skipped."""

    def build(writer: EntryWriter) -> Record:
        for part in PARTS:
            tokens, documents = TokenWriter(writer, tokenizer, f"{part}_"), writer.array(f"{part}_documents", "int32")
            sentences = _sentences(corpus, part)
            while block := list(islice(sentences, BLOCK)):
                rows = tokenizer.encode_arrays([text for _, text in block])
                tokens.add([row for row in rows if len(row)])
                documents.write([number for (number, _), row in zip(block, rows, strict=True) if len(row)])
            progress(1.0 if part == "valid" else 0.9)
        return {}

    entry = cached("sentences", [corpus.key, tokenizer.sha256], build)
    return {part: Sentences(open_tokens(entry, f"{part}_"), entry.arrays[f"{part}_documents"]) for part in PARTS}


def _sentences(corpus: Corpus, part: Part) -> Iterator[tuple[int, str]]:
    """Yield the sentences of a part with the number of their document: a file of running text, or a row of a table."""
    numbers: dict[object, int] = {}
    for piece in corpus:
        document = piece.document
        number = numbers.setdefault((document.file, document.line if piece.is_row else 0), len(numbers))
        if piece.part == part:
            yield from ((number, sentence) for sentence in cut_sentences(document.text))
