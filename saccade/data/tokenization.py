"""Tokenization of data files: every column of texts is tokenized once per tokenizer and kept in the cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from saccade.core.callback import Progress, ignore_progress
from saccade.data.cache import Entry, EntryWriter, Record, cached
from saccade.data.text.tokenizers import Tokenizer
from saccade.data.texts import TextColumn, Texts
from saccade.data.token_rows import TokenArray, TokenRows

BLOCK = 4096  # texts tokenized at once,
BYTES = 1 << 20  # unless they have more bytes: the library needs a hundred times as much memory

Spans = NDArray[np.int32]


class TokenWriter:
    """Writes rows of tokens into an entry of the cache."""

    def __init__(self, writer: EntryWriter, tokenizer: Tokenizer, prefix: str = "") -> None:
        self._ids = writer.array(f"{prefix}ids", token_dtype(tokenizer))
        self._offsets = writer.array(f"{prefix}offsets", "int64")
        self._offsets.write([0])

    def add(self, rows: Sequence[Sequence[int] | TokenArray]) -> None:
        """Append rows."""
        if rows:
            self._offsets.write(np.cumsum([len(row) for row in rows]) + self._ids.size)
            self._ids.write(np.concatenate([np.asarray(row, dtype=np.uint32) for row in rows]))


def open_tokens(entry: Entry, prefix: str = "") -> TokenRows:
    """Open what a `TokenWriter` wrote."""
    return TokenRows.of_offsets(entry.arrays[f"{prefix}ids"], entry.arrays[f"{prefix}offsets"])


def token_dtype(tokenizer: Tokenizer) -> str:
    """Return the smallest type that holds every id of a tokenizer."""
    return "uint16" if tokenizer.size <= 1 << 16 else "uint32"


def tokenize(
    texts: Texts, tokenizer: Tokenizer, *, spaced: bool = False, progress: Progress = ignore_progress
) -> TokenRows:
    """Return the tokens of some texts of a column; `spaced`: as if each followed a space."""
    column, name = texts.column, ("ids", tokenizer.sha256, spaced)
    if name not in column.tokenized:
        if column.key:

            def build(writer: EntryWriter) -> Record:
                tokens = TokenWriter(writer, tokenizer)
                for rows in _encoded(column, tokenizer, spaced, progress):
                    tokens.add(rows)
                return {}

            column.tokenized[name] = open_tokens(cached("tokens", [column.key, tokenizer.sha256, spaced], build))
        else:
            blocks = _encoded(column, tokenizer, spaced, progress)
            column.tokenized[name] = TokenRows.of(row for rows in blocks for row in rows)
    tokens: TokenRows = column.tokenized[name]
    return tokens if texts.rows is None else tokens.take(texts.rows)


def _blocks(column: TextColumn, count: int) -> Iterator[tuple[int, int]]:
    """Yield the first and the end of ranges of texts: at most `count`, and of more than one text at most `BYTES`."""
    first = 0
    while first < len(column):
        fitting = int(np.searchsorted(column.offsets, column.offsets[first] + BYTES, side="right")) - 1
        last = min(first + count, max(first + 1, fitting))
        yield first, last
        first = last


def _encoded(
    column: TextColumn, tokenizer: Tokenizer, spaced: bool, progress: Progress
) -> Iterator[list[NDArray[np.uint32]]]:
    """Yield the tokens of all texts of a column, block by block."""
    for first, last in _blocks(column, BLOCK):
        texts = [column.text(row) for row in range(first, last)]
        yield tokenizer.encode_arrays([f" {text}" for text in texts] if spaced else texts)
        progress(last / len(column))


def tokenize_with_offsets(
    texts: Texts, tokenizer: Tokenizer, *, progress: Progress = ignore_progress
) -> tuple[TokenRows, Spans]:
    """Return the tokens of some texts, and the characters (first, end) of its text that each id covers: (ids, 2)."""
    column, name = texts.column, ("offsets", tokenizer.sha256)
    if name not in column.tokenized:
        if column.key:

            def build(writer: EntryWriter) -> Record:
                tokens, spans = TokenWriter(writer, tokenizer), writer.array("spans", "int32")
                for row, covered in _encoded_with_offsets(column, tokenizer, progress):
                    tokens.add([row])
                    spans.write(covered)
                return {}

            entry = cached("spans", [column.key, tokenizer.sha256], build)
            rows, spans = open_tokens(entry), np.asarray(entry.arrays["spans"])
        else:
            tokenized = list(_encoded_with_offsets(column, tokenizer, progress))
            rows = TokenRows.of(row for row, _ in tokenized)
            spans = np.array([span for _, covered in tokenized for span in covered], dtype=np.int32)
        column.tokenized[name] = rows, spans.reshape(-1, 2)
    tokens, all_spans = column.tokenized[name]
    return tokens if texts.rows is None else tokens.take(texts.rows), all_spans


def _encoded_with_offsets(
    column: TextColumn, tokenizer: Tokenizer, progress: Progress
) -> Iterator[tuple[list[int], Sequence[tuple[int, int]]]]:
    """Yield the tokens of all texts of a column with the characters they cover."""
    for first, last in _blocks(column, BLOCK // 8):
        yield from tokenizer.encode_with_offsets([column.text(row) for row in range(first, last)])
        progress(last / len(column))
