"""Atomic files: written completely and synced, so that a kill or a power cut leaves the old one or the new one."""

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

from saccade.errors import ModelFileError, ResourceError

LARGEST_JSON = 16 << 20  # bytes; our own files are far smaller


def dump(value: Any) -> bytes:
    """Return JSON; the same value always gives the same bytes."""
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def write(path: Path, data: bytes) -> None:
    """Write a file and wait until it is on disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_json(path: Path, value: Any) -> None:
    """Replace a small JSON file atomically: it is the old one or the new one, never half of it."""
    _replace(path, dump(value))


def write_text(path: Path, text: str) -> None:
    """Replace a small text file atomically."""
    _replace(path, text.encode())


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(path.name + ".tmp")
    try:
        write(temporary, data)
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise save_error(path, error) from error


def save_error(target: Path, error: Exception) -> ResourceError:
    """Return the error for a file that could not be written, for lack of space or otherwise."""
    number = getattr(error, "errno", None)
    full = (
        number in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
        or "os error 28" in str(error)
        or "os error 27" in str(error)
    )
    if full:
        return ResourceError(
            f"no space left to save {target}: {error}; the checkpoints before it are intact. Free some space, "
            "then continue with `saccade resume`"
        )
    return ResourceError(f"cannot save {target}: {error}; the checkpoints before it are intact")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file that may be damaged or untrusted; raises ModelFileError with what is wrong."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # a pipe would never end
            raise ModelFileError(f"{path} must be a file, but is none; remove it")
        if status.st_size > LARGEST_JSON:
            raise ModelFileError(f"{path} must have at most {LARGEST_JSON:,} bytes, but has {status.st_size:,}")
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}") from error
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
    """Wait until every file of a folder is on disk."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    sync_folder(folder)
