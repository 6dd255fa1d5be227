"""Splitting: divides data into a part to learn from and a part to test on, the same way every time."""

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from saccade.data.formats.documents import Document, count_characters, documents
from saccade.data.tables.sniffing import DataFile
from saccade.errors import DataError

Part = Literal["train", "valid"]

SHORTEST_LINE = 20  # characters; shorter lines repeat by chance


@dataclass(frozen=True)
class SplitSettings:
    """How much data is held back for validation, and how it is chosen."""

    fraction: float = 0.1
    seed: int = 0
    column: str | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.fraction < 1.0:
            message = f"the validation fraction must be between 0 and 1, but is {self.fraction}"
            raise DataError(f"{message}; 0.1 holds back a tenth")


def belongs_to_valid(content: str, settings: SplitSettings) -> bool:
    """Whether a row is held back: decided by its content alone, so that copies never stand on both sides."""
    return content_hash(f"{settings.seed}\n{content.strip()}") < settings.fraction * 2.0**64


def content_hash(content: str) -> int:
    """A 64-bit number that stands for a text."""
    return int.from_bytes(hashlib.blake2b(content.encode(), digest_size=8).digest(), "little")


def split(
    found: Sequence[DataFile], settings: SplitSettings, *, advance: Callable[[DataFile, int], None] | None = None
) -> Iterator[tuple[Part, Document]]:
    """Every document with its part: rows by their content; running text by position, its last characters held back.

    `advance` is told the current file and how many of its bytes have been read.
    """
    texts = [file for file in found if file.format == "text"]
    cut = int(sum(count_characters(file) for file in texts) * (1.0 - settings.fraction))
    done = 0
    for file in found:
        report = partial(advance, file) if advance is not None else None
        for document in documents(file, column=settings.column, advance=report):
            if file.format != "text":
                yield ("valid" if belongs_to_valid(document.text, settings) else "train"), document
                continue
            before = min(max(cut - done, 0), len(document.text))
            done += len(document.text)
            if before:
                yield "train", Document(document.text[:before], document.line, document.file)
            if before < len(document.text):
                line = document.line + document.text.count("\n", 0, before)
                yield "valid", Document(document.text[before:], line, document.file)


def hold_back(
    keys: Sequence[str], strata: Sequence[str], settings: SplitSettings, file: Path, *, unit: str = "row"
) -> list[bool]:
    """Which rows are held back: a share of every stratum; rows with the same key stay together.

    A key belongs to the first of its strata by name. Decided by keys, strata and seed alone, not by the order of rows.
    """
    home: dict[str, str] = {}
    for key, stratum in zip(keys, strata, strict=True):
        home[key] = min(stratum, home.get(key, stratum))
    if len(home) < 2:
        message = f"{file}: {len(home)} {unit} that differs from others, expected at least 2 to hold one back"
        raise DataError(f"{message}; add {unit}s or name a file for validation")

    def order(key: str) -> tuple[int, str, int, str]:
        stratum = home[key]
        return content_hash(f"{settings.seed}\n{stratum}"), stratum, content_hash(f"{settings.seed}\n{key}"), key

    # Every n-th key in an order that keeps strata together takes its share of each, also of very small ones.
    count = min(max(round(len(home) * settings.fraction), 1), len(home) - 1)
    chosen = {
        key
        for place, key in enumerate(sorted(home, key=order))
        if (place + 1) * count // len(home) > place * count // len(home)
    }
    return [key in chosen for key in keys]


@dataclass(frozen=True)
class Overlap:
    """How many texts repeat: within the training part, and between the two parts."""

    train_total: int
    valid_total: int
    duplicates_in_train: int
    valid_also_in_train: int
    unit: str = "documents"

    def notes(self) -> tuple[str, ...]:
        """What a person should know, if anything: validation text that was also trained on flatters the score."""
        notes = []
        if self.duplicates_in_train:
            notes.append(f"{self.duplicates_in_train:,} of {self.train_total:,} training {self.unit} are repeats")
        if self.valid_also_in_train:
            counts = f"{self.valid_also_in_train:,} of {self.valid_total:,} validation {self.unit}"
            notes.append(f"{counts} also stand in the training part")
        return tuple(notes)


class OverlapCounter:
    """Counts repeats while documents stream by, holding eight bytes for each."""

    def __init__(self, *, by_line: bool) -> None:
        self.by_line = by_line
        self._hashes: dict[Part, array[int]] = {"train": array("Q"), "valid": array("Q")}

    def add(self, part: Part, text: str) -> None:
        """Note a document of a part."""
        hashes = self._hashes[part]
        if not self.by_line:
            hashes.append(content_hash(text.strip()))
            return
        for line in text.split("\n"):
            line = line.strip()
            if len(line) >= SHORTEST_LINE:
                hashes.append(content_hash(line))

    def result(self) -> Overlap:
        """The counts so far."""
        train = np.array(self._hashes["train"], dtype=np.uint64)
        valid = np.array(self._hashes["valid"], dtype=np.uint64)
        distinct = np.unique(train)
        return Overlap(
            train_total=len(train),
            valid_total=len(valid),
            duplicates_in_train=len(train) - len(distinct),
            valid_also_in_train=int(np.isin(valid, distinct).sum()),
            unit=f"lines of {SHORTEST_LINE} characters or more" if self.by_line else "documents",
        )


def overlap(train: Iterable[Document], valid: Iterable[Document], *, by_line: bool = False) -> Overlap:
    """Count repeats in and between two parts, by document, or by line for running text."""
    counter = OverlapCounter(by_line=by_line)
    for document in train:
        counter.add("train", document.text)
    for document in valid:
        counter.add("valid", document.text)
    return counter.result()
