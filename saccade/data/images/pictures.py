"""Pictures: the encoded pictures of a data set, in files of a folder, members of an archive, or arrays of pixels.

H rows, W columns.
"""

from __future__ import annotations

import abc
import os
import time
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from saccade.data.cache import SETTLED, Array, digest, hash_file
from saccade.data.fingerprints import hash_lines
from saccade.data.images.decoding import MAX_BYTES
from saccade.data.tables.encodings import explain
from saccade.data.tables.problems import BadRows, Problem
from saccade.data.tables.sniffing import format_size
from saccade.errors import DataError

TICK = 0.02  # seconds after which a further change is sure to change a modification time of nanoseconds

Pixels = NDArray[np.uint8]
Key = list[str]


class Pictures(abc.ABC):
    """Numbered pictures, read one by one from several threads; none is held in memory."""

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def name(self, number: int) -> str:
        """Return the name of a picture for messages: its path, within its archive if it is in one."""

    @abc.abstractmethod
    def read(self, number: int) -> bytes | Pixels:
        """Return an encoded picture, or its pixels (H, W, 3) where the data hold pixels."""

    @property
    @abc.abstractmethod
    def encoded_bytes(self) -> float:
        """Mean size of an encoded picture; 0 where the data hold pixels."""

    @property
    @abc.abstractmethod
    def key(self) -> Key:
        """Identity of all pictures for the cache, as JSON values: it changes when a picture changes."""

    def wait_until_settled(self) -> None:  # noqa: B027  (most pictures have nothing to wait for)
        """Wait until a further change of a picture is sure to change the key."""

    def check_unchanged(self) -> None:  # noqa: B027  (`cached` checks the content of containers)
        """Refuse pictures that are not those of the key any more."""

    @property
    def files(self) -> tuple[Path, ...]:
        """Files whose hashes are in the key."""
        return ()


def _at_once(path: str, flags: int) -> int:
    """Open a file; a pipe, which may never be written, is an empty file."""
    return os.open(path, flags | os.O_NONBLOCK)


class PictureFiles(Pictures):
    """Pictures in files of a folder, by their paths within it."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.folder, self.names = folder, tuple(names)

    def __len__(self) -> int:
        return len(self.names)

    def name(self, number: int) -> str:
        return os.path.join(self.folder, self.names[number])  # noqa: PTH118  (a Path takes longer than to read a file)

    def read(self, number: int) -> bytes:
        path = self.name(number)
        try:
            with open(path, "rb", opener=_at_once) as stream:
                return _limited(stream.read(MAX_BYTES + 1), path)
        except OSError as error:
            raise explain(Path(path), error) from error

    @cached_property
    def _states(self) -> NDArray[np.int64]:
        """Size, modification and change time and inode of each file: (N, 4)."""
        return self._stat()

    def _stat(self) -> NDArray[np.int64]:
        states = np.empty((len(self), 4), np.int64)
        for number in range(len(self)):
            path = self.name(number)
            try:
                state = os.stat(path)  # noqa: PTH116
            except OSError as error:
                raise explain(Path(path), error) from error
            # The change time cannot be set back, and the inode tells folders with equal names and times apart.
            states[number] = state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino & (2**63 - 1)
        return states

    @property
    def encoded_bytes(self) -> float:
        return float(self._states[:, 0].mean()) if len(self) else 0.0

    @property
    def key(self) -> Key:
        return ["files", hash_lines(self.names), digest([self._states.tobytes().hex()])]

    def wait_until_settled(self) -> None:
        if not len(self):
            return
        newest = int(self._states[:, 1:3].max())
        step = SETTLED if newest % 10**9 == 0 else TICK  # some file systems count in seconds
        wait = newest / 1e9 + step - time.time()
        if 0 < wait <= step:
            time.sleep(wait)

    def check_unchanged(self) -> None:
        changed = np.flatnonzero((self._stat() != self._states).any(1))
        if len(changed):
            raise _changed(self.name(int(changed[0])))


@dataclass(frozen=True)
class Member:
    """A picture in an archive: its name, and where its bytes are in the archive as it is on disk, or unpacked."""

    name: str
    start: int
    size: int


class ZipPictures(Pictures):
    """Members of a zip archive, decompressed when they are read."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.path, self.names = path, tuple(names)

    def __len__(self) -> int:
        return len(self.names)

    def name(self, number: int) -> str:
        return str(self.path / self.names[number])

    @cached_property
    def _archive(self) -> zipfile.ZipFile:
        return open_zip(self.path)  # several threads may read from it

    def read(self, number: int) -> bytes:
        name = self.names[number]
        try:
            with self._archive.open(name) as stream:
                return _limited(stream.read(MAX_BYTES + 1), self.name(number))
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
            raise _refuse(self.name(number), *_zip_problem(error)) from error

    @property
    def encoded_bytes(self) -> float:
        return sum(self._archive.getinfo(name).file_size for name in self.names) / max(1, len(self))

    @property
    def key(self) -> Key:
        return ["zip", hash_file(self.path), hash_lines(self.names)]

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.path,)


def open_zip(path: Path) -> zipfile.ZipFile:
    """Open a zip archive for reading."""
    try:
        return zipfile.ZipFile(path)
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        what = f"a damaged zip archive ({error})"
        raise _refuse(str(path), what, "a complete one", "download or pack it again") from error
    except OSError as error:
        raise explain(path, error) from error


def _zip_problem(error: Exception) -> tuple[str, str, str]:
    if "password" in str(error):
        return "encrypted", "a member without a password", "pack the archive without one"
    reason = str(error) or type(error).__name__
    return f"a damaged member of a zip archive ({reason})", "a complete one", "download or pack the archive again"


class MappedPictures(Pictures):
    """Encoded pictures one after another in an array of bytes, such as a memory-mapped archive."""

    def __init__(self, path: Path, members: Sequence[Member], data: Array, key: Key) -> None:
        self.path, self.members, self._data, self._key = path, tuple(members), data, key

    def __len__(self) -> int:
        return len(self.members)

    def name(self, number: int) -> str:
        return str(self.path / self.members[number].name)

    def read(self, number: int) -> bytes:
        member = self.members[number]
        if member.start + member.size > len(self._data):
            what = f"the archive ends {format_size(member.start + member.size - len(self._data))} too early"
            raise _refuse(self.name(number), what, "a complete archive", "download or pack it again")
        return _limited(self._data[member.start : member.start + member.size].tobytes(), self.name(number))

    @property
    def encoded_bytes(self) -> float:
        return sum(member.size for member in self.members) / max(1, len(self))

    @property
    def key(self) -> Key:
        return ["mapped", *self._key, hash_lines(f"{member.start} {member.size}" for member in self.members)]

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.path,)


class PixelPictures(Pictures):
    """Pictures as one array of pixels (N, H, W), (N, H, W, C), or (N, C, H, W) where `channels_first`; C is 1 or 3."""

    def __init__(self, container: str, pixels: Array, key: Key, *, channels_first: bool = False) -> None:
        self.container, self._key, self._channels_first = container, key, channels_first
        self._pixels = pixels[..., None] if pixels.ndim == 3 else pixels

    def __len__(self) -> int:
        return len(self._pixels)

    def name(self, number: int) -> str:
        return f"{self.container}: picture {number + 1}"

    def read(self, number: int) -> Pixels:
        pixels = self._pixels[number]
        pixels = pixels.transpose(1, 2, 0) if self._channels_first else pixels
        return np.ascontiguousarray(np.broadcast_to(pixels, (*pixels.shape[:2], 3)))

    @property
    def encoded_bytes(self) -> float:
        return 0.0

    @property
    def key(self) -> Key:
        return ["pixels", *self._key]


class JoinedPictures(Pictures):
    """Several sets of pictures, one after another."""

    def __init__(self, parts: Sequence[Pictures]) -> None:
        self.parts = tuple(parts)
        self._ends = np.cumsum([len(part) for part in parts])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def _locate(self, number: int) -> tuple[Pictures, int]:
        part = int(np.searchsorted(self._ends, number, side="right"))
        return self.parts[part], number - (int(self._ends[part - 1]) if part else 0)

    def name(self, number: int) -> str:
        part, within = self._locate(number)
        return part.name(within)

    def read(self, number: int) -> bytes | Pixels:
        part, within = self._locate(number)
        return part.read(within)

    @property
    def encoded_bytes(self) -> float:
        return sum(part.encoded_bytes * len(part) for part in self.parts) / max(1, len(self))

    @property
    def key(self) -> Key:
        return ["joined", *(entry for part in self.parts for entry in part.key)]

    def wait_until_settled(self) -> None:
        for part in self.parts:
            part.wait_until_settled()

    def check_unchanged(self) -> None:
        for part in self.parts:
            part.check_unchanged()

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(file for part in self.parts for file in part.files)


def _limited(data: bytes, name: str) -> bytes:
    if len(data) > MAX_BYTES:
        what = f"more than {format_size(MAX_BYTES)}"
        raise _refuse(name, what, "a smaller picture", "save it as JPEG or PNG")
    return data


def _refuse(name: str, what: str, expected: str, step: str) -> BadRows:
    return BadRows([Problem(Path(name), None, None, what, expected, step)])


def _changed(name: str) -> DataError:
    return DataError(f"{name}: changed while it was read; wait until it is complete, then run the command again")
