"""The demo: a text that every Python carries, so that a first run needs no file."""

from pathlib import Path


def write_text(path: Path) -> Path:
    """Write the language reference of Python, as `help()` shows it, into a file."""
    from pydoc_data.topics import topics

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(topics[name].strip() for name in sorted(topics)) + "\n", encoding="utf-8")
    return path
