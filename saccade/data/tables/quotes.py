"""Quotes of csv files: finds where a quoted field goes wrong; the csv module only raises that it does."""

import re

from saccade.data.tables.encodings import Position
from saccade.data.tables.problems import Problem
from saccade.data.tables.sniffing import DataFile

ENCLOSED = re.compile(r'"[^"]*(?:""[^"]*)*"')


def find_quote_fault(file: DataFile, start: int, text: str, max_length: int) -> Problem:
    """Return the problem in the raw text of a row that starts at a line: an open quote, or text after a closed one."""
    at, after = _scan(text, file.delimiter)
    opened = Position(start)
    opened.advance(text[:at])
    step = 'write a quote inside a quoted field as two quotes ("")'
    if after is None:
        what = "the quote that opens here is never closed"
        if len(text) > max_length:
            what = f"the quote that opens here is not closed within {max_length:,} characters"
        return Problem(file.path, opened.line, opened.column, what, "a closing quote", step)
    closed = Position(start)
    closed.advance(text[:after])
    what = f"'{text[after]}' after the closing quote"
    if closed.line != opened.line:
        # The mistake is most often the quote that opened, lines before.
        what = f"the quoted field is followed by '{text[after]}' at line {closed.line}, column {closed.column}"
        closed = opened
    return Problem(file.path, closed.line, closed.column, what, "a delimiter or line end", step)


def _scan(text: str, delimiter: str) -> tuple[int, int | None]:
    """Return where the bad quoted field opens, and where text follows its closing quote (None: it does not close)."""
    ends = re.compile(f"[{re.escape(delimiter)}\n]")
    at = 0
    while at < len(text):
        if text[at] == '"':
            field = ENCLOSED.match(text, at)
            if field is None:
                return at, None
            if field.end() < len(text) and text[field.end()] not in (delimiter, "\n"):
                return at, field.end()
            at = field.end() + 1
        else:
            end = ends.search(text, at)
            at = end.end() if end else len(text)
    return 0, None
