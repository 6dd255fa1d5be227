"""Atomic files: written completely and synced, so that a kill or a power cut leaves the old one or the new one."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from safetensors import SafetensorError

from saccade.errors import ModelFileError, ResourceError

LARGEST_JSON = 16 << 20  # bytes; our own files are far smaller


def dump(value: Any) -> bytes:
    """Return JSON; the same value always gives the same bytes."""
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def write(path: Path, data: bytes) -> None:
    """Write a new file and wait until it is on disk; what a kill left at its place is removed, not written through."""
    path.unlink(missing_ok=True)
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_json(path: Path, value: Any) -> None:
    """Replace a small JSON file atomically: it is the old one or the new one, never half of it."""
    _save(path, dump(value))


def write_text(path: Path, text: str) -> None:
    """Replace a small text file atomically; names of files in it need not be UTF-8."""
    _save(path, text.encode("utf-8", "backslashreplace"))


def write_sealed(path: Path, value: dict[str, Any]) -> None:
    """Replace a small JSON file atomically by one that contains its own hash."""
    _save(path, seal(value))


def _save(path: Path, data: bytes) -> None:
    try:
        with new_file(path) as file:
            file.write(data)
    except OSError as error:
        raise save_error(path, error) from error


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` when the block ends; if it fails, nothing is left of the new one."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.unlink(missing_ok=True)  # left by a kill; never written through
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Give a new or empty folder all of its files when the block ends, or none; the block fills a temporary one."""
    exists = folder.is_dir()
    temporary = (folder if exists else folder.parent) / f".{folder.name}.tmp"
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        yield temporary
        sync_tree(temporary)
        if exists:  # it may be the root of a disk, which cannot be replaced
            for path in sorted(
                temporary.iterdir(), key=lambda path: path.suffix == ".json"
            ):  # what is opened first, last
                path.rename(folder / path.name)
            temporary.rmdir()
        else:
            temporary.rename(folder)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError | SafetensorError):
            raise save_error(folder, error) from error
        raise


def save_error(target: Path, error: Exception, kept: str = "") -> ResourceError:
    """Return the error for a file that could not be written; `kept` says what is intact and how to go on."""
    folder = target.parent
    if not folder.is_dir():
        return ResourceError(
            f"{folder} was deleted or moved while it was in use, and {target.name} cannot be saved; "
            "put the folder back and run the command again, or start anew"
        )
    number = getattr(error, "errno", None)
    full = (
        number in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
        or "os error 28" in str(error)
        or "os error 27" in str(error)
    )
    if full:
        kept = kept or "free some space, then run the command again (a run that had started: `saccade resume`)"
        return ResourceError(f"no space left to save {target}: {error}; {kept}")
    return ResourceError(f"cannot save {target}: {error}{kept and f'; {kept}'}")


def open_file(path: Path) -> BufferedReader:
    """Open a file for reading; a folder, and a pipe or device that could block for ever, are refused."""
    try:
        file = open(path, "rb", opener=_open_without_waiting)  # noqa: SIM115 - the caller closes it
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ModelFileError(f"{path} must be a regular file, but is not")
    return file


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def hash_file(path: Path) -> str:
    """Return the sha256 of a file."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file that may be damaged or untrusted; raises ModelFileError with what is wrong."""
    return _parse(path, _read_small(path))


def seal(value: dict[str, Any]) -> bytes:
    """Return JSON that contains its own hash, so that any damage to it is detected."""
    return dump({**value, "seal": hashlib.sha256(dump(value)).hexdigest()})


def read_sealed(path: Path) -> dict[str, Any]:
    """Read a JSON object that `seal` returned; raises ModelFileError if a single byte of it has changed."""
    data = _read_small(path)
    value = _parse(path, data)
    value.pop("seal", None)
    try:
        intact = data == seal(value)
    except RecursionError:  # nested deeper than anything that was ever sealed
        intact = False
    if not intact:
        raise ModelFileError(f"{path} does not match the hash that it contains")
    return value


def _read_small(path: Path) -> bytes:
    with open_file(path) as file:
        data = file.read(LARGEST_JSON + 1)
    if len(data) > LARGEST_JSON:
        raise ModelFileError(f"{path} must have at most {LARGEST_JSON:,} bytes, but has {path.stat().st_size:,}")
    return data


def _parse(path: Path, data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} is damaged: {str(error) or type(error).__name__}") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{path} must hold a JSON object, but holds {type(value).__name__}")
    return value


def sync_folder(path: Path) -> None:
    """Wait until the entries of a folder are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Wait until every file of a folder and of those inside it is on disk."""
    for path in folder.iterdir():
        if path.is_dir():
            sync_tree(path)
        else:
            with path.open("rb") as file:
                os.fsync(file.fileno())
    sync_folder(folder)
