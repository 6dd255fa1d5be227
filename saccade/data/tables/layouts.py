"""Layouts of tables: the delimiter, quoting and header of a csv, tsv or jsonl file, judged by its first rows."""

import csv
import json
from dataclasses import dataclass
from typing import Literal

from saccade.data.tables.headers import is_header

SAMPLE = 200  # rows
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


@dataclass(frozen=True)
class Layout:
    """How the rows of a table are written, and the names of the columns."""

    columns: tuple[str, ...] = ()
    delimiter: str = ""
    quoted: bool = False
    header: bool = False
    header_unclear: bool = False
    """whether the first row may be a header or data"""
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
    verdict = is_header(rows) if header is None else header
    has_header = bool(verdict)
    columns = tuple(rows[0]) if has_header and rows else ()
    notes.append("the first row is the header" if has_header else "no header")
    return Layout(columns, delimiter, quoted, has_header, verdict is None, tuple(notes))


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
