"""Data files of the folder in which the studio was started: a list to choose from, and paths that never leave it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from saccade.errors import UsageError

DEPTH, LISTED, VISITED = 3, 300, 5000  # folders below each other; files and folders in the list; entries looked at
TABLES = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".parquet", ".conll", ".smi", ".gz", ".zst", ".xz")
MEDIA = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".wav", ".flac", ".ogg", ".mp3")
SKIPPED = ("node_modules", "__pycache__")


def list_data(folder: Path, runs: Path) -> list[str]:
    """Return files that may be data, and folders of images or recordings, relative to a folder and sorted."""
    entries = list[str]()
    for number, (path, is_data) in enumerate(_walk(folder, runs.resolve(), DEPTH)):
        if number >= VISITED or len(entries) >= LISTED:
            break
        if is_data:
            entries.append(path.relative_to(folder).as_posix())
    return sorted(entries)


def _walk(folder: Path, runs: Path, depth: int) -> Iterator[tuple[Path, bool]]:
    """Yield what is in a folder, and whether it may be data; nothing hidden, no links and no runs."""
    try:
        with os.scandir(folder) as found:
            entries = sorted((entry for entry in found if not entry.name.startswith(".")), key=lambda entry: entry.name)
    except OSError:  # a folder that may not be read is not offered
        return
    yield folder, depth < DEPTH and any(entry.name.lower().endswith(MEDIA) for entry in entries)
    for entry in entries:
        path = Path(entry.path)
        if entry.is_file(follow_symlinks=False):
            yield path, path.name.lower().endswith(TABLES)
        elif depth and entry.is_dir(follow_symlinks=False) and entry.name not in SKIPPED and path.resolve() != runs:
            yield from _walk(path, runs, depth - 1)


def find_data(folder: Path, name: str) -> Path:
    """Return the path of a data file or folder by its name relative to a folder; never one outside it."""
    parts = PurePosixPath(name).parts
    if not name or not name.isprintable() or "\\" in name or PurePosixPath(name).is_absolute():
        raise UsageError(f"the data must be a file or folder within {folder}, but are '{name[:200]}'")
    if any(part.startswith(".") for part in parts):
        raise UsageError(f"the data must be a path without '..' and hidden files, but are '{name[:200]}'")
    try:
        path, top = (folder / name).resolve(strict=True), folder.resolve(strict=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise UsageError(f"there is no file or folder '{name[:200]}' in {folder}; choose one of the list") from error
    if not path.is_relative_to(top):
        raise UsageError(f"the data must be within {folder}, but '{name[:200]}' is a link to another place")
    return path
