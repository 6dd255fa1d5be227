"""Parts of published data: which rows are for training, validation and test, by the names that files and cells have."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from saccade.data.tables.problems import Problem, did_you_mean

TRAIN, VALID, TEST = 0, 1, 2
PARTS = {
    **dict.fromkeys(("train", "training", "restval"), TRAIN),  # restval: what Karpathy adds to the training part
    **dict.fromkeys(("valid", "val", "validation", "dev", "eval"), VALID),
    **dict.fromkeys(("test", "testing"), TEST),
}
NAMES = {TRAIN: "training", VALID: "validation", TEST: "test"}
YEAR = re.compile(r"(19|20)\d\d$")  # of val2014
SPLITS = ("split", "set", "subset", "partition")  # usual names of the column that names the parts


class Rows(Protocol):
    """Rows that may be in parts."""

    @property
    def parts(self) -> NDArray[np.int8] | None:
        """Part of each row, where the data say so."""

    def __len__(self) -> int: ...

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> Self:
        """Return some of the rows."""


AnyRows = TypeVar("AnyRows", bound=Rows)


def part_of(name: str) -> int | None:
    """Return the part that the name of a folder, file or cell means: train, val2014, test; None for another name."""
    return PARTS.get(YEAR.sub("", name.strip().lower()).strip("_-. "))


def part_of_file(path: Path, root: Path) -> int | None:
    """Return the part of the data that a file has by its name or its folders below the root.

    Such as train.txt, captions_val2014.json and train/questions.json.
    """
    names = [path.name, *(path.parent.relative_to(root).parts if path.parent.is_relative_to(root) else ())]
    words = [word for name in names for word in re.split(r"[._-]+", name.lower())]
    return next((part for word in words if (part := part_of(word)) is not None), None)


def are_parts(name: str, values: Sequence[str]) -> bool:
    """Whether a column says for each row whether it is for training, validation or test, by its name and a value."""
    return name.strip().lower() in SPLITS and any(part_of(value) is not None for value in values)


def unknown_part(file: Path, line: int | None, column: str, value: str) -> Problem:
    """Return the problem with a row whose cell in the column of parts names none."""
    what = f"'{value[:60]}' in column '{column}'" if value.strip() else f"column '{column}' is empty"
    expected = f"a part of the data: {', '.join(PARTS)}{did_you_mean(value.strip().lower(), list(PARTS))}"
    return Problem(file, line, None, what, expected, f"correct it, or rename the column '{column}' to ignore it")


def complete_parts(
    parts: Sequence[int], describe: Callable[[int], str]
) -> tuple[NDArray[np.int8] | None, tuple[str, ...]]:
    """Return the parts of rows, -1 where the data name none; where they name some only, None and a note that says so.

    `describe` returns the origin of a row.
    """
    missing = [row for row, part in enumerate(parts) if part < 0]
    if not missing:
        return np.array(parts, np.int8), ()
    if len(missing) == len(parts):
        return None, ()
    count = f"{len(missing):,} of {len(parts):,} rows are in no part (first: {describe(missing[0])})"
    return None, (f"the parts that the data name are not used: {count}",)


def evaluated_part(present: Collection[int | None]) -> int | None:
    """Return the part that an evaluation of a model on data with parts scores: test, else validation; None: all."""
    return next((part for part in (TEST, VALID) if part in present), None)


def take_evaluated(rows: AnyRows, unit: str) -> tuple[AnyRows, tuple[str, ...]]:
    """Return the rows that an evaluation of a model on these data scores, with a note where others are left out."""
    part = evaluated_part([] if rows.parts is None else np.unique(rows.parts).tolist())
    chosen = np.arange(len(rows)) if part is None else np.flatnonzero(rows.parts == part)
    if part is None or len(chosen) == len(rows):
        return rows, ()
    return rows.take(chosen), (evaluation_note(part, len(chosen), len(rows), unit),)


def evaluation_note(part: int, count: int, total: int, unit: str) -> str:
    """Return a note for the user on the part that is evaluated."""
    return f"evaluated: the {NAMES[part]} part of the data, {count:,} of {total:,} {unit}"
