"""Files of pairs: which columns of a table, or which two files of lines, hold the source and the target."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from saccade.data.tables.counterparts import counterpart, is_file, name_parts
from saccade.data.tables.files import find
from saccade.data.tables.problems import BadRows, Problem, Problems
from saccade.data.tables.rows import Lines, pick_columns, rows
from saccade.data.tables.sniffing import DataFile, sniff, with_named_columns
from saccade.errors import DataError, UsageError

SHOWN = 3  # files described to the user
# Usual names of the two columns, in lower case; the first pair that a table has is read.
COLUMN_NAMES = (
    ("source", "target"),
    ("src", "tgt"),
    ("src", "trg"),
    ("input", "output"),
    ("input", "target"),
    ("prompt", "completion"),
    ("prompt", "response"),
    ("question", "answer"),
    ("document", "summary"),
    ("article", "highlights"),
    ("article", "summary"),
    ("dialogue", "summary"),
    ("text", "summary"),
    ("email_body", "subject_line"),
    ("body", "subject"),
)


@dataclass(frozen=True)
class PairFiles:
    """Where pairs come from: one table or several with the same columns, or files of lines with their counterparts."""

    sources: tuple[DataFile, ...]
    targets: tuple[DataFile, ...]
    columns: tuple[str, str]
    ignored: tuple[str, ...] = ()
    """columns that are not read"""
    lists: tuple[str, ...] = ()
    """columns that hold lists of strings"""

    def notes(self) -> list[str]:
        """Describe the files for the user, and which columns or lines make a pair."""
        files = [file for pair in zip_longest(self.sources, self.targets) for file in pair if file is not None]
        notes = [file.describe() for file in files[:SHOWN]]
        notes += [f"... {len(files)} files in total"] if len(files) > SHOWN else []
        if self.targets:
            first, second = self.sources[0].path.name, self.targets[0].path.name
            return [*notes, f"each line of {first} goes with the same line of {second}"]
        source, target = self.columns
        notes.append(f"source: column {source}, target: column {target}")
        if self.ignored:
            notes.append(f"ignored: column{'' if len(self.ignored) == 1 else 's'} {', '.join(self.ignored)}")
        if source in self.lists:
            notes.append(f"the strings in the lists under {source} are joined with spaces")
        if target in self.lists:
            notes.append(f"only the first string of each list under {target} is read")
        return notes


def find_pairs(
    path: Path, *, source: str = "", target: str = "", encoding: str | None = None, header: bool | None = None
) -> PairFiles:
    """Return the files of a path, with the columns or counterparts that hold the two sides of a pair.

    In a table `source` and `target` are columns. For plain text `target` is the other file, or the part of its name
    that differs; `source` picks the files of a folder that have it as a part of their name.
    """
    files = [sniff(file, encoding=encoding, header=header) for file in find(path)]
    formats = sorted({file.format for file in files})
    if len(formats) > 1:
        examples = ", ".join(f"{file.path.name} is {file.format}" for file in _first_of_each_format(files))
        raise DataError(f"{path}: {examples}, expected files of one format; name the file you mean")
    if formats == ["text"]:
        return _find_lines(files, Path(path).is_dir(), source, target, encoding)
    tables = [_choose(file, source, target) for file in files]
    other = next((table for table in tables if table.columns != tables[0].columns), None)
    if other is not None:
        what = f"source and target are the columns {' and '.join(other.columns)}"
        expected = f"{' and '.join(tables[0].columns)} as in {tables[0].sources[0].path.name}"
        raise BadRows([Problem(other.sources[0].path, 1, None, what, expected, "name one file, or rename the columns")])
    return replace(tables[0], sources=tuple(table.sources[0] for table in tables))


def _first_of_each_format(files: Sequence[DataFile]) -> list[DataFile]:
    return list({file.format: file for file in reversed(files)}.values())


def _choose(file: DataFile, source: str, target: str) -> PairFiles:
    """Return one table with its two columns."""
    given = [name for name in (source, target) if name]
    file = with_named_columns(file, given)
    names = file.columns or _numbered(file)
    if not names:  # reading reports what is wrong with every row
        return PairFiles((file,), (), (source or "source", target or "target"))
    pick_columns(file.path, names, given)
    columns = _guess([name for name in names if name.strip()], source, target, numbered=not file.columns)
    if columns is None:
        what = "1 column" if len(names) == 1 else f"{len(names)} columns without a usual pair of names"
        listed = ", ".join(name or "(no name)" for name in names)
        expected = f"a source and a target among: {listed}"
        raise BadRows([Problem(file.path, 1, None, what, expected, _step(file, names))])
    if columns[0] == columns[1]:
        message = f"source and target must be different columns, but both are '{columns[0]}'"
        raise UsageError(f"{message}; the columns of {file.path.name} are: {', '.join(names)}")
    ignored = tuple(name or "(no name)" for name in names if name not in columns)
    return PairFiles((file,), (), columns, ignored, _list_columns(file, columns) if file.format == "jsonl" else ())


def _step(file: DataFile, names: Sequence[str]) -> str:
    if len(names) > 1:
        return "name them with data.source=NAME data.target=NAME"
    return f"separate the two texts of each row of {file.path.name} by a tab"


def _guess(names: Sequence[str], source: str, target: str, *, numbered: bool) -> tuple[str, str] | None:
    """Return the two columns: the given ones, those with usual names, the first two of a table without a header."""
    if source and target:
        return source, target
    by_name = {name.strip().lower(): name for name in reversed(names)}
    for pair in COLUMN_NAMES:
        first, second = (by_name.get(name, "") for name in pair)
        if first and second and source in ("", first) and target in ("", second):
            return first, second
    if len(names) < 2 or (len(names) > 2 and not numbered):
        return None
    first, second = names[:2]
    if source:
        return source, next(name for name in names if name != source)
    if target:
        return next(name for name in names if name != target), target
    return first, second


def _numbered(file: DataFile) -> tuple[str, ...]:
    """Return the columns of a table without a header, by number; none if no row can be read."""
    if file.format == "jsonl":
        return ()
    first = next(rows(file, problems=Problems()), None)
    return tuple(str(number + 1) for number in range(len(first.values))) if first is not None else ()


def _list_columns(file: DataFile, columns: tuple[str, str]) -> tuple[str, ...]:
    """Return those of two columns whose value in the first row is a list."""
    row = json.loads(next(line for line in Lines(file) if line.strip()))
    return tuple(name for name in columns if isinstance(row[name], list))


def _find_lines(files: Sequence[DataFile], folder: bool, source: str, target: str, encoding: str | None) -> PairFiles:
    """Return files of lines, each with its counterpart."""
    if not target:
        raise _no_target(files[0])
    if folder:
        files = [file for file in files if not _is_target_side(file.path, target)] or files
    chosen = [file for file in files if not source or source in name_parts(file.path.name)]
    if not chosen:
        message = f"{files[0].path}: plain text has no columns, and '{source}' is no part of its name"
        raise DataError(f"{message}; leave out data.source, or name a table")
    targets: dict[Path, DataFile] = {}
    for file in chosen:
        other = counterpart(file.path, target)
        if other in targets:
            message = f"{other}: goes with {targets[other].path.name} and with {file.path.name}, expected one of them"
            raise DataError(f"{message}; choose with data.source=PART of the name, or name the file")
        targets[other] = file
    sides = tuple(sniff(other, encoding=encoding) for other in targets)
    table = next((file for file in sides if file.format != "text"), None)
    if table is not None:
        message = f"{table.path}:1: a table ({table.format}), expected plain text like {targets[table.path].path.name}"
        raise DataError(f"{message}; name a file of lines")
    return PairFiles(tuple(targets.values()), sides, ("", ""))


def _is_target_side(path: Path, target: str) -> bool:
    """Whether a file of a folder that holds both sides is a target file."""
    named = Path(target)
    return target in (path.name, *name_parts(path.name)) or (is_file(named) and named.samefile(path))


def _no_target(file: DataFile) -> DataError:
    """Return the error for plain text without a target; a table with one bad row looks like plain text too."""
    step = "plain text needs a target: data.target=FILE, or the part of the name that differs, such as data.target=de"
    first = 0
    for number, line in enumerate(Lines(file), 1):
        tabs = line.count("\t")
        first = tabs if number == 1 else first
        if not first:
            return DataError(f"{file.path}: {step}")
        if tabs != first:
            problem = Problem(file.path, number, None, f"{tabs + 1} columns", f"{first + 1} as in line 1")
            return BadRows([replace(problem, next_step=f"correct the row; or if this is not a table, {step}")])
    return DataError(f"{file.path}: {step}; if it is a table, rename it to .tsv")
