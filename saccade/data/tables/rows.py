"""Rows of tables: reads csv, tsv and jsonl files row by row and collects every bad row with its line."""

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from saccade.data.tables.encodings import text_blocks
from saccade.data.tables.problems import BadRows, ControlCharacters, Problem, Problems, did_you_mean
from saccade.data.tables.progress import BytesRead
from saccade.data.tables.quotes import find_quote_fault
from saccade.data.tables.sniffing import DataFile
from saccade.errors import DataError

MAX_LINE = 1 << 23  # characters; a longer one is a file without line ends, and must not fill the memory
MAX_FIELD = 1 << 23
SHOWN_CELLS, SHOWN_CELL = 6, 40  # cells of a row in a message, and characters of each
# Control characters except tab, newline, vertical tab, form feed and return; and halves of surrogate pairs.
FORBIDDEN = re.compile("[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff]")
# Control characters that occur in text by mistake; a NUL means that the file is damaged.
CONTROL = re.compile("[\x01-\x08\x0e-\x1f\x7f]")

Lists = Mapping[str, Callable[[list[str]], str]]


@dataclass(frozen=True)
class Row:
    """The values of the chosen columns of one row, and the line it starts on."""

    values: tuple[str, ...]
    line: int


class Lines:
    """The lines of a text, counted; `recent` has those of the row being read, for its error message."""

    def __init__(
        self,
        file: DataFile,
        on_bytes: BytesRead | None = None,
        *,
        translate: bool = True,
        replaced: ControlCharacters | None = None,
    ) -> None:
        self.path = file.path
        self._replaced = replaced
        self.number = 0
        self.recent: list[str] = []
        self._blocks = text_blocks(
            file.path, compressed=file.gzip, encoding=file.encoding, translate=translate, on_bytes=on_bytes
        )

    def __iter__(self) -> Iterator[str]:
        pending = ""
        for block in self._blocks:
            lines = (pending + block).split("\n")
            pending = lines.pop()
            for line in lines:
                yield self._count(line + "\n")
            if len(pending) > MAX_LINE:
                what = f"a line of more than {MAX_LINE:,} characters"
                step = "check that rows end in line ends"
                raise BadRows([Problem(self.path, self.number + 1, None, what, "shorter rows", step)])
        if pending:
            yield self._count(pending)

    def _count(self, line: str) -> str:
        self.number += 1
        if self._replaced is not None and CONTROL.search(line):
            line, count = CONTROL.subn(" ", line)
            self._replaced.add(self.path, self.number, count)
        self.recent.append(line)
        return line


def forbidden_problem(path: Path, line: int, column: int | None, character: str) -> Problem:
    """Return the problem of a character that no text should have."""
    code = ord(character)
    name = "NUL character" if code == 0 else "lone surrogate" if code >= 0xD800 else "control character"
    step = (
        rf"remove such characters, for example: LC_ALL=C tr -d '\000-\010\016-\037\177' < '{path}' > clean-{path.name}"
    )
    if code >= 0xD800:
        step = "write emoji and rare characters as whole pairs or as utf-8"
    return Problem(path, line, column, f"{name} U+{code:04X}", "printable text", step)


def rows(
    file: DataFile,
    columns: Sequence[str] | None = None,
    *,
    numbers: bool = True,
    lists: Lists | None = None,
    problems: Problems | None = None,
    on_bytes: BytesRead | None = None,
    replaced: ControlCharacters | None = None,
) -> Iterator[Row]:
    """Yield the rows of a table with the given columns (None: all); bad rows are raised together at the end.

    With `numbers`, JSON numbers and booleans are read as their JSON text; `lists` has for a column how a JSON list of
    strings or numbers becomes one string. A caller with rules of its own passes `problems`, adds to it, and calls
    its `check` at the end. With `replaced`, control characters are read as spaces and counted there, else they are
    problems.
    """
    collected = Problems() if problems is None else problems
    if file.format == "text":
        raise DataError(f"{file.path}:1: plain text, expected a table (csv, tsv or jsonl); name a table")
    count = 0
    lines = Lines(file, on_bytes, replaced=replaced)
    reader = _json_rows(file, lines, columns, numbers, lists or {}, collected) if file.format == "jsonl" else None
    try:
        for row in reader or _table_rows(file, lines, columns, collected):
            count += 1
            yield row
    except BadRows as fatal:
        raise collected.fail(fatal) from fatal
    if not count and not collected.count:
        what = "a header and no rows" if file.header else "no rows"
        collected.add(Problem(file.path, 1, None, what, "at least one row", "name a file with data in it"))
    if problems is None:
        collected.check()


def pick_columns(path: Path, names: Sequence[str], columns: Sequence[str] | None) -> list[int]:
    """Return the positions of columns in a row; None: of all columns."""
    duplicate = next((name for name in names if name and list(names).count(name) > 1), None)
    if duplicate is not None:
        what = f"two columns are called '{duplicate}'"
        raise BadRows([Problem(path, 1, None, what, "different column names", "rename one of them")])
    for column in columns or ():
        if column not in names:
            listed = ", ".join(name or "(no name)" for name in names)
            expected = f"one of: {listed}{did_you_mean(column, names)}"
            raise BadRows([Problem(path, 1, None, f"no column called '{column}'", expected)])
    return [list(names).index(column) for column in (names if columns is None else columns)]


def _records(file: DataFile, lines: Lines, collected: Problems) -> Iterator[tuple[int, list[str]]]:
    """Yield every row of a csv or tsv file with its first line; rows with bad quotes or characters are problems."""
    csv.field_size_limit(MAX_FIELD)
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if file.quoted else csv.QUOTE_NONE
    reader = csv.reader(lines, delimiter=file.delimiter, quoting=quoting, strict=True)
    while True:
        lines.recent.clear()
        start = lines.number + 1
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problem = find_quote_fault(file, start, "".join(lines.recent), MAX_FIELD)
            # After a field without an end the start of the next row is unknown.
            if "field limit" in str(error) or "end of data" in str(error):
                raise BadRows([problem]) from error
            collected.add(problem)
            continue
        bad = next(((at, match) for at, line in enumerate(lines.recent) if (match := FORBIDDEN.search(line))), None)
        if bad is not None:
            at, match = bad
            collected.add(forbidden_problem(file.path, start + at, match.start() + 1, match.group()))
        elif values and (len(values) > 1 or values[0].strip()):
            yield start, values


def _table_rows(file: DataFile, lines: Lines, columns: Sequence[str] | None, collected: Problems) -> Iterator[Row]:
    """Yield the rows of a csv or tsv file, each with as many columns as the first one."""
    records = _records(file, lines, collected)
    first = next(records, None)
    if first is None:
        return
    start, cells = first
    # A first row that happens to have the numbers of the given columns is a row.
    named = columns is not None and not all(name.isdecimal() for name in columns)
    header = file.header or bool(named and columns and set(columns) <= set(cells))
    if file.header_unclear and not header:
        raise UnclearHeader(file, cells)
    names = cells if header else [str(number + 1) for number in range(len(cells))]
    positions = pick_columns(file.path, names, columns)
    if not header:
        yield Row(tuple(cells[position] for position in positions), start)
    listed = f" ({', '.join(names)})" if header else ""
    step = f"quote fields that hold the delimiter, or correct the rows of {file.path.name}"
    for start, cells in records:
        if len(cells) != len(names):
            what = f"{len(cells)} column" + ("" if len(cells) == 1 else "s")
            collected.add(Problem(file.path, start, None, what, f"{len(names)}{listed}", step))
        else:
            yield Row(tuple(cells[position] for position in positions), start)


class UnclearHeader(BadRows):
    """The first row of a table may be a header or data; the user must say which."""

    def __init__(self, file: DataFile, cells: Sequence[str]) -> None:
        listed = ", ".join(f"'{cell.strip()[:SHOWN_CELL]}'" for cell in cells[:SHOWN_CELLS])
        what = f"the first row ({listed}{', ...' if len(cells) > SHOWN_CELLS else ''}) may name the columns or be data"
        step = "say which it is: --header yes or --header no (data.header)"
        super().__init__([Problem(file.path, 1, None, what, "one of the two", step)])


class DuplicateKey(ValueError):
    """A JSON object names a key twice, so that one value would silently win."""


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        raise DuplicateKey(next(name for name in names if names.count(name) > 1))
    return row


def _json_rows(
    file: DataFile, lines: Lines, columns: Sequence[str] | None, numbers: bool, lists: Lists, collected: Problems
) -> Iterator[Row]:
    """Yield the rows of a jsonl file: one object per line, with the same keys in each."""
    names = columns
    for line in lines:
        lines.recent.clear()
        if not line.strip():
            continue
        row = _parse_object(file.path, lines.number, line, collected)
        if row is None:
            continue
        names = list(row) if names is None else names
        for name in names:
            if name in lists and name in row:
                row[name] = _join_items(row[name], lists[name], numbers)
        values = [_json_value(file.path, lines.number, line, row, name, numbers) for name in names]
        bad = next((value for value in values if isinstance(value, Problem)), None)
        if bad is not None:
            collected.add(bad)
        else:
            yield Row(tuple(value for value in values if isinstance(value, str)), lines.number)


def json_objects(
    file: DataFile, problems: Problems, on_bytes: BytesRead | None = None
) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield the objects of a jsonl file with their lines; lines that are no object are added to the problems."""
    lines = Lines(file, on_bytes)
    try:
        for line in lines:
            lines.recent.clear()
            row = _parse_object(file.path, lines.number, line, problems) if line.strip() else None
            if row is not None:
                yield lines.number, row
    except BadRows as fatal:
        raise problems.fail(fatal) from fatal


def _join_items(value: object, join: Callable[[list[str]], str], numbers: bool) -> object:
    """Join a list of strings, or of numbers where they are allowed; any other value is returned as it is."""
    if not isinstance(value, list):
        return value
    if numbers and all(type(item) in (int, float) for item in value):
        return join([json.dumps(item) for item in value])
    strings = [item for item in value if isinstance(item, str)]
    return join(strings) if len(strings) == len(value) else value


def _parse_object(path: Path, number: int, line: str, collected: Problems) -> dict[str, object] | None:
    column: int | None = 1
    step = "write one JSON object per line"
    try:
        row = json.loads(line.rstrip("\n"), object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        what, column = f"invalid JSON ({error.msg})", error.colno
        if line.strip() in ("[", "{") or (number == 1 and line.lstrip().startswith("[")):
            step = f"convert a list with: jq -c '.[]' '{path}' > rows.jsonl"
    except DuplicateKey as error:
        what, column = f"the key '{error}' occurs twice", line.rfind(json.dumps(str(error))) + 1 or None
    except (ValueError, RecursionError) as error:
        what = "JSON nested too deeply" if isinstance(error, RecursionError) else f"invalid JSON ({error})"
    else:
        if isinstance(row, dict):
            return row
        what = f"the JSON is {_json_kind(row)}"
        step = f"convert a list with: jq -c '.[]' '{path}' > rows.jsonl" if isinstance(row, list) else step
    collected.add(Problem(path, number, column, what, "a JSON object", step))
    return None


def _json_value(path: Path, number: int, line: str, row: dict[str, object], name: str, numbers: bool) -> str | Problem:
    """Return the text of one key of a row, or the problem with it."""
    if name not in row:
        listed = ", ".join(row) or "none"
        return Problem(path, number, None, f"no key '{name}' (keys: {listed})", f"'{name}' in every row", "add the key")
    value = row[name]
    at = line.find(json.dumps(name))
    column = at + 1 if at >= 0 else None
    if numbers and isinstance(value, (bool, int, float)):
        return json.dumps(value)
    if not isinstance(value, str):
        shown = json.dumps(value)[:40]
        step = "write it as one string" if isinstance(value, (list, dict)) else "put it in quotes"
        return Problem(path, number, column, f"'{name}' is {_json_kind(value)} ({shown})", "a string", step)
    bad = FORBIDDEN.search(value)
    if bad is not None:
        escape = re.search(rf"\\u{ord(bad.group()):04x}", line, re.IGNORECASE)
        problem = forbidden_problem(path, number, escape.start() + 1 if escape else column, bad.group())
        if escape is None or bad.group() >= "\ud800":
            return problem
        step = rf"remove it, for example: sed 's/\{escape.group()}//g' '{path}' > clean-{path.name}"
        return replace(problem, next_step=step)
    return value


def _json_kind(value: object) -> str:
    if value is None:
        return "null"
    names = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return names.get(type(value), "a string")
