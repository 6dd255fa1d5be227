"""Source files: program code and markup in a folder, which are read as plain text."""

import re
from pathlib import Path

from saccade.data.tables.encodings import explain

HEAD = 1 << 20  # bytes that decide whether a file is text
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")
SKIPPED_FOLDERS = {"node_modules", "__pycache__", "venv"}
SUFFIXES = frozenset(
    (
        *(".py", ".pyi", ".pyx", ".js", ".jsx", ".mjs", ".ts", ".tsx", ".vue", ".svelte", ".css", ".scss", ".less"),
        *(
            ".c",
            ".h",
            ".cc",
            ".cpp",
            ".cxx",
            ".hh",
            ".hpp",
            ".cu",
            ".cuh",
            ".m",
            ".mm",
            ".cs",
            ".java",
            ".kt",
            ".scala",
        ),
        *(".go", ".rs", ".zig", ".nim", ".swift", ".dart", ".rb", ".php", ".pl", ".pm", ".lua", ".r", ".jl", ".sql"),
        *(".sh", ".bash", ".zsh", ".fish", ".ps1", ".bat", ".hs", ".ml", ".mli", ".fs", ".ex", ".exs", ".erl", ".clj"),
        *(".lisp", ".scm", ".el", ".vim", ".asm", ".s", ".f", ".f90", ".f95", ".pas", ".v", ".sv", ".vhd", ".proto"),
        *(".html", ".htm", ".tex", ".rst", ".org", ".adoc", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".cmake"),
    )
)


def is_source(name: str) -> bool:
    """Whether a file is code or markup by its name."""
    return Path(name.lower()).suffix in SUFFIXES


def unreadable_reason(path: Path, encoding: str) -> str:
    """Return why a file of a folder of code cannot be read as text: 'empty', 'binary', the encoding; empty if it can.

    Text in an encoding whose characters have two bytes or more is recognized by that encoding alone.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(HEAD)
    except OSError as error:
        raise explain(path, error) from error
    if not head.strip():
        return "empty"
    if not encoding.startswith(("utf-16", "utf-32")) and CONTROL.search(head):
        return "binary"
    try:
        head.decode(encoding)
    except UnicodeDecodeError as error:
        # A character may be cut at the end of the bytes that were read.
        return f"not {encoding}" if len(head) < HEAD or error.start < HEAD - 8 else ""
    return ""
