"""Labelled rows: a text, or two, with the label, the labels or the number that belongs to it."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from saccade.data.splitting import SplitSettings, hold_back
from saccade.data.tables.columns import Columns, find_columns, is_number, split_labels
from saccade.data.tables.encodings import Position, explain
from saccade.data.tables.files import find
from saccade.data.tables.problems import BadRows, Problem, Problems, Strays
from saccade.data.tables.rows import FORBIDDEN, Lines, Row, forbidden_problem, rows
from saccade.data.tables.sniffing import FORMATS, DataFile, sniff
from saccade.errors import DataError, suggest

Value = TypeVar("Value")

SHOWN = 3  # files described to people
LISTED = 20  # labels named in a message
MARK = "__label__"  # begins each label of a line, as fastText writes them
STRATA = 10  # classes of numbers that each give a share to the held-back rows
PARTS_OF_DATA = {"train", "training", "valid", "validation", "val", "dev", "test"}


@dataclass(frozen=True)
class LabelledFiles:
    """Where labelled rows come from: tables alike, lines that begin with their labels, a file or folder per label."""

    files: tuple[DataFile, ...]
    columns: Columns | None = None
    by_name: tuple[str, ...] = ()
    """The label of each file, where its name or folder says it."""
    whole: bool = False
    """Whether each file is one text, in a folder named as its label."""
    numbers: bool = False

    def notes(self) -> list[str]:
        """What was found, for people."""
        notes = [file.describe() for file in self.files[:SHOWN]]
        notes += [f"... {len(self.files)} files in all"] if len(self.files) > SHOWN else []
        if self.columns is not None:
            return notes + self.columns.notes()
        if self.whole:
            counts = Counter(self.by_name)
            return [*notes, "labels by folder: " + ", ".join(f"{label} ({count:,})" for label, count in counts.items())]
        if self.by_name:
            pairs = zip(self.files, self.by_name, strict=True)
            return [*notes, "labels by file: " + ", ".join(f"{file.path.name} is {label}" for file, label in pairs)]
        return [*notes, f"each line begins with its labels ({MARK}...)"]


@dataclass(frozen=True)
class Labelled:
    """Labelled rows in memory: row n is texts[n], seconds[n] if there are any, and labels[n] or numbers[n]."""

    texts: tuple[str, ...]
    seconds: tuple[str, ...]
    """The second text of each row, or nothing at all."""
    labels: tuple[tuple[str, ...], ...]
    """The labels of each row: one, or any number of them where `several`; nothing at all where there are numbers."""
    numbers: tuple[float, ...]
    names: tuple[str, ...]
    """Every label there is, sorted."""
    several: bool
    files: tuple[Path, ...]
    lines: tuple[int, ...]
    strays: Strays

    def __len__(self) -> int:
        return len(self.texts)

    def place(self, row: int) -> str:
        """Where a row comes from, for people."""
        return f"{self.files[row].name}:{self.lines[row]}"

    def take(self, places: Sequence[int]) -> "Labelled":
        """Some of the rows; the labels there are stay the same."""
        return replace(
            self,
            texts=_pick(self.texts, places),
            seconds=_pick(self.seconds, places),
            labels=_pick(self.labels, places),
            numbers=_pick(self.numbers, places),
            files=_pick(self.files, places),
            lines=_pick(self.lines, places),
        )

    def split(self, settings: SplitSettings) -> tuple["Labelled", "Labelled"]:
        """The rows to learn from, and a share of those of every label held back; copies of a text stay together."""
        seconds = self.seconds or ("",) * len(self)
        keys = [f"{text.strip()}\n{second.strip()}" for text, second in zip(self.texts, seconds, strict=True)]
        held = hold_back(keys, self._strata(), settings, self.files[0])
        train, valid = ([row for row, value in enumerate(held) if value is wanted] for wanted in (False, True))
        return self.take(train), self.take(valid)

    def _strata(self) -> list[str]:
        if not self.numbers:
            return ["|".join(labels) for labels in self.labels]
        order = sorted(self.numbers)
        edges = [order[place * len(order) // STRATA] for place in range(1, STRATA)]
        return [str(sum(number >= edge for edge in edges)) for number in self.numbers]


def _pick(values: tuple[Value, ...], places: Sequence[int]) -> tuple[Value, ...]:
    return tuple(values[place] for place in places) if values else ()


def find_labelled(
    path: Path,
    *,
    column: str = "",
    second: str = "",
    label: str = "",
    numbers: bool = False,
    encoding: str | None = None,
) -> LabelledFiles:
    """Look at the files that a path means, and decide where text and label stand in them.

    With `numbers` each label is a number to be predicted, not one of some classes.
    """
    found = [sniff(file, encoding=encoding) for file in _files(Path(path))]
    plain = [file for file in found if file.format == "text"]
    if plain and len(plain) < len(found):
        table = next(file for file in found if file.format != "text")
        message = f"{path}: {plain[0].path.name} is text, {table.path.name} is {table.format}"
        raise DataError(f"{message}, expected files of one kind; name the file you mean")
    if plain:
        return _find_lines(Path(path), plain, numbers)
    chosen = [find_columns(file, text=column, second=second, label=label, numbers=numbers) for file in found]
    other = next(((file, columns) for file, columns in chosen if columns != chosen[0][1]), None)
    if other is not None:
        what, expected = (_said(columns) for columns in (other[1], chosen[0][1]))
        expected += f" as in {chosen[0][0].path.name}"
        raise BadRows([Problem(other[0].path, 1, None, what, expected, "name one file, or rename the columns")])
    return LabelledFiles(tuple(file for file, _ in chosen), chosen[0][1], numbers=numbers)


def _said(columns: Columns) -> str:
    names = [columns.text, *([columns.second] if columns.second else []), columns.label]
    return f"the columns {', '.join(names[:-1])} and {names[-1]}"


def _files(path: Path) -> list[Path]:
    """The files a path means; in a folder where no name ends in a known way, all of them."""
    try:
        entries = sorted(path.iterdir()) if path.is_dir() else []
        plain = [entry for entry in entries if entry.is_file() and not entry.name.startswith(".")]
    except OSError as error:
        raise explain(path, error) from error
    known = any(Path(entry.name.removesuffix(".gz")).suffix.lower() in FORMATS for entry in plain)
    return plain if plain and not known else find(path)


def _find_lines(path: Path, found: Sequence[DataFile], numbers: bool) -> LabelledFiles:
    """Plain text: lines marked with their labels, or one file of lines for each label."""
    if numbers:
        raise DataError(f"{path}: plain text, expected a table with a column of numbers; name a csv, tsv or jsonl file")
    if all(next((line for line in Lines(file) if line.strip()), "").startswith(MARK) for file in found):
        return LabelledFiles(tuple(found))
    folders = [file.path.parent.name for file in found]
    if len(set(folders)) > 1 and not set(folders) <= PARTS_OF_DATA:
        return LabelledFiles(tuple(found), by_name=tuple(folders), whole=True)
    labels = _labels_by_name([file.path.name for file in found])
    if len(found) > 1 and len(set(folders)) == 1 and not set(labels) <= PARTS_OF_DATA:
        return LabelledFiles(tuple(found), by_name=tuple(labels))
    uneven = _uneven(found[0])
    if uneven is not None:
        raise BadRows([uneven])
    kinds = f"a table (csv, tsv, jsonl), lines that begin with {MARK}, or a folder with a file or folder per label"
    raise DataError(f"{found[0].path}:1: plain text without labels, expected {kinds}; name such a file or folder")


def _uneven(found: DataFile) -> Problem | None:
    """The row because of which a table of tabs looked like plain text, if this is one."""
    first: int | None = None
    for number, line in enumerate(Lines(found), 1):
        tabs = line.count("\t")
        if not line.strip():
            continue
        if not tabs and first is None:
            return None
        if first is not None and tabs != first:
            step = "correct the row, or rename the file to .tsv to see all such rows"
            return Problem(found.path, number, None, f"{tabs + 1} columns", f"{first + 1} as in line 1", step)
        first = tabs
    return None


def _labels_by_name(names: Sequence[str]) -> list[str]:
    """What differs between file names: neg and pos for reviews.neg.txt and reviews.pos.txt."""
    parts = [re.split(r"[._-]+", name.lower()) for name in names]
    while all(len(part) > 1 for part in parts) and len({part[-1] for part in parts}) == 1:
        parts = [part[:-1] for part in parts]
    while all(len(part) > 1 for part in parts) and len({part[0] for part in parts}) == 1:
        parts = [part[1:] for part in parts]
    return ["-".join(part) for part in parts]


def read_labelled(files: LabelledFiles, *, like: Labelled | None = None) -> Labelled:
    """All rows, without white space around texts and labels; bad rows are raised together at the end.

    With `like`, the rows to learn from, the labels must be among theirs, and are several or one as there.
    """
    problems, strays = Problems(), Strays()
    kept: list[tuple[Path, Row]] = []
    for number, found in enumerate(files.files):
        read = _raw_rows(files, number, problems, strays)
        kept.extend((found.path, row) for row in read if _has_texts(files, found.path, row, problems))
    if not kept and not problems.count:
        problems.add(
            Problem(files.files[0].path, 1, None, "no rows", "at least one row", "name a file with data in it")
        )
    problems.check()
    parsed = [split_labels(row.values[1]) for _, row in kept]
    several = any(len(labels) > 1 for labels in parsed) if like is None else like.several
    known = None if like is None else set(like.names)
    numbers: list[float] = []
    for (path, row), labels in zip(kept, parsed, strict=True):
        problem = _number_problem(path, row) if files.numbers else _label_problem(path, row, labels, several, known)
        if problem is not None:
            problems.add(problem)
        elif files.numbers:
            numbers.append(float(row.values[1]))
    problems.check()
    names = tuple(sort_labels({label for labels in parsed for label in labels})) if like is None else like.names
    if not files.numbers and like is None:
        _check_variety(kept[0][0], len(kept), names, several)
    return Labelled(
        texts=tuple(row.values[0].strip() for _, row in kept),
        seconds=tuple(row.values[2].strip() for _, row in kept if len(row.values) > 2),
        labels=() if files.numbers else tuple(tuple(labels) for labels in parsed),
        numbers=tuple(numbers),
        names=() if files.numbers else names,
        several=several and not files.numbers,
        files=tuple(path for path, _ in kept),
        lines=tuple(row.line for _, row in kept),
        strays=strays,
    )


def _check_variety(path: Path, count: int, names: Sequence[str], several: bool) -> None:
    """Refuse labels from which nothing can be learned: only one, or nearly as many as rows."""
    if len(names) < 2 and not several:
        step = "add rows with another label, or say with --label NAME which column has it"
        raise BadRows([Problem(path, None, None, f"every label is '{names[0]}'", "at least two labels", step)])
    if len(names) > max(LISTED, count // 2):
        what, expected = f"{len(names):,} different labels in {count:,} rows", "labels that many rows share"
        step = "say with --label NAME which column has the label; numbers are for regression"
        raise BadRows([Problem(path, None, None, what, expected, step)])


def sort_labels(labels: set[str]) -> list[str]:
    """Labels in the order of the alphabet, or of numbers if all are numbers."""
    return sorted(labels, key=lambda label: (float(label), label)) if all(map(is_number, labels)) else sorted(labels)


def _raw_rows(files: LabelledFiles, number: int, problems: Problems, strays: Strays) -> Iterator[Row]:
    """The rows of one file as (text, label, second text if there is one)."""
    found = files.files[number]
    if files.columns is not None:
        wanted = [files.columns.text, files.columns.label, *([files.columns.second] if files.columns.second else [])]
        lists = {files.columns.label: json.dumps}
        yield from rows(found, wanted, lists=lists, problems=problems, strays=strays)
        return
    lines = Lines(found, strays=strays)
    if files.whole:
        text = _whole_text(lines, problems)
        yield from [] if text is None else [Row((text, files.by_name[number]), 1)]
        return
    try:
        for line in lines:
            lines.recent.clear()
            bad = FORBIDDEN.search(line)
            if bad is not None:
                problems.add(forbidden_problem(found.path, lines.number, bad.start() + 1, bad.group()))
            elif line.strip():
                text, label = (line, files.by_name[number]) if files.by_name else _marked(line)
                yield Row((text, label), lines.number)
    except BadRows as fatal:
        raise problems.fail(fatal) from fatal


def _whole_text(lines: Lines, problems: Problems) -> str | None:
    """All lines of a file as one text, or None if a character in it is noted."""
    text = "".join(lines)
    bad = FORBIDDEN.search(text)
    if bad is None:
        return text
    place = Position()
    place.advance(text[: bad.start()])
    problems.add(forbidden_problem(lines.path, place.line, place.column, bad.group()))
    return None


def _marked(line: str) -> tuple[str, str]:
    """The text behind the labels that a line begins with, and these labels."""
    labels = []
    while line.startswith(MARK):
        word, _, line = line.partition(" ")
        labels.append(word.strip().removeprefix(MARK))
    return line, "|".join(labels)


def _has_texts(files: LabelledFiles, path: Path, row: Row, problems: Problems) -> bool:
    """Whether neither text of a row is empty; if one is, that is noted."""
    columns = files.columns
    names = ("", "") if columns is None else (columns.text, columns.second)
    empty = next((place for place in (0, 2) if place < len(row.values) and not row.values[place].strip()), None)
    if empty is None:
        return True
    where = f" in column '{names[empty // 2]}'" if columns is not None else ""
    step = "fill it in or delete the row"
    problems.add(Problem(path, row.line, None, f"empty text{where}", "some text in every row", step))
    return False


def _number_problem(path: Path, row: Row) -> Problem | None:
    value = row.values[1].strip()
    if is_number(value) and math.isfinite(float(value)):
        return None
    what = f"the label is '{value[:40]}'" if value else "no label"
    step = "correct or delete the row, or classify instead of predicting numbers"
    return Problem(path, row.line, None, what, "a finite number in every row", step)


def _label_problem(path: Path, row: Row, labels: list[str], several: bool, known: set[str] | None) -> Problem | None:
    if not labels and not several:
        return Problem(path, row.line, None, "no label", "a label in every row", "fill it in or delete the row")
    if len(labels) > 1 and not several:
        what = f"{len(labels)} labels ({', '.join(labels)})"
        return Problem(path, row.line, None, what, "one as in the training rows", "leave one of them")
    foreign = next((label for label in labels if known is not None and label not in known), None)
    if foreign is None or known is None:
        return None
    names = sort_labels(known)
    near = suggest(foreign, names)
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    hint = near if "did you mean" in near else ""
    step = "correct it, or add rows with this label to the training data"
    expected = f"one of the training rows: {', '.join(names[:LISTED])}{more}{hint}"
    return Problem(path, row.line, None, f"label '{foreign}'", expected, step)
