"""Files: finds the data files of a path."""

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from saccade.data.tables.encodings import check_encoding, explain
from saccade.data.tables.kinds import step_by_name
from saccade.data.tables.problems import did_you_mean
from saccade.data.tables.sniffing import FORMATS, Format
from saccade.data.tables.source_files import SKIPPED_FOLDERS, is_source, unreadable_reason
from saccade.errors import DataError

TABLES_WITHIN_CODE = 10  # a folder is one of code if it has at least this many files of code for each table


def find(path: str | Path, encoding: str | None = None) -> list[Path]:
    """Return the data files of a path: the file itself, or all files of one format in a folder and its subfolders.

    A folder of source code is text: all its files of code and text, without those that are not text in the encoding.
    """
    path = Path(path)
    try:
        if path.is_dir():
            return _scan(path, encoding).files
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


def skipped_notes(path: str | Path, encoding: str | None = None) -> list[str]:
    """Return notes for the user on the files of a folder of source code that are not read."""
    path = Path(path)
    if not path.is_dir():
        return []
    notes = []
    for reason, files in _scan(path, encoding).skipped.items():
        count = "1 file" if len(files) == 1 else f"{len(files):,} files"
        notes.append(f"{count} skipped: {reason} (first: {files[0].relative_to(path)})")
    return notes


@dataclass(frozen=True)
class _Folder:
    """The data files of a folder, and the files of a folder of code that are not read, by reason."""

    files: list[Path]
    skipped: dict[str, list[Path]]


def _scan(folder: Path, encoding: str | None) -> _Folder:
    paths = _walk(folder)
    data = sorted(path for path in paths if _format_by_name(path.name) is not None)
    code = [path for path in paths if is_source(path.name)]
    tables = [path for path in data if _format_by_name(path.name) != "text"]
    if len(code) > len(data) and len(tables) * TABLES_WITHIN_CODE <= len(code):
        return _choose_source(folder, paths, encoding)
    if not data:
        raise DataError(
            f"{folder}: holds {_describe(paths)}, expected .txt, .md, .csv, .tsv or .jsonl files; {_step(paths)}"
        )
    formats = Counter(_format_by_name(path.name) for path in data)
    if len(formats) > 1:
        listed = " and ".join(f"{count} {format}" for format, count in sorted(formats.items(), key=str))
        raise DataError(f"{folder}: holds {listed} files, expected one format; name the file or folder you mean")
    return _Folder(data, {})


def _walk(folder: Path) -> list[Path]:
    """Return the files below a folder, without hidden ones, pipes, and folders of installed packages."""

    def refuse(error: OSError) -> None:
        raise error

    paths: list[Path] = []
    for parent, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in SKIPPED_FOLDERS)
        visible = (Path(parent, name) for name in files if not name.startswith("."))
        paths.extend(path for path in visible if path.is_file() or path.is_symlink())
    return paths


def _choose_source(folder: Path, paths: list[Path], encoding: str | None) -> _Folder:
    """Return the files of a folder of code that are text."""
    codec = check_encoding(encoding or "utf-8")
    files: list[Path] = []
    skipped: dict[str, list[Path]] = {}
    for path in sorted(paths):
        reason = "not code or text by name"
        if (is_source(path.name) or _format_by_name(path.name) == "text") and path.is_file():
            reason = unreadable_reason(path, codec)
        if reason:
            skipped.setdefault(reason, []).append(path)
        else:
            files.append(path)
    if not files:
        raise DataError(f"{folder}: none of its {len(paths)} files is text; name the file or folder you mean")
    return _Folder(files, skipped)


def _describe(paths: list[Path]) -> str:
    """Return what a folder without data files holds: how many files, and their most frequent suffixes."""
    if not paths:
        return "nothing"
    suffixes = Counter(path.suffix.lower() for path in paths if path.suffix)
    listed = ", ".join(suffix for suffix, _ in suffixes.most_common(3))
    return f"{len(paths)} other file{'' if len(paths) == 1 else 's'}" + (f" ({listed})" if listed else "")


def _step(paths: list[Path]) -> str:
    """Return what to do with the most frequent kind of files that are not data files."""
    steps = (step_by_name(path.name) for path in paths)
    step = "name the file you mean"
    if len(paths) > 1:
        step += "; a folder with a file of lines for each label needs --task text_classification"
    return next((f"{step} first" for step in steps if step), step)
