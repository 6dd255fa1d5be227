"""Notes: what people write about a run, a plain text file in its folder that no hash covers and nothing depends on."""

from __future__ import annotations

from pathlib import Path

from saccade.atomic_io import open_file, write_text
from saccade.errors import UsageError, printable

NOTES = "notes.txt"
LONGEST = 4000  # characters


def read_notes(folder: Path) -> str:
    """Return the notes of a run; empty: there are none. Of a longer file the beginning."""
    path = folder / NOTES
    if not path.exists():
        return ""
    with open_file(path) as file:
        return printable(file.read(4 * LONGEST).decode("utf-8", "replace"))[:LONGEST]


def write_notes(folder: Path, text: str) -> None:
    """Replace the notes of a run, all or nothing; empty: remove them."""
    text = printable(text.replace("\r\n", "\n")).strip()
    if len(text) > LONGEST:
        raise UsageError(f"notes must have at most {LONGEST:,} characters, but have {len(text):,}; shorten them")
    if text:
        write_text(folder / NOTES, text + "\n")
    else:
        (folder / NOTES).unlink(missing_ok=True)
