"""Files of labelled rows: columns of a table, lines that start with labels, a file or folder per label."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from saccade.data.tables.columns import Columns, find_columns
from saccade.data.tables.encodings import explain, text_blocks
from saccade.data.tables.files import find
from saccade.data.tables.problems import BadRows, Problem
from saccade.data.tables.rows import Lines
from saccade.data.tables.sniffing import FORMATS, DataFile, sniff
from saccade.errors import DataError

SHOWN = 3  # files described to the user
LABEL_PREFIX = "__label__"  # starts each label of a line, as in files of fastText
SPLIT_NAMES = {"train", "training", "valid", "validation", "val", "dev", "test"}


@dataclass(frozen=True)
class LabelledFiles:
    """Where labelled rows come from: tables with the same columns, lines that start with labels, a file per label."""

    files: tuple[DataFile, ...]
    columns: Columns | None = None
    file_labels: tuple[str, ...] = ()
    """label of each file, where its name or folder is the label"""
    one_text_per_file: bool = False
    """whether each file is one text, in a folder named after its label"""
    numbers: bool = False
    """whether the labels are numbers to be predicted"""

    def notes(self) -> list[str]:
        """Describe the files for the user."""
        notes = [file.describe() for file in self.files[:SHOWN]]
        notes += [f"... {len(self.files)} files in total"] if len(self.files) > SHOWN else []
        if self.columns is not None:
            used = (self.columns.text, self.columns.second, self.columns.label)
            ignored = [name or "(no name)" for name in self.files[0].columns if not name or name not in used]
            plural = "" if len(ignored) == 1 else "s"
            return notes + self.columns.notes() + ([f"ignored: column{plural} {', '.join(ignored)}"] if ignored else [])
        if self.one_text_per_file:
            counts = Counter(self.file_labels)
            return [*notes, "labels by folder: " + ", ".join(f"{label} ({count:,})" for label, count in counts.items())]
        if self.file_labels:
            pairs = zip(self.files, self.file_labels, strict=True)
            return [*notes, "labels by file: " + ", ".join(f"{file.path.name} is {label}" for file, label in pairs)]
        return [*notes, f"each line starts with its labels ({LABEL_PREFIX}...)"]


def find_labelled(
    path: Path,
    *,
    text_column: str = "",
    second_column: str = "",
    label_column: str = "",
    numbers: bool = False,
    encoding: str | None = None,
    header: bool | None = None,
) -> LabelledFiles:
    """Return the files of a path, with the columns or names that hold text and label.

    With `numbers` each label is a number to be predicted, not a class.
    """
    files = [sniff(file, encoding=encoding, header=header) for file in _files(Path(path))]
    plain = [file for file in files if file.format == "text"]
    if plain and len(plain) < len(files):
        table = next(file for file in files if file.format != "text")
        message = f"{path}: {plain[0].path.name} is text, {table.path.name} is {table.format}"
        raise DataError(f"{message}, expected files of one format; name the file you mean")
    if plain:
        return _find_lines(Path(path), plain, numbers)
    tables = [
        find_columns(file, text=text_column, second=second_column, label=label_column, numbers=numbers)
        for file in files
    ]
    other = next(((file, columns) for file, columns in tables if columns != tables[0][1]), None)
    if other is not None:
        what, expected = (_describe(columns) for columns in (other[1], tables[0][1]))
        expected += f" as in {tables[0][0].path.name}"
        raise BadRows([Problem(other[0].path, 1, None, what, expected, "name one file, or rename the columns")])
    return LabelledFiles(tuple(file for file, _ in tables), tables[0][1], numbers=numbers)


def _describe(columns: Columns) -> str:
    names = [columns.text, *([columns.second] if columns.second else []), columns.label]
    return f"the columns {', '.join(names[:-1])} and {names[-1]}"


def _files(path: Path) -> list[Path]:
    """Return the files of a path; in a folder without known file extensions, all of them."""
    try:
        entries = sorted(path.iterdir()) if path.is_dir() else []
        plain = [entry for entry in entries if entry.is_file() and not entry.name.startswith(".")]
    except OSError as error:
        raise explain(path, error) from error
    has_extension = any(Path(entry.name.removesuffix(".gz")).suffix.lower() in FORMATS for entry in plain)
    return plain if plain and not has_extension else find(path)


def _find_lines(path: Path, files: Sequence[DataFile], numbers: bool) -> LabelledFiles:
    """Return plain text files: lines that start with their labels, or one file or folder per label."""
    if numbers:
        raise DataError(f"{path}: plain text, expected a table with a column of numbers; name a csv, tsv or jsonl file")
    if all(map(starts_with_labels, files)):
        return LabelledFiles(tuple(files))
    folders = [file.path.parent.name for file in files]
    if len(set(folders)) > 1 and not set(folders) <= SPLIT_NAMES:
        return LabelledFiles(tuple(files), file_labels=_check_names(files, folders), one_text_per_file=True)
    labels = _labels_by_name([file.path.name for file in files])
    if len(files) > 1 and len(set(folders)) == 1 and not set(labels) <= SPLIT_NAMES:
        return LabelledFiles(tuple(files), file_labels=_check_names(files, labels))
    uneven = _uneven_row(files[0])
    if uneven is not None:
        raise BadRows([uneven])
    kinds = (
        f"a table (csv, tsv, jsonl), lines that start with {LABEL_PREFIX}, or a folder with a file or folder per label"
    )
    raise DataError(f"{files[0].path}:1: plain text without labels, expected {kinds}; name such a file or folder")


def _check_names(files: Sequence[DataFile], labels: Sequence[str]) -> tuple[str, ...]:
    """Return labels that are names of files or folders, which must be UTF-8 to be printed."""
    for file, label in zip(files, labels, strict=True):
        if re.search("[\ud800-\udfff]", label):
            raise DataError(f"{file.path}: the label must be UTF-8, but is '{label}', a part of this path; rename it")
    return tuple(labels)


def starts_with_labels(file: DataFile) -> bool:
    """Whether the first line with text starts with its label, as in files of fastText."""
    blocks = text_blocks(file.path, compressed=file.gzip, encoding=file.encoding)
    return next(blocks, "").lstrip().startswith(LABEL_PREFIX)


def _uneven_row(file: DataFile) -> Problem | None:
    """Return the row because of which a table of tabs looked like plain text, if it is one."""
    first: int | None = None
    for number, line in enumerate(Lines(file), 1):
        tabs = line.count("\t")
        if not line.strip():
            continue
        if not tabs and first is None:
            return None
        if first is not None and tabs != first:
            step = "correct the row, or rename the file to .tsv to see all such rows"
            return Problem(file.path, number, None, f"{tabs + 1} columns", f"{first + 1} as in line 1", step)
        first = tabs
    return None


def _labels_by_name(names: Sequence[str]) -> list[str]:
    """Return what differs between file names: neg and pos for reviews.neg.txt and reviews.pos.txt."""
    parts = [re.split(r"[._-]+", name.lower()) for name in names]
    while all(len(part) > 1 for part in parts) and len({part[-1] for part in parts}) == 1:
        parts = [part[:-1] for part in parts]
    while all(len(part) > 1 for part in parts) and len({part[0] for part in parts}) == 1:
        parts = [part[1:] for part in parts]
    return ["-".join(part) for part in parts]
