"""Files of a demo, written on several threads."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from saccade.errors import ResourceError


def write_files(folder: Path, files: Mapping[str, Callable[[], bytes]], kind: str) -> None:
    """Write files by their names within a folder; one that has its content already keeps its time, for the caches."""

    def write(name: str) -> None:
        path, content = folder / name, files[name]()
        if path.is_file() and path.read_bytes() == content:
            return
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_bytes(content)
        temporary.replace(path)

    try:
        for parent in sorted({(folder / name).parent for name in files}):
            parent.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor() as pool:  # Pillow scales and compresses without the lock of the interpreter
            for _ in pool.map(write, files):
                pass
    except OSError as error:
        raise ResourceError(f"cannot write the {kind} into {folder}: {error.strerror}; name another folder") from error


def table(rows: Iterable[Iterable[str]], delimiter: str = ",") -> bytes:
    """Return rows as a table in UTF-8."""
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()
