"""Corpus: running text and columns of text as documents, parsed once, and their split into training and validation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from saccade.core.callback import Progress, ignore_progress
from saccade.data.cache import EntryWriter, Record, cached, digest, file_key
from saccade.data.formats.chats import chat_layout, conversations
from saccade.data.formats.documents import Document, documents
from saccade.data.splitting import PARTS, Part, SplitSettings, is_held_out
from saccade.data.tables.progress import BytesRead, FileProgress
from saccade.data.tables.sniffing import DataFile
from saccade.data.texts import NumberWriter, Texts, TextWriter
from saccade.errors import DataError


@dataclass(frozen=True)
class Documents:
    """The documents of some files, read from the cache on demand."""

    texts: Texts
    lines: NDArray[np.int64]
    characters: NDArray[np.int64]
    """length of each text"""
    file_numbers: NDArray[np.int32]
    files: tuple[DataFile, ...]
    key: str
    notes: tuple[str, ...] = ()
    layout: str = ""
    """of chat logs, whose texts are conversations as JSON; empty: plain texts"""

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, row: int) -> Document:
        return Document(self.texts[row], int(self.lines[row]), self.file(row).path)

    def file(self, row: int) -> DataFile:
        """Return the file of a document."""
        return self.files[int(self.file_numbers[row])]

    def is_row(self, row: int) -> bool:
        """Whether a document is a row of a table, not a piece of running text."""
        return self.file(row).format != "text"


def read_documents(
    files: Sequence[DataFile], *, column: str | None = None, chats: bool = False, progress: Progress = ignore_progress
) -> Documents:
    """Return the documents of some files; they are parsed once, later calls read the cache.

    `chats`: files of conversations are read as such.
    """
    layout = _layout(files) if chats and column is None else ""

    def read(file: DataFile, on_bytes: BytesRead) -> Iterator[Document]:
        if layout:
            return conversations(file, layout, on_bytes=on_bytes)
        return documents(file, column=column, on_bytes=on_bytes)

    def build(writer: EntryWriter) -> Record:
        texts, lines = TextWriter(writer, "texts"), NumberWriter(writer, "lines")
        characters, numbers = NumberWriter(writer, "characters"), NumberWriter(writer, "files", "int32")
        total = FileProgress(files, progress)
        for number, file in enumerate(files):
            for document in read(file, total.of(number)):
                texts.add(document.text)
                lines.add(document.line)
                characters.add(len(document.text))
                numbers.add(number)
        for part in (texts, lines, characters, numbers):
            part.flush()
        return {}

    parts = [[file_key(file) for file in files], column]
    kind, key = ("chats", [*parts, layout]) if layout else ("documents", parts)
    entry = cached(kind, key, build, files)
    arrays = entry.arrays
    texts = Texts.open(entry, "texts")
    return Documents(
        texts, arrays["lines"], arrays["characters"], arrays["files"], tuple(files), entry.key, entry.notes, layout
    )


def _layout(files: Sequence[DataFile]) -> str:
    """Return the layout of chat logs, which must be the same in all files."""
    layouts = {chat_layout(file): file for file in files}
    if len(layouts) > 1:
        (first, one), (second, other), *_ = layouts.items()
        names = [f"{file.path.name} has {layout or 'no chats'}" for layout, file in ((first, one), (second, other))]
        raise DataError(f"all files must hold chats with the same keys, but {' and '.join(names)}; train on one kind")
    return next(iter(layouts), "")


@dataclass(frozen=True)
class PartDocument:
    """A document with its part; the split may cut a document of running text in two."""

    part: Part
    document: Document
    is_row: bool


@dataclass(frozen=True)
class Corpus:
    """Documents to train on and to evaluate on."""

    train: Documents
    valid: Documents | None
    """None: some of the training documents are held out"""
    settings: SplitSettings

    @cached_property
    def key(self) -> str:
        """A hash of the content of both parts and of the split."""
        return digest([self.train.key, None if self.valid is None else self.valid.key, asdict(self.settings)])

    @property
    def layout(self) -> str:
        """Layout of chat logs; empty: plain texts."""
        return self.train.layout

    @property
    def notes(self) -> tuple[str, ...]:
        """Messages for the user about the cached documents."""
        return (*self.train.notes, *(self.valid.notes if self.valid is not None else ()))

    def texts(self, part: Part | None = None) -> Iterator[str]:
        """Yield the texts of a part, or of both."""
        return (piece.document.text for piece in self if part is None or piece.part == part)

    def __iter__(self) -> Iterator[PartDocument]:
        """Yield every document with its part: rows by their content; of running text the end is held out."""
        if self.valid is not None:
            for part, group in zip(PARTS, (self.train, self.valid), strict=True):
                yield from (PartDocument(part, group[row], group.is_row(row)) for row in range(len(group)))
            return
        cut, done = self._cut(), 0
        for row in range(len(self.train)):
            document = self.train[row]
            if self.train.is_row(row):
                yield PartDocument(PARTS[is_held_out(document.text, self.settings)], document, True)
                continue
            before = min(max(cut - done, 0), len(document.text))
            done += len(document.text)
            if before:
                yield PartDocument("train", Document(document.text[:before], document.line, document.file), False)
            if before < len(document.text):
                line = document.line + document.text.count("\n", 0, before)
                yield PartDocument("valid", Document(document.text[before:], line, document.file), False)

    def _cut(self) -> int:
        """Return the number of characters of running text in the training part."""
        running = np.array([file.format == "text" for file in self.train.files], dtype=bool)
        total = int(self.train.characters[running[self.train.file_numbers]].sum())
        return int(total * (1.0 - self.settings.fraction))


def read_corpus(
    files: Sequence[DataFile],
    valid: Sequence[DataFile] | None,
    settings: SplitSettings,
    *,
    chats: bool = False,
    progress: Progress = ignore_progress,
) -> Corpus:
    """Read the training documents, and the validation documents if they have files of their own."""
    groups = [
        None if group is None else read_documents(group, column=settings.column, chats=chats, progress=progress)
        for group in (files, valid)
    ]
    train, held_out = groups
    assert train is not None
    if held_out is not None and bool(held_out.layout) != bool(train.layout):
        kinds = ["chats" if group.layout else "plain texts" for group in (train, held_out)]
        raise DataError(f"training and validation data must both be chats, but are {kinds[0]} and {kinds[1]}")
    return Corpus(train, held_out, settings)
