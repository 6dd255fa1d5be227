"""Documents: the texts in a data file, parsed in bounded memory: pieces of a text file, or one column of a table."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from saccade.data.tables.columns import TEXT_COLUMNS
from saccade.data.tables.encodings import Position, text_blocks
from saccade.data.tables.problems import BadRows, Problem, Problems
from saccade.data.tables.progress import BytesRead
from saccade.data.tables.rows import FORBIDDEN, forbidden_problem, rows
from saccade.data.tables.sniffing import DataFile

PIECE = 1 << 20  # characters; a longer line is cut between words, so that its tokens do not fill the memory
TRIES = 1000  # places that are considered for a cut: there may be a million blank lines


@dataclass(frozen=True)
class Document:
    """A text, and the line and file where it starts."""

    text: str
    line: int
    file: Path | None = None


def documents(
    file: DataFile, *, column: str | None = None, problems: Problems | None = None, on_bytes: BytesRead | None = None
) -> Iterator[Document]:
    """Yield the documents of a file; the pieces of a text file join to exactly its text, a table has one per row."""
    collected = Problems() if problems is None else problems
    if file.format == "text":
        yield from _pieces(file, collected, on_bytes)
    else:
        name = text_column(file) if column is None else column
        columns = None if name is None else [name]
        for row in rows(file, columns, numbers=False, problems=collected, on_bytes=on_bytes):
            (text,) = row.values
            if text.strip():
                yield Document(text, row.line, file.path)
            else:
                step = "fill it in or delete the row"
                collected.add(Problem(file.path, row.line, None, "empty text", "some text in every row", step))
    if problems is None:
        collected.check()


def text_column(file: DataFile) -> str | None:
    """Return the default text column: one with a usual name, or the only one (None: it has no name)."""
    by_name = {name.lower(): name for name in reversed(file.columns)}
    usual = next((by_name[name] for name in TEXT_COLUMNS if name in by_name), None)
    if usual is not None:
        return usual
    if len(file.columns) == 1:
        return file.columns[0]
    step = "choose one with data.text_column="
    if file.columns:
        listed = ", ".join(name or "(no name)" for name in file.columns)
        what = f"no column is called {', '.join(TEXT_COLUMNS[:-1])} or {TEXT_COLUMNS[-1]}"
        raise BadRows([Problem(file.path, 1, None, what, f"one of: {listed}", f"{step}NAME")])
    if file.format == "jsonl":
        return TEXT_COLUMNS[0]
    width = _width(file)
    if width > 1:
        what = f"{width} columns without names"
        raise BadRows([Problem(file.path, 1, None, what, "one, or a choice", f"{step}1, 2, ...")])
    return None


def _width(file: DataFile) -> int:
    first = next(rows(file, problems=Problems()), None)
    return len(first.values) if first is not None else 1


def _pieces(file: DataFile, collected: Problems, on_bytes: BytesRead | None) -> Iterator[Document]:
    """Yield a text file in pieces of about a megabyte that end at line ends."""
    pending, line, has_text = "", 1, False
    position = Position()
    blocks = text_blocks(file.path, compressed=file.gzip, encoding=file.encoding, on_bytes=on_bytes)
    try:
        for block in blocks:
            _note_forbidden(file, block, position, collected)
            has_text = has_text or not block.isspace()
            pending += block
            while len(pending) >= PIECE:
                cut = safe_cut(pending)
                piece, pending = pending[:cut], pending[cut:]
                yield Document(piece, line, file.path)
                line += piece.count("\n")
    except BadRows as fatal:
        raise collected.fail(fatal) from fatal
    if not has_text:
        what = f"nothing but white space in {position.line:,} line" + ("" if position.line == 1 else "s")
        collected.add(Problem(file.path, 1, None, what, "text", "name a file with data in it"))
    elif pending:
        yield Document(pending, line, file.path)


def _note_forbidden(file: DataFile, block: str, position: Position, collected: Problems) -> None:
    """Collect every forbidden character of a block, and move the position past the block."""
    done = 0
    for match in FORBIDDEN.finditer(block):
        position.advance(block[done : match.start()])
        done = match.start()
        collected.add(forbidden_problem(file.path, position.line, position.column, match.group()))
    position.advance(block[done:])


def safe_cut(text: str) -> int:
    """Return where to end a piece: after the last single newline between two words, so that the tokens stay the same.

    A run of white space is one token to many tokenizers; without such a newline, after the last newline; inside a line
    before its last single space, which belongs to the word after it; at the end of a piece without any.
    """
    last, newline = text.rfind("\n"), _between_words(text, "\n")
    if last >= 0:
        return (newline if newline >= 0 else last) + 1
    space = _between_words(text, " ")
    return space if space >= 0 else len(text)


def _between_words(text: str, character: str) -> int:
    """Return where a character is alone between two words, as late as possible in the second half; -1: nowhere."""
    at = text.rfind(character)
    for _ in range(TRIES):
        if at <= len(text) // 2:
            break
        if at + 1 < len(text) and not text[at + 1].isspace() and not text[at - 1].isspace():
            return at
        at = text.rfind(character, 0, at)
    return -1
