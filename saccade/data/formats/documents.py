"""Documents: the texts in a data file, streamed in bounded memory: pieces of a text file, or one column of a table."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from saccade.data.tables.encodings import Position, text_blocks
from saccade.data.tables.problems import BadRows, Problem, Problems
from saccade.data.tables.rows import FORBIDDEN, LONGEST_LINE, Progress, forbidden_problem, rows
from saccade.data.tables.sniffing import DataFile

PIECE = 1 << 20  # characters
TEXT_COLUMNS = ("text", "sentence", "content", "document", "body", "message")


@dataclass(frozen=True)
class Document:
    """A text, and the line and file where it starts."""

    text: str
    line: int
    file: Path | None = None


def documents(
    found: DataFile, *, column: str | None = None, problems: Problems | None = None, advance: Progress | None = None
) -> Iterator[Document]:
    """The documents of a file; the pieces of a text file join to exactly its text, a row of a table is one document."""
    collected = Problems() if problems is None else problems
    if found.format == "text":
        yield from _pieces(found, collected, advance)
    else:
        wanted = text_column(found) if column is None else column
        for row in rows(
            found, None if wanted is None else [wanted], numbers=False, problems=collected, advance=advance
        ):
            (text,) = row.values
            if text.strip():
                yield Document(text, row.line, found.path)
            else:
                step = "fill it in or delete the row"
                collected.add(Problem(found.path, row.line, None, "empty text", "some text in every row", step))
    if problems is None:
        collected.check()


def text_column(found: DataFile) -> str | None:
    """The column that holds the text when nobody says which: a usual name, or the only one (None: it has no name)."""
    by_name = {name.lower(): name for name in reversed(found.columns)}
    usual = next((by_name[name] for name in TEXT_COLUMNS if name in by_name), None)
    if usual is not None:
        return usual
    if len(found.columns) == 1:
        return found.columns[0]
    if found.columns:
        listed = ", ".join(name or "(no name)" for name in found.columns)
        what, expected = (
            f"no column is called {', '.join(TEXT_COLUMNS[:-1])} or {TEXT_COLUMNS[-1]}",
            f"one of: {listed}",
        )
        raise BadRows([Problem(found.path, 1, None, what, expected, "say which with --column NAME")])
    if found.format == "jsonl":
        return TEXT_COLUMNS[0]
    width = _width(found)
    if width > 1:
        what = f"{width} columns without names"
        raise BadRows([Problem(found.path, 1, None, what, "one, or a choice", "say which with --column 1, 2, ...")])
    return None


def _width(found: DataFile) -> int:
    first = next(rows(found, problems=Problems()), None)
    return len(first.values) if first is not None else 1


def _pieces(found: DataFile, collected: Problems, advance: Progress | None) -> Iterator[Document]:
    """A text file in pieces of whole lines of about a megabyte."""
    carry, line, inked = "", 1, False
    position = Position()
    blocks = text_blocks(found.path, packed=found.gzip, encoding=found.encoding, advance=advance)
    try:
        for block in blocks:
            _note_forbidden(found, block, position, collected)
            inked = inked or not block.isspace()
            carry += block
            cut = safe_cut(carry) if len(carry) >= PIECE else 0
            if cut:
                piece, carry = carry[:cut], carry[cut:]
                yield Document(piece, line, found.path)
                line += piece.count("\n")
    except BadRows as fatal:
        raise collected.fail(fatal) from fatal
    if not inked:
        what = f"nothing but white space in {position.line:,} line" + ("" if position.line == 1 else "s")
        collected.add(Problem(found.path, 1, None, what, "text", "name a file with data in it"))
    elif carry:
        yield Document(carry, line, found.path)


def _note_forbidden(found: DataFile, block: str, position: Position, collected: Problems) -> None:
    """Note every forbidden character of a block, and move the position past the block."""
    done = 0
    for match in FORBIDDEN.finditer(block):
        position.advance(block[done : match.start()])
        done = match.start()
        collected.add(forbidden_problem(found.path, position.line, position.column, match.group()))
    position.advance(block[done:])


def safe_cut(text: str) -> int:
    """Where to end a piece: after the last single newline between two words, so that tokenizers see no difference.

    A run of white space is one token to many of them; if there is no such place, after the last newline; inside a line
    only when it is too long to hold. 0 means: read on.
    """
    last = text.rfind("\n")
    at = last
    while at > len(text) // 2:
        if at + 1 < len(text) and not text[at + 1].isspace() and not text[at - 1].isspace():
            return at + 1
        at = text.rfind("\n", 0, at)
    if last >= 0:
        return last + 1
    return len(text) if len(text) > LONGEST_LINE else 0


def count_characters(found: DataFile) -> int:
    """How many characters a file holds up to its first undecodable byte, which the reading that follows will report."""
    count = 0
    try:
        for block in text_blocks(found.path, packed=found.gzip, encoding=found.encoding):
            count += len(block)
    except BadRows:
        return count
    return count
