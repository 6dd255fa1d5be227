"""Layouts of tables: the delimiter, quoting and header of a csv, tsv or jsonl file, judged by its first rows."""

import csv
import json
import re
from dataclasses import dataclass
from typing import Literal

from saccade.data.tables.numbers import is_number

SAMPLE = 200  # rows
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
NAME = re.compile(r"[^\W\d][\w .#()/+-]{0,79}")
WORD = re.compile(r"[^\W\d]\w{0,39}")
# Usual names of columns; one of them in the first row settles that it is a header.
COLUMN_NAME = re.compile(
    r"text|sentence|content|document|body|message|label|class|category|source|target|title|"
    r"question|answer|context|id|name|summary|input|output|score|url|date|review|comment|"
    r"tweet|smiles|words|tags|sentence1|sentence2|premise|hypothesis|query|response|prompt|"
    r"completion|src|tgt"
)


@dataclass(frozen=True)
class Layout:
    """How the rows of a table are written, and the names of the columns."""

    columns: tuple[str, ...] = ()
    delimiter: str = ""
    quoted: bool = False
    header: bool = False
    notes: tuple[str, ...] = ()


def sniff_layout(format: str, text: str, complete: bool, header: bool | None) -> Layout:
    """Return the layout of a table, from the text at its start; `complete`: that is all of it."""
    if format == "jsonl":
        return Layout(columns=_json_keys(text))
    lines = text.split("\n")
    sample = "\n".join(lines if complete else lines[:-1] or lines)
    delimiter, quoted, notes = "\t", _tab_quoting(sample), []
    if format == "csv":
        delimiter, quoted = _delimiter(sample), True
        if delimiter != ",":
            notes.append(f"columns are separated by {DELIMITERS[delimiter]}")
    rows = sample_rows(sample, delimiter, quoted)
    has_header = is_header(rows) if header is None else header
    columns = tuple(rows[0]) if has_header and rows else ()
    notes.append("the first row is the header" if has_header else "no header")
    return Layout(columns=columns, delimiter=delimiter, quoted=quoted, header=has_header, notes=tuple(notes))


def sample_rows(text: str, delimiter: str, quoted: bool) -> list[list[str]]:
    """Return the first rows of a table without bad ones, which reading will report with their lines."""
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    reader = csv.reader(text.split("\n"), delimiter=delimiter, quoting=quoting, strict=False)
    rows: list[list[str]] = []
    try:
        for row in reader:
            if row and len(rows) < SAMPLE:
                rows.append(row)
    except csv.Error:  # a field over the limit
        pass
    return rows


def _json_keys(text: str) -> tuple[str, ...]:
    first = next((line for line in text.split("\n") if line.strip()), "")
    try:
        row = json.loads(first)
    except (ValueError, RecursionError):
        return ()
    return tuple(row) if isinstance(row, dict) else ()


def _delimiter(sample: str) -> str:
    """Return the comma, unless only another separator gives all rows the same width of at least two."""
    widths = {}
    for delimiter in DELIMITERS:
        rows = sample_rows(sample, delimiter, True)
        if rows and len(rows[0]) > 1:
            widths[delimiter] = sum(len(row) == len(rows[0]) for row in rows) / len(rows)
    if widths.get(",", 0.0) > 0.5 or not widths:
        return ","
    best = max(widths, key=lambda delimiter: widths[delimiter])
    return best if widths[best] == 1.0 else ","


def _tab_quoting(sample: str) -> bool:
    """Whether quotes enclose fields of a tsv; in most such files a quote is a character like any other."""
    lines = [line for line in sample.split("\n") if line]
    if not lines or '"' not in sample:
        return False
    first = lines[0].split("\t")
    if all(len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in first):
        return True
    plain = {line.count("\t") for line in lines}
    enclosed = {len(row) for row in sample_rows(sample, "\t", True)}
    return len(plain) > 1 and len(enclosed) == 1


def is_header(rows: list[list[str]]) -> bool:
    """Whether the first row is a header: short different names, unlike the values below them."""
    if not rows:
        return False
    first, others = [cell.strip() for cell in rows[0]], rows[1:]
    # An index column written by pandas has no name.
    named = first[1:] if len(first) > 1 and not first[0] else first
    usual = any(COLUMN_NAME.fullmatch(cell.lower()) for cell in named)
    if usual and all(NAME.fullmatch(cell) for cell in named if cell):
        return True
    if not named or not all(NAME.fullmatch(cell) for cell in named) or len(set(named)) < len(named):
        return False
    aligned = [row for row in others if len(row) == len(first)]
    if not aligned:
        return False
    return any(_unlike(name, [row[index].strip() for row in aligned]) for index, name in enumerate(first) if name)


def _unlike(name: str, values: list[str]) -> bool:
    """Whether a name is a single word above values that mostly are not, or any name above numbers."""
    if name in values:
        return False
    numbers = sum(is_number(value) for value in values)
    if numbers > 0.9 * len(values):
        return True
    words = sum(bool(WORD.fullmatch(value)) for value in values)
    return bool(WORD.fullmatch(name)) and words < 0.5 * len(values)
