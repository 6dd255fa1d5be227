"""Trees of files: a folder or an archive, as the names of its files and the pictures among them."""

from __future__ import annotations

import abc
import errno
import os
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path, PurePosixPath

import numpy as np

from saccade.data.audio.kinds import is_audio_name, is_raw_name
from saccade.data.cache import Entry, EntryWriter, Record, cached, hash_file
from saccade.data.images.decoding import MAX_BYTES
from saccade.data.images.kinds import is_picture_name
from saccade.data.images.pictures import MappedPictures, Member, PictureFiles, Pictures, ZipPictures, open_zip
from saccade.data.tables.encodings import explain
from saccade.data.tables.kinds import PLAIN_ZIP, ZIP, binary_kind
from saccade.data.tables.problems import BadRows, Problem
from saccade.data.tables.source_files import SKIPPED_FOLDERS
from saccade.data.texts import NumberWriter, Texts, TextWriter

HIDDEN_FOLDERS = SKIPPED_FOLDERS | {"__MACOSX"}
COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
MAX_FILES = 5_000_000  # of an archive
TAR_DAMAGE = (tarfile.TarError, EOFError, OSError, zlib.error, ValueError)
USTAR = slice(257, 262)  # where a tar archive has its name


class Tree(abc.ABC):
    """Files below a folder or in an archive."""

    path: Path

    @property
    @abc.abstractmethod
    def names(self) -> tuple[str, ...]:
        """Paths of all files within the tree, sorted; parts are separated by slashes. Hidden files are left out."""

    @abc.abstractmethod
    def pictures(self, names: Sequence[str]) -> Pictures:
        """Return some of the files as pictures."""

    def contents(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Yield some of the files with their bytes, in any order."""
        files = self.pictures(names)  # read alike, whatever they are
        for number, name in enumerate(names):
            content = files.read(number)
            yield name, content if isinstance(content, bytes) else content.tobytes()


class Folder(Tree):
    """A folder on disk; links to other folders are followed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def names(self) -> tuple[str, ...]:
        def refuse(error: OSError) -> None:
            raise explain(Path(error.filename or self.path), error) from error

        names, visited = [], set[str]()
        for parent, folders, files in os.walk(self.path, onerror=refuse, followlinks=True):
            real = os.path.realpath(parent)
            if real in visited:  # a link to a folder above it, or a second one to the same
                folders.clear()
                continue
            visited.add(real)
            folders[:] = sorted(name for name in folders if not _is_hidden(name))
            within = os.path.relpath(parent, self.path).replace(os.sep, "/")
            prefix = "" if within == "." else f"{within}/"
            names += [prefix + name for name in files if not _is_hidden(name)]
        return tuple(sorted(names))

    def pictures(self, names: Sequence[str]) -> Pictures:
        return PictureFiles(self.path, names)


class Zip(Tree):
    """A zip archive."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def names(self) -> tuple[str, ...]:
        with open_zip(self.path) as archive:
            names = {info.filename for info in archive.infolist() if not info.filename.endswith("/")}
            names.discard("")  # of a damaged entry
        return _visible(self.path, names)

    def pictures(self, names: Sequence[str]) -> Pictures:
        return ZipPictures(self.path, names)


class Tar(Tree):
    """A tar archive that is not compressed: its members are read where they are."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def _members(self) -> dict[str, Member]:
        members: dict[str, Member] = {}
        with _tar_errors(self.path), tarfile.open(self.path, "r:") as archive:
            for member in archive:
                if member.isreg() and not member.issparse():
                    members[member.name] = Member(member.name, member.offset_data, member.size)
        return {name: members[name] for name in _visible(self.path, members.keys())}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._members)

    def pictures(self, names: Sequence[str]) -> Pictures:
        data = np.memmap(self.path, np.uint8, mode="r")
        return MappedPictures(self.path, [self._members[name] for name in names], data, [hash_file(self.path)])


class CompressedTar(Tree):
    """A compressed tar archive, which can only be read in order; pictures and sounds are unpacked into the cache."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def _entry(self) -> Entry:
        def build(writer: EntryWriter) -> Record:
            data, names = writer.array("data", "uint8"), TextWriter(writer, "names")
            sizes = NumberWriter(writer, "sizes")
            with _tar_errors(self.path), tarfile.open(self.path, "r|*") as archive:
                for member in archive:
                    if not member.isreg() or member.issparse():
                        continue
                    kept = any(fits(member.name) for fits in (is_picture_name, is_audio_name, is_raw_name))
                    stream = archive.extractfile(member) if kept else None
                    content = b"" if stream is None else stream.read(MAX_BYTES + 1)
                    data.write_bytes(content)
                    names.add(member.name)
                    sizes.add(len(content))
            names.flush()
            sizes.flush()
            return {}

        return cached("unpacked", [hash_file(self.path), "pictures, sounds and samples"], build, [self.path])

    @cached_property
    def _members(self) -> dict[str, Member]:
        sizes = np.asarray(self._entry.arrays["sizes"])
        starts = np.cumsum(sizes) - sizes
        members = {
            name: Member(name, start, size)
            for name, start, size in zip(Texts.open(self._entry, "names"), starts.tolist(), sizes.tolist(), strict=True)
        }
        return {name: members[name] for name in _visible(self.path, members.keys())}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._members)

    def pictures(self, names: Sequence[str]) -> Pictures:
        members = [self._members[name] for name in names]
        return MappedPictures(self.path, members, self._entry.arrays["data"], [hash_file(self.path)])

    def contents(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        chosen = set(names)
        with _tar_errors(self.path), tarfile.open(self.path, "r|*") as archive:
            for member in archive:
                stream = archive.extractfile(member) if member.isreg() and member.name in chosen else None
                if stream is not None:
                    yield member.name, stream.read(MAX_BYTES)


def open_tree(path: Path) -> Tree | None:
    """Return a folder or an archive as a tree of files; None for any other file."""
    if path.is_dir():
        return Folder(path)
    kind = _archive_kind(path)
    return None if kind is None else kind(path)


def is_archive(path: Path) -> bool:
    """Whether a file is a zip or tar archive; a compressed tar archive has its usual name."""
    return _archive_kind(path) is not None


def _archive_kind(path: Path) -> type[Zip] | type[Tar] | type[CompressedTar] | None:
    try:
        with path.open("rb") as stream:
            head = stream.read(4096)
    except OSError as error:
        raise explain(path, error) from error
    if head.startswith(ZIP):  # documents of Office programs, models and arrays are zip archives too
        is_plain = binary_kind(head, path.suffix.lower()) == PLAIN_ZIP and path.suffix.lower() != ".npz"
        return Zip if is_plain else None
    if path.name.lower().endswith(COMPRESSED):
        return CompressedTar
    return Tar if head[USTAR] == b"ustar" or path.suffix.lower() == ".tar" else None


def _visible(path: Path, names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of members that are not hidden, sorted; one that leads out of the archive is refused."""
    visible = []
    for name in names:
        parts = PurePosixPath(name.replace("\\", "/")).parts
        if ".." in parts or parts[:1] == ("/",):
            what, step = "a path that leads out of the archive", "pack the archive again, with paths within it"
            raise BadRows([Problem(path, None, None, f"'{name}' is {what}", "paths within it", step)])
        if not any(map(_is_hidden, parts)):
            visible.append(name)
    if len(visible) > MAX_FILES:
        what, step = f"{len(visible):,} files", "divide it into several archives"
        raise BadRows([Problem(path, None, None, what, f"at most {MAX_FILES:,}", step)])
    return tuple(sorted(visible))


def _is_hidden(name: str) -> bool:
    return (name.startswith(".") and name != ".") or name in HIDDEN_FOLDERS or name in ("Thumbs.db", "desktop.ini")


@contextmanager
def _tar_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except TAR_DAMAGE as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:  # of the cache, to which members are written
            raise
        what = f"a damaged tar archive ({str(error) or type(error).__name__})"
        step = "download or pack it again"
        raise BadRows([Problem(path, None, None, what, "a complete one", step)]) from error
