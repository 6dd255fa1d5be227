"""Splitting: divides data into a training part and a validation part, the same way every time."""

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from saccade.errors import DataError

Part = Literal["train", "valid"]
PARTS: tuple[Part, Part] = ("train", "valid")

MIN_LINE = 20  # characters; shorter lines repeat by chance


@dataclass(frozen=True)
class SplitSettings:
    """How much data is held out for validation, and how it is chosen."""

    fraction: float = 0.1
    seed: int = 0
    column: str | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.fraction < 1.0:
            message = f"the validation fraction must be between 0 and 1, but is {self.fraction}"
            raise DataError(f"{message}; 0.1 holds out a tenth")


def is_held_out(content: str, settings: SplitSettings) -> bool:
    """Whether a row is held out: decided by its content alone, so that copies are never in both parts."""
    return content_hash(f"{settings.seed}\n{content.strip()}") < settings.fraction * 2.0**64


def content_hash(content: str) -> int:
    """Return the 64-bit hash of a text."""
    return int.from_bytes(hashlib.blake2b(content.encode(), digest_size=8).digest(), "little")


def hold_out(
    keys: Sequence[str], strata: Sequence[str], settings: SplitSettings, file: Path, *, unit: str = "row"
) -> list[bool]:
    """Return which rows are held out: a fraction of every stratum; rows with the same key stay together.

    A key belongs to the first of its strata by name. Decided by keys, strata and seed alone, not by the order of rows.
    """
    stratum_of: dict[str, str] = {}
    for key, stratum in zip(keys, strata, strict=True):
        stratum_of[key] = min(stratum, stratum_of.get(key, stratum))
    if len(stratum_of) < 2:
        message = f"{file}: {len(stratum_of)} distinct {unit}, expected at least 2 to hold one out"
        raise DataError(f"{message}; add {unit}s or name a file for validation")

    def order(key: str) -> tuple[int, str, int, str]:
        stratum = stratum_of[key]
        return content_hash(f"{settings.seed}\n{stratum}"), stratum, content_hash(f"{settings.seed}\n{key}"), key

    # Every n-th key in an order that keeps strata together takes the fraction of each stratum, even of very small ones.
    count = min(max(round(len(stratum_of) * settings.fraction), 1), len(stratum_of) - 1)
    chosen = {
        key
        for position, key in enumerate(sorted(stratum_of, key=order))
        if (position + 1) * count // len(stratum_of) > position * count // len(stratum_of)
    }
    return [key in chosen for key in keys]


@dataclass(frozen=True)
class Overlap:
    """How many texts are repeated within the training part, and between the two parts."""

    train_total: int
    valid_total: int
    duplicates_in_train: int
    valid_also_in_train: int
    unit: str = "documents"

    def notes(self) -> tuple[str, ...]:
        """Return lines for the user if anything is repeated: validation text that was trained on inflates the score."""
        notes = []
        if self.duplicates_in_train:
            notes.append(f"{self.duplicates_in_train:,} of {self.train_total:,} training {self.unit} are duplicates")
        if self.valid_also_in_train:
            counts = f"{self.valid_also_in_train:,} of {self.valid_total:,} validation {self.unit}"
            notes.append(f"{counts} are also in the training part")
        return tuple(notes)


class OverlapCounter:
    """Counts duplicates in a stream of documents, in eight bytes per document or line."""

    def __init__(self, *, by_line: bool) -> None:
        self.by_line = by_line
        self._hashes: dict[Part, array[int]] = {"train": array("Q"), "valid": array("Q")}

    def add(self, part: Part, text: str) -> None:
        """Add a document of a part."""
        hashes = self._hashes[part]
        if not self.by_line:
            hashes.append(content_hash(text.strip()))
            return
        for line in text.split("\n"):
            line = line.strip()
            if len(line) >= MIN_LINE:
                hashes.append(content_hash(line))

    def result(self) -> Overlap:
        """Return the counts so far."""
        train = np.array(self._hashes["train"], dtype=np.uint64)
        valid = np.array(self._hashes["valid"], dtype=np.uint64)
        distinct = np.unique(train)
        return Overlap(
            train_total=len(train),
            valid_total=len(valid),
            duplicates_in_train=len(train) - len(distinct),
            valid_also_in_train=int(np.isin(valid, distinct).sum()),
            unit=f"lines of {MIN_LINE} characters or more" if self.by_line else "documents",
        )


def overlap(train: Iterable[str], valid: Iterable[str], *, by_line: bool = False) -> Overlap:
    """Count duplicates in and between two parts, by document, or by line for running text."""
    counter = OverlapCounter(by_line=by_line)
    for text in train:
        counter.add("train", text)
    for text in valid:
        counter.add("valid", text)
    return counter.result()
