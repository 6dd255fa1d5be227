"""Shards: running text as one long sequence of tokens for training and one for validation, memory-mapped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.core.callback import Progress, ignore_progress
from saccade.data.cache import ArrayWriter, EntryWriter, Record, cached
from saccade.data.formats.corpus import Corpus, PartDocument
from saccade.data.formats.documents import Document
from saccade.data.splitting import PARTS, OverlapCounter, Part
from saccade.data.tables.problems import BadRows, Problem
from saccade.data.text.alphabets import UnknownCharacter
from saccade.data.text.chat import encode_chat, from_json
from saccade.data.text.tokenizers import END, Tokenizer
from saccade.data.tokenization import token_dtype
from saccade.errors import DataError


@dataclass(frozen=True)
class Shard:
    """The tokens of one part of the data, read from disk as they are needed."""

    ids: NDArray[np.unsignedinteger[Any]]
    bytes: int
    """size of the text in UTF-8"""
    path: Path
    """folder of the cache that holds it"""
    notes: tuple[str, ...] = ()
    spoken: NDArray[np.unsignedinteger[Any]] | None = None
    """of chats: 1 for each token that the assistant says"""

    @property
    def size(self) -> int:
        """Number of tokens."""
        return len(self.ids)


def build_shards(corpus: Corpus, tokenizer: Tokenizer, *, progress: Progress = ignore_progress) -> tuple[Shard, Shard]:
    """Return the training and validation shards of a corpus, tokenized once per tokenizer."""

    chats = bool(corpus.layout)

    def build(writer: EntryWriter) -> Record:
        return _write(writer, corpus, tokenizer, progress)

    entry = cached("chat" if chats else "running", [corpus.key, tokenizer.sha256], build)
    notes = (*corpus.notes, *entry.notes, *entry.record["notes"])
    train, valid = (
        Shard(
            entry.arrays[part],
            int(entry.record["bytes"][part]),
            entry.path,
            notes,
            entry.arrays[f"{part}_spoken"] if chats else None,
        )
        for part in PARTS
    )
    return train, valid


def _empty_part(corpus: Corpus, part: Part) -> DataError:
    documents = corpus.train if part == "train" or corpus.valid is None else corpus.valid
    name = "training" if part == "train" else "validation"
    return DataError(
        f"{documents.files[0].path}: the {name} part must have text, but is empty; give more data, a validation file, "
        "or another fraction or seed"
    )


def _reported(corpus: Corpus, progress: Progress) -> Iterable[PartDocument]:
    total = int(corpus.train.characters.sum() + (0 if corpus.valid is None else corpus.valid.characters.sum()))
    done = 0
    for piece in corpus:
        yield piece
        done += len(piece.document.text)
        progress(min(1.0, done / max(1, total)))


class _PartWriter:
    """Writes the ids of one part and counts its bytes."""

    def __init__(self, array: ArrayWriter, tokenizer: Tokenizer) -> None:
        self._array, self._tokenizer = array, tokenizer
        self._separator = separator(tokenizer)
        self.bytes = 0

    def add(self, piece: PartDocument) -> None:
        """Write the ids of a document, and after a row the separator."""
        self._write(piece.document)
        if piece.is_row:
            self._array.write(self._separator)
        self.bytes += len(piece.document.text.encode())

    def _write(self, document: Document) -> None:
        self._array.write(encode_document(self._tokenizer, document))

    @property
    def tokens(self) -> int:
        return self._array.size


class _ChatWriter(_PartWriter):
    """Writes the ids of conversations, and which of them the assistant says."""

    def __init__(self, array: ArrayWriter, tokenizer: Tokenizer, spoken: ArrayWriter) -> None:
        super().__init__(array, tokenizer)
        self._spoken = spoken

    def add(self, piece: PartDocument) -> None:
        super().add(piece)
        self._spoken.write([False] * len(self._separator))

    def _write(self, document: Document) -> None:
        try:
            ids, spoken = encode_chat(self._tokenizer, from_json(document.text))
        except UnknownCharacter as error:
            if document.file is None:
                raise
            what = f"character {error.what}"
            raise BadRows(
                [Problem(document.file, document.line, None, what, error.expected, error.next_step)]
            ) from error
        self._array.write(ids)
        self._spoken.write(spoken)


def separator(tokenizer: Tokenizer) -> list[int]:
    """Return the ids between two rows: the end-of-text token, else a newline, else (no such character) nothing."""
    end = tokenizer.specials.get(END)
    if end is not None:
        return [end]
    if tokenizer.kind == "characters" and tokenizer.id("\n") is None:
        return []
    return tokenizer.encode("\n")


def encode_document(tokenizer: Tokenizer, document: Document) -> NDArray[np.uint32]:
    """Return the ids of a document; a character without a token is reported by file, line and column."""
    try:
        return tokenizer.encode_array(document.text)
    except UnknownCharacter as error:
        if document.file is None:
            raise
        before = document.text[: error.position]
        line, column = document.line + before.count("\n"), error.position - before.rfind("\n")
        problem = Problem(document.file, line, column, f"character {error.what}", error.expected, error.next_step)
        raise BadRows([problem]) from error


def _writer(entry: EntryWriter, part: Part, tokenizer: Tokenizer, *, chats: bool) -> _PartWriter:
    array = entry.array(part, token_dtype(tokenizer))
    return (
        _ChatWriter(array, tokenizer, entry.array(f"{part}_spoken", "uint8"))
        if chats
        else _PartWriter(array, tokenizer)
    )


def _write(entry: EntryWriter, corpus: Corpus, tokenizer: Tokenizer, progress: Progress) -> Record:
    """Tokenize everything, and count duplicates."""
    chats = bool(corpus.layout)
    writers: dict[Part, _PartWriter] = {part: _writer(entry, part, tokenizer, chats=chats) for part in PARTS}
    counters = {by_line: OverlapCounter(by_line=by_line) for by_line in (False, True)}
    for piece in _reported(corpus, progress):
        writers[piece.part].add(piece)
        counters[not piece.is_row].add(piece.part, piece.document.text)
    for part, writer in writers.items():
        if not writer.tokens:
            raise _empty_part(corpus, part)
    overlaps = [counter.result() for counter in counters.values()]
    return {
        "bytes": {part: writer.bytes for part, writer in writers.items()},
        "overlap": [asdict(overlap) for overlap in overlaps if overlap.train_total],
        "notes": [note for overlap in overlaps for note in overlap.notes()],
    }
