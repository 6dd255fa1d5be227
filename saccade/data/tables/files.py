"""Files: finds the data files of a path."""

import os
from collections import Counter
from pathlib import Path

from saccade.data.tables.encodings import explain
from saccade.data.tables.problems import did_you_mean
from saccade.data.tables.sniffing import FORMATS, Format
from saccade.errors import DataError


def find(path: str | Path) -> list[Path]:
    """Return the data files of a path: the file itself, or all files of one format in a folder and its subfolders."""
    path = Path(path)
    try:
        if path.is_dir():
            return _find_in_folder(path)
        if path.is_file():
            return [path]
        if path.exists():
            raise DataError(f"{path}: neither a file nor a folder, expected one of them; save the data in a file first")
        if path.is_symlink():
            raise DataError(f"{path}: a link to '{path.readlink()}', which does not exist; name the file itself")
    except OSError as error:
        raise explain(path, error) from error
    except ValueError as error:  # a NUL character in the name
        raise DataError(f"{path!r}: not a file name ({error}); name a file or folder") from error
    raise DataError(f"{path}: no such file or folder{_near(path)}")


def _near(path: Path) -> str:
    """Return a suggestion for a path that does not exist."""
    parent = path.parent
    if not parent.is_dir():
        return f"; there is no folder '{parent}' either"
    hint = did_you_mean(path.name, sorted(entry.name for entry in parent.iterdir()))
    return hint or f"; name a file or folder that exists (see: ls '{parent}')"


def _format_by_name(name: str) -> Format | None:
    return FORMATS.get(Path(name.lower().removesuffix(".gz")).suffix)


def _find_in_folder(folder: Path) -> list[Path]:
    def refuse(error: OSError) -> None:
        raise error

    paths: list[Path] = []
    for parent, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        paths.extend(Path(parent, name) for name in files if not name.startswith("."))
    data = sorted(path for path in paths if _format_by_name(path.name) is not None)
    if not data:
        content = f"{len(paths)} other files" if paths else "nothing"
        raise DataError(
            f"{folder}: holds {content}, expected .txt, .md, .csv, .tsv or .jsonl files; name the file you mean"
        )
    formats = Counter(_format_by_name(path.name) for path in data)
    if len(formats) > 1:
        listed = " and ".join(f"{count} {format}" for format, count in sorted(formats.items(), key=str))
        raise DataError(f"{folder}: holds {listed} files, expected one format; name the file or folder you mean")
    return data
