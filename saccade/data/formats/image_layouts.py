"""Layouts of image data: how pictures and the texts that belong to them are stored, and the rows read from them."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from saccade.core.callback import Progress
from saccade.data.fingerprints import hash_lines
from saccade.data.images.finder import PictureFinder
from saccade.data.images.kinds import is_other_picture_name
from saccade.data.images.pictures import JoinedPictures, Pictures
from saccade.data.origins import RowOrigins
from saccade.data.parts import complete_parts
from saccade.data.settings import ImageSettings
from saccade.data.tables.problems import BadRows, Problem, Problems
from saccade.data.texts import Texts

# Usual names of the column of pictures, in lower case.
IMAGES = (
    *("image", "image_path", "file_name", "filename", "file", "path", "filepath", "file_path", "img", "img_path"),
    *("image_file", "image_name", "picture", "photo", "image_id", "img_id", "img_name", "imagename", "id"),
)
NAMES_OF_ROLES = {
    "label": "a class",
    "caption": "a caption",
    "question": "a question",
    "answer": "an answer",
    "text": "the text it shows",
    "action": "an action",
    "episode": "an episode",
    "reward": "a reward",
}


@dataclass(frozen=True, eq=False)
class PictureOrigins:
    """Origins of rows that have no line in a file: each is a picture."""

    pictures: Pictures
    numbers: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.numbers)

    def describe(self, row: int) -> str:
        """Return the origin of a row for the user: cats/1.jpg."""
        return "/".join(Path(self.pictures.name(int(self.numbers[row]))).parts[-2:])

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> PictureOrigins:
        """Return the origins of some of the rows."""
        return PictureOrigins(self.pictures, self.numbers[np.asarray(rows, dtype=np.int64)])


@dataclass(frozen=True, eq=False)
class ImageRows:
    """Rows of image data: row n is the picture number `picture[n]`, with a text for each role."""

    pictures: Pictures
    picture: NDArray[np.int64]
    """number of the picture of each row"""
    texts: Mapping[str, Texts]
    """by role: label, caption, question, answer (several ones on a line each), text"""
    parts: NDArray[np.int8] | None
    """0 training, 1 validation, 2 test, where the data say so"""
    origins: RowOrigins | PictureOrigins
    path: Path
    """the file or folder that was read"""
    read_notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.picture)

    def notes(self) -> list[str]:
        """Return notes for the user on what was read and what was not."""
        return list(self.read_notes)

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> ImageRows:
        """Return some of the rows; the pictures stay the same, and keep their numbers."""
        chosen = np.asarray(rows, dtype=np.int64)
        return replace(
            self,
            picture=self.picture[chosen],
            texts={role: texts.take(chosen) for role, texts in self.texts.items()},
            parts=None if self.parts is None else self.parts[chosen],
            origins=self.origins.take(chosen),
        )

    def fingerprint(self) -> str:
        """Return a hash of the texts and of which picture each belongs to; that of the pixels is of their own."""
        numbers = [self.picture.tobytes().hex(), "" if self.parts is None else self.parts.tobytes().hex()]
        texts = (text for role in sorted(self.texts) for text in (role, *self.texts[role]))
        return hash_lines([*numbers, *texts])


class ImageLayout(abc.ABC):
    """Image data in one of the layouts, before all of it is read."""

    path: Path

    @property
    @abc.abstractmethod
    def roles(self) -> tuple[tuple[str, ...], ...]:
        """What the texts may be: one group of roles, or several where only the user can know."""

    @abc.abstractmethod
    def read(self, roles: Sequence[str], settings: ImageSettings, progress: Progress) -> ImageRows:
        """Return all rows with the texts of these roles; problems are raised together."""

    def refuse_roles(self, roles: Sequence[str], what: str) -> BadRows:
        """Return the error for data that do not have the texts of these roles."""
        expected = f"{' and '.join(NAMES_OF_ROLES[role] for role in roles)} for each picture"
        step = "choose another task, or give a table with the paths of the pictures and these texts"
        return BadRows([Problem(self.path, None, None, what, expected, step)])


class _NamedRow(NamedTuple):
    """A row whose picture has a name and is not found yet."""

    file: int
    line: int
    name: str
    texts: tuple[str, ...]
    part: int | None


@dataclass
class RowCollector:
    """Gathers the rows of an annotation file, whose pictures are found by their names."""

    finder: PictureFinder
    roles: Sequence[str]
    problems: Problems = field(default_factory=Problems)
    files: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._pending: list[_NamedRow] = []
        self._picture: list[int] = []
        self._texts: dict[str, list[str]] = {role: [] for role in self.roles}
        self._parts: list[int] = []
        self._origins: list[tuple[int, int]] = []

    def add(self, file: int, line: int, name: str, texts: Sequence[str], part: int | None = None) -> None:
        """Add a row; `line` is 0 where the file has no lines. Its picture is found when all rows are known."""
        self._pending.append(_NamedRow(file, line, name, tuple(texts), part))

    def _find(self, file: int, rows: Sequence[_NamedRow]) -> None:
        """Find the pictures of the rows of one file, or the problems with them."""
        matches = self.finder.match((row.name for row in rows), within_folder(self.files[file], self.finder.folder))
        for row in rows:
            where = (self.files[file], row.line or None, None)
            match = matches[row.name]
            if match.place is None:
                self.problems.add(Problem(*where, *self.finder.reason(row.name, match)))
                continue
            empty = next((role for role, text in zip(self.roles, row.texts, strict=True) if not text.strip()), None)
            if empty is not None:
                what, step = f"the {empty} of '{row.name}' is empty", "fill it in or delete the row"
                self.problems.add(Problem(*where, what, "some text in every row", step))
                continue
            self._picture.append(self.finder.number(match.place))
            for role, text in zip(self.roles, row.texts, strict=True):
                self._texts[role].append(text.strip())
            self._parts.append(-1 if row.part is None else row.part)
            self._origins.append((file, row.line))

    def rows(self, path: Path, notes: Iterable[str] = ()) -> ImageRows:
        """Return the rows, or raise all problems."""
        if not self._pending and not self.problems.count:
            what, step = "no rows", "name a file with data in it"
            self.problems.add(Problem(self.files[0] if self.files else path, None, None, what, "at least one", step))
        for file, group in groupby(self._pending, key=lambda row: row.file):
            self._find(file, list(group))
        self.problems.check()
        pictures, places = self.finder.pictures()
        numbers = places[np.array(self._picture, np.int64)]
        files, lines = np.array(self._origins, np.int64).T
        by_line = RowOrigins(tuple(self.files), files.astype(np.int32), lines)
        origins = by_line if lines.all() else PictureOrigins(pictures, numbers)
        parts, part_notes = complete_parts(self._parts, origins.describe)
        texts = {role: text_column(texts) for role, texts in self._texts.items()}
        return ImageRows(pictures, numbers, texts, parts, origins, path, (*notes, *part_notes))


def within_folder(file: Path, folder: Path) -> str:
    """Return the path of the folder of a file within another folder; empty if it is that folder, or outside of it."""
    parent = file.parent
    return parent.relative_to(folder).as_posix() if parent != folder and parent.is_relative_to(folder) else ""


def text_column(texts: Iterable[str]) -> Texts:
    """Return texts as a column whose tokens are kept in the cache by its content."""
    column = Texts.of(texts)
    column.column.key = hash_lines(column)
    return column


def skipped_notes(names: Sequence[str]) -> list[str]:
    """Return notes for the user on files that are not read, by their names."""
    pictures = [name for name in names if is_other_picture_name(name)]
    others = [name for name in names if not is_other_picture_name(name)]
    notes = []
    if pictures:
        suffixes = ", ".join(sorted({PurePosixPath(name).suffix.lower() for name in pictures}))
        step = "convert them to JPEG or PNG"
        notes.append(f"{_count(pictures)} skipped: {suffixes} is not decoded (first: {pictures[0]}); {step}")
    if others:
        notes.append(f"{_count(others)} skipped: not pictures by name (first: {others[0]})")
    return notes


def _count(names: Sequence[str]) -> str:
    return "1 file" if len(names) == 1 else f"{len(names):,} files"


@dataclass(frozen=True)
class PictureBlock:
    """Pictures of one container, with a label for each and the part of the data they are."""

    pictures: Pictures
    labels: Sequence[str]
    part: int | None


def join_blocks(path: Path, blocks: Sequence[PictureBlock], notes: Iterable[str] = ()) -> ImageRows:
    """Return the rows of several containers."""
    sets = [block.pictures for block in blocks]
    pictures = sets[0] if len(sets) == 1 else JoinedPictures(sets)
    labels = [label for block in blocks for label in block.labels]
    parts = [-1 if block.part is None else block.part for block in blocks]
    lengths = [len(block.labels) for block in blocks]
    numbers = np.arange(len(pictures))
    counts = f"{path.name}: {len(pictures):,} pictures in {len(set(labels)):,} classes"
    return ImageRows(
        pictures,
        numbers,
        {"label": text_column(labels)},
        np.repeat(np.array(parts, np.int8), lengths) if min(parts) >= 0 else None,
        PictureOrigins(pictures, numbers),
        path,
        (counts, *notes),
    )
