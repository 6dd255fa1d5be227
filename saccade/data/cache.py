"""The cache: parsed and tokenized data in memory-mapped files, keyed by the hash of all inputs.

An entry is a folder of arrays with a record of their sizes and checksums. It is written under a temporary name and
renamed when it is complete; an entry whose checksums do not match is built again: kills and damage only cost time.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.data.tables.encodings import explain
from saccade.data.tables.sniffing import DataFile
from saccade.errors import DataError, ResourceError

FORMAT_VERSION = 2
RECORD = "entry.json"
STALE = 24 * 3600.0  # seconds after which the temporary folder of a killed builder is removed
UNUSED = 60 * 24 * 3600.0  # seconds after which an entry that nobody opened is removed
SETTLED = 2.0  # seconds after which a further change is sure to change the modification time
DTYPES = ("uint8", "uint16", "uint32", "uint64", "int32", "int64", "float16")

Array = NDArray[Any]
Record = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """A complete entry: arrays that are read from disk as they are needed, and a small record."""

    key: str
    path: Path
    arrays: Mapping[str, Array]
    record: Record
    notes: tuple[str, ...] = ()
    """messages for the user about the entry"""


class DamagedEntry(Exception):
    """An entry of the cache is not what was written; it is built again, so callers never see this."""


def default_cache() -> Path:
    """Return the cache folder: SACCADE_CACHE, or saccade in the user's cache folder."""
    folder = os.environ.get("SACCADE_CACHE")
    if folder:
        return Path(folder)
    user_cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(user_cache) if user_cache else Path.home() / ".cache") / "saccade"


def digest(parts: object) -> str:
    """Return the hash of JSON values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


_hashes: dict[tuple[str, int, int, int], str] = {}


def hash_file(path: Path) -> str:
    """Return the hash of the content of a file; a file that has not changed is read once per process."""
    try:
        state = path.stat()
        if not stat.S_ISREG(state.st_mode) and not stat.S_ISDIR(state.st_mode):  # a device has no end
            raise DataError(f"{path}: not a regular file, expected one; copy its content to a file")
        version = (str(path.resolve()), state.st_ino, state.st_size, state.st_mtime_ns)
        if version not in _hashes:
            with path.open("rb") as stream:
                content = hashlib.file_digest(stream, "sha256").hexdigest()
            if time.time() - state.st_mtime < SETTLED:  # it may change again within the resolution of the clock
                return content
            _hashes[version] = content
        return _hashes[version]
    except OSError as error:
        raise explain(path, error) from error


def file_key(file: DataFile) -> list[str | bool]:
    """Return the content of a file and how it is read; its name and folder do not matter."""
    return [hash_file(file.path), file.format, file.encoding, file.delimiter, file.quoted, file.header]


class ArrayWriter:
    """Writes one array of an entry piece by piece."""

    def __init__(self, path: Path, dtype: str) -> None:
        self._stream = path.open("wb")
        self._dtype = np.dtype(dtype)
        self._digest = hashlib.sha256()
        self.size = 0

    def write(self, values: Any) -> None:
        """Append values."""
        data = np.asarray(values, dtype=self._dtype).tobytes()
        self.write_bytes(data)

    def write_bytes(self, data: bytes) -> None:
        """Append values as bytes."""
        self._stream.write(data)
        self._digest.update(data)
        self.size += len(data) // self._dtype.itemsize

    def finish(self) -> dict[str, int | str]:
        """Close the file and return its entry in the record."""
        self.close()
        return {"dtype": self._dtype.name, "size": self.size, "sha256": self._digest.hexdigest()}

    def close(self) -> None:
        self._stream.close()


class EntryWriter:
    """The arrays of an entry that is being built."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._arrays: dict[str, ArrayWriter] = {}

    def array(self, name: str, dtype: str) -> ArrayWriter:
        """Open an array for writing."""
        writer = self._arrays[name] = ArrayWriter(self._folder / f"{name}.bin", dtype)
        return writer

    def finish(self, record: Record) -> None:
        """Write the record, which makes the entry valid."""
        arrays = {name: writer.finish() for name, writer in self._arrays.items()}
        content = {"version": FORMAT_VERSION, "arrays": arrays, "record": record}
        (self._folder / RECORD).write_text(json.dumps(content, indent=1, sort_keys=True), encoding="utf-8")

    def close(self) -> None:
        """Close all files."""
        for writer in self._arrays.values():
            writer.close()


def cached(
    kind: str, parts: object, build: Callable[[EntryWriter], Record], files: Iterable[DataFile | Path] = ()
) -> Entry:
    """Return the entry for a kind of data and everything it depends on; build it if it is not in the cache.

    `build` writes the arrays and returns the record; if it raises, nothing is kept. It reads `files`, whose hashes are
    among the parts.
    """
    key = digest([FORMAT_VERSION, kind, parts])
    folder = default_cache() / "shards"
    path = folder / f"{kind}-{key[:24]}"
    notes: tuple[str, ...] = ()
    if path.exists():
        try:
            return open_entry(path, key)
        except DamagedEntry as error:
            notes = (f"the cached data in {path} were damaged ({error}) and have been built again",)
            shutil.rmtree(path, ignore_errors=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        temporary = Path(tempfile.mkdtemp(prefix=".building-", dir=folder))
        writer = EntryWriter(temporary)
        try:
            writer.finish(build(writer))
            _check_unchanged(files, parts)
            _publish(temporary, path)
        finally:
            writer.close()
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise _cache_error(folder, error) from error
    try:
        return open_entry(path, key, notes)
    except DamagedEntry as error:  # another process has just removed it
        raise ResourceError(
            f"the cached data must not change while they are in use, but did ({error}): {path}; run the command again"
        ) from error


def _check_unchanged(files: Iterable[DataFile | Path], parts: object) -> None:
    """Refuse a file that was written while it was read: its content is not that of the hash it would be kept under."""
    hashes = json.dumps(parts)
    for file in files:
        path = file if isinstance(file, Path) else file.path
        if hash_file(path) not in hashes:
            raise DataError(f"{path}: changed while it was read; wait until it is complete, then run the command again")


def open_entry(path: Path, key: str = "", notes: tuple[str, ...] = ()) -> Entry:
    """Open a complete entry, or raise DamagedEntry with the reason."""
    try:
        content = json.loads((path / RECORD).read_text(encoding="utf-8"))
        if content["version"] != FORMAT_VERSION:
            raise DamagedEntry(f"version {content['version']}")
        arrays = {name: _open_array(path / f"{name}.bin", array) for name, array in content["arrays"].items()}
        record = dict(content["record"])
        os.utime(path)  # in use
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedEntry(f"{type(error).__name__}: {error}") from error
    return Entry(key, path, arrays, record, notes)


def _open_array(path: Path, array: Mapping[str, Any]) -> Array:
    if array["dtype"] not in DTYPES:
        raise DamagedEntry(f"{path.name} has the type {array['dtype']}")
    dtype = np.dtype(array["dtype"])
    expected, actual = int(array["size"]) * dtype.itemsize, path.stat().st_size
    if actual != expected:
        raise DamagedEntry(f"{path.name} has {actual:,} bytes, expected {expected:,}")
    with path.open("rb") as stream:
        if hashlib.file_digest(stream, "sha256").hexdigest() != array["sha256"]:
            raise DamagedEntry(f"{path.name} has a different checksum")
    return np.memmap(path, dtype=dtype, mode="r") if expected else np.zeros(0, dtype)


def _publish(temporary: Path, path: Path) -> None:
    """Give a complete entry its name in one step; if another process was faster, its entry is equivalent."""
    try:
        temporary.rename(path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _sweep(folder: Path) -> None:
    """Remove what killed builders left behind, and entries that have not been opened for a long time."""
    for path in folder.iterdir():
        try:
            age = time.time() - path.stat().st_mtime
        except FileNotFoundError:  # removed by another process
            continue
        if age > (STALE if path.name.startswith(".building-") else UNUSED):
            shutil.rmtree(path, ignore_errors=True)


def _cache_error(folder: Path, error: OSError) -> ResourceError:
    reason = "there is no space left" if error.errno == errno.ENOSPC else f"it cannot be written ({error.strerror})"
    return ResourceError(f"the cache folder must be writable, but {reason}: {folder}; set SACCADE_CACHE to another one")
