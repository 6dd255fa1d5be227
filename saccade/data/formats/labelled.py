"""Labelled rows: a text, or two, with the label, the labels or the number that belongs to it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from saccade.core.callback import Progress, ignore_progress
from saccade.data.cache import Entry, EntryWriter, Record, cached, file_key
from saccade.data.fingerprints import hash_lines
from saccade.data.formats.labelled_files import LABEL_PREFIX, LabelledFiles
from saccade.data.origins import NO_ORIGINS, RowOrigins
from saccade.data.splitting import SplitSettings, hold_out
from saccade.data.tables.columns import split_labels
from saccade.data.tables.encodings import Position
from saccade.data.tables.numbers import is_number
from saccade.data.tables.problems import BadRows, ControlCharacters, Problem, Problems, did_you_mean
from saccade.data.tables.progress import BytesRead, FileProgress
from saccade.data.tables.rows import FORBIDDEN, Lines, Row, forbidden_problem, rows
from saccade.data.texts import NumberWriter, Texts, TextWriter

Value = TypeVar("Value")

LISTED = 20  # labels named in a message
STRATA = 10  # quantiles of the numbers, a fraction of each is held out


@dataclass(frozen=True)
class LabelSet:
    """The labels that rows can have, and whether a row can have several."""

    names: tuple[str, ...]
    multi_label: bool = False


@dataclass(frozen=True, eq=False)
class Labelled:
    """Labelled rows: row n is texts[n], seconds[n] if there are any, and labels[n] or numbers[n]."""

    texts: Texts
    seconds: Texts
    """second text of each row, or empty"""
    labels: tuple[tuple[str, ...], ...]
    """labels of each row: one, or any number of them where `multi_label`; empty if the rows have numbers"""
    numbers: tuple[float, ...]
    label_set: LabelSet
    """every label there is, sorted"""
    origins: RowOrigins = NO_ORIGINS
    replaced: ControlCharacters = field(default_factory=ControlCharacters)
    """control characters that were read as spaces"""
    cache_notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.texts)

    def notes(self) -> list[str]:
        """Return notes for the user on how the rows were read."""
        return [*self.cache_notes, *self.replaced.notes()]

    def fingerprint(self) -> str:
        """Return a hash of all rows."""
        labels = json.dumps([len(self), self.labels, self.numbers])
        return hash_lines(chain([labels], self.texts, self.seconds))

    def take(self, indices: Sequence[int] | NDArray[np.int64]) -> Labelled:
        """Return some of the rows; the label set stays the same."""
        return replace(
            self,
            texts=self.texts.take(indices),
            seconds=self.seconds.take(indices) if len(self.seconds) else self.seconds,
            labels=_pick(self.labels, indices),
            numbers=_pick(self.numbers, indices),
            origins=self.origins.take(indices),
        )

    def split(self, settings: SplitSettings) -> tuple[Labelled, Labelled]:
        """Return training rows, and a fraction of the rows of every label held out; copies of a text stay together."""
        seconds: Sequence[str] = self.seconds if len(self.seconds) else ("",) * len(self)
        keys = [f"{text.strip()}\n{second.strip()}" for text, second in zip(self.texts, seconds, strict=True)]
        held_out = np.array(hold_out(keys, self._strata(), settings, self.origins.file(0)))
        return self.take(np.flatnonzero(~held_out)), self.take(np.flatnonzero(held_out))

    def _strata(self) -> list[str]:
        if not self.numbers:
            return ["|".join(labels) for labels in self.labels]
        order = sorted(self.numbers)
        edges = [order[number * len(order) // STRATA] for number in range(1, STRATA)]
        return [str(sum(number >= edge for edge in edges)) for number in self.numbers]


def _pick(values: tuple[Value, ...], indices: Sequence[int] | NDArray[np.int64]) -> tuple[Value, ...]:
    return tuple(values[index] for index in indices) if values else ()


def read_labelled(
    files: LabelledFiles, *, label_set: LabelSet | None = None, progress: Progress = ignore_progress
) -> Labelled:
    """Return all rows, without white space around texts and labels; bad rows are raised together.

    With `label_set`, that of the training rows, every label must be in it. The files are parsed once; later calls
    read the cache.
    """
    entry = _parsed(files, progress)
    paths = tuple(file.path for file in files.files)
    origins = RowOrigins(paths, entry.arrays["files"], entry.arrays["lines"])
    cells = Texts.open(entry, "labels")
    parsed = [tuple(split_labels(cell)) for cell in cells]
    multi_label = any(len(labels) > 1 for labels in parsed) if label_set is None else label_set.multi_label
    problems, numbers = Problems(), list[float]()
    for row, labels in enumerate(parsed):
        origin = (origins.file(row), int(origins.lines[row]))
        if files.numbers:
            problem = _number_problem(*origin, cells[row])
        else:
            problem = _label_problem(*origin, labels, multi_label, label_set)
        if problem is not None:
            problems.add(problem)
        elif files.numbers:
            numbers.append(float(cells[row]))
    problems.check()
    names = (
        tuple(sort_labels({label for labels in parsed for label in labels})) if label_set is None else label_set.names
    )
    if not files.numbers and label_set is None:
        _check_label_count(origins.file(0), len(parsed), names, multi_label)
    count, number, line = entry.record["replaced"]
    return Labelled(
        texts=Texts.open(entry, "texts"),
        seconds=Texts.open(entry, "seconds"),
        labels=() if files.numbers else tuple(parsed),
        numbers=tuple(numbers),
        label_set=LabelSet(()) if files.numbers else LabelSet(names, multi_label),
        origins=origins,
        replaced=ControlCharacters(count, paths[number] if count else None, line),
        cache_notes=entry.notes,
    )


def _parsed(files: LabelledFiles, progress: Progress) -> Entry:
    """Return the entry of the cache with the cells of all rows."""

    def build(writer: EntryWriter) -> Record:
        problems, replaced = Problems(), ControlCharacters()
        columns = [TextWriter(writer, name) for name in ("texts", "labels", "seconds")]
        lines, numbers = NumberWriter(writer, "lines"), NumberWriter(writer, "files", "int32")
        total, count = FileProgress(files.files, progress), 0
        for number, file in enumerate(files.files):
            for row in parse_labelled(files, number, problems, replaced, total.of(number)):
                if _has_texts(files, file.path, row, problems):
                    for column, value in zip(columns, row.values, strict=False):
                        column.add(value.strip())
                    lines.add(row.line)
                    numbers.add(number)
                    count += 1
        if not count and not problems.count:
            step = "name a file with data in it"
            problems.add(Problem(files.files[0].path, 1, None, "no rows", "at least one row", step))
        problems.check()
        for column in columns:
            column.flush()
        lines.flush()
        numbers.flush()
        paths = [file.path for file in files.files]
        first = paths.index(replaced.file) if replaced.file is not None else 0
        return {"replaced": [replaced.count, first, replaced.line]}

    columns = None if files.columns is None else [files.columns.text, files.columns.label, files.columns.second]
    key = [[file_key(file) for file in files.files], columns, list(files.file_labels), files.one_text_per_file]
    return cached("labelled", key, build, files.files)


def parse_labelled(
    files: LabelledFiles, number: int, problems: Problems, replaced: ControlCharacters, on_bytes: BytesRead
) -> Iterator[Row]:
    """Yield the rows of one file as (text, label, second text if there is one)."""
    file, columns = files.files[number], files.columns
    if columns is not None:
        names = [columns.text, columns.label, *([columns.second] if columns.second else [])]
        lists = {columns.label: json.dumps}
        yield from rows(file, names, lists=lists, problems=problems, on_bytes=on_bytes, replaced=replaced)
        return
    lines = Lines(file, on_bytes, replaced=replaced)
    if files.one_text_per_file:
        text = _file_text(lines, problems)
        yield from [] if text is None else [Row((text, files.file_labels[number]), 1)]
        return
    try:
        for line in lines:
            lines.recent.clear()
            bad = FORBIDDEN.search(line)
            if bad is not None:
                problems.add(forbidden_problem(file.path, lines.number, bad.start() + 1, bad.group()))
            elif line.strip():
                cells = (line, files.file_labels[number]) if files.file_labels else _parse_fasttext_line(line)
                yield Row(cells, lines.number)
    except BadRows as fatal:
        raise problems.fail(fatal) from fatal


def _file_text(lines: Lines, problems: Problems) -> str | None:
    """Return all lines of a file as one text, or None if it has a forbidden character."""
    text = "".join(lines)
    bad = FORBIDDEN.search(text)
    if bad is None:
        return text
    position = Position()
    position.advance(text[: bad.start()])
    problems.add(forbidden_problem(lines.path, position.line, position.column, bad.group()))
    return None


def _parse_fasttext_line(line: str) -> tuple[str, str]:
    """Return the text of a line after its leading labels, and these labels."""
    labels = []
    while line.startswith(LABEL_PREFIX):
        word, _, line = line.partition(" ")
        labels.append(word.strip().removeprefix(LABEL_PREFIX))
    return line, "|".join(labels)


def _check_label_count(path: Path, count: int, names: Sequence[str], multi_label: bool) -> None:
    """Refuse labels from which nothing can be learned: only one, or nearly as many as rows."""
    if len(names) < 2 and not multi_label:
        step = "add rows with another label, or name its column with data.label_column=NAME"
        raise BadRows([Problem(path, None, None, f"every label is '{names[0]}'", "at least two labels", step)])
    if len(names) > max(LISTED, count // 2):
        what, expected = f"{len(names):,} different labels in {count:,} rows", "labels that many rows share"
        step = "name the column of the label with data.label_column=NAME; numbers are for regression"
        raise BadRows([Problem(path, None, None, what, expected, step)])


def sort_labels(labels: set[str]) -> list[str]:
    """Return labels in alphabetical order, or in the order of numbers if all are numbers."""
    return sorted(labels, key=lambda label: (float(label), label)) if all(map(is_number, labels)) else sorted(labels)


def _has_texts(files: LabelledFiles, path: Path, row: Row, problems: Problems) -> bool:
    """Whether neither text of a row is empty; if one is, that is a problem."""
    columns = files.columns
    names = ("", "") if columns is None else (columns.text, columns.second)
    empty = next((cell for cell in (0, 2) if cell < len(row.values) and not row.values[cell].strip()), None)
    if empty is None:
        return True
    where = f" in column '{names[empty // 2]}'" if columns is not None else ""
    step = "fill it in or delete the row"
    problems.add(Problem(path, row.line, None, f"empty text{where}", "some text in every row", step))
    return False


def _number_problem(path: Path, line: int, value: str) -> Problem | None:
    if is_number(value) and math.isfinite(float(value)):
        return None
    what = f"the label is '{value[:40]}'" if value else "no label"
    step = "correct or delete the row, or classify instead of predicting numbers"
    return Problem(path, line, None, what, "a finite number in every row", step)


def _label_problem(
    path: Path, line: int, labels: Sequence[str], multi_label: bool, label_set: LabelSet | None
) -> Problem | None:
    if not labels and not multi_label:
        return Problem(path, line, None, "no label", "a label in every row", "fill it in or delete the row")
    if len(labels) > 1 and not multi_label:
        what = f"{len(labels)} labels ({', '.join(labels)})"
        return Problem(path, line, None, what, "one as in the training rows", "keep one of them")
    unknown = next((label for label in labels if label_set is not None and label not in label_set.names), None)
    if unknown is None or label_set is None:
        return None
    names = sort_labels(set(label_set.names))
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    step = "correct it, or add rows with this label to the training data"
    expected = f"one of the training rows: {', '.join(names[:LISTED])}{more}{did_you_mean(unknown, names)}"
    return Problem(path, line, None, f"label '{unknown}'", expected, step)
