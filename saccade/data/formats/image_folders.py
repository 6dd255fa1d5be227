"""Folders and archives of pictures: one folder for each class, or pictures whose names are the texts they show."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np

from saccade.core.callback import Progress
from saccade.data.formats.image_layouts import (
    ImageLayout,
    ImageRows,
    PictureOrigins,
    skipped_notes,
    text_column,
)
from saccade.data.images.kinds import is_picture_name, suffix_of
from saccade.data.images.trees import Folder, Tree
from saccade.data.parts import TEST, part_of
from saccade.data.settings import ImageSettings
from saccade.data.tables.problems import BadRows, Problem, Problems
from saccade.data.tables.sniffing import FORMATS
from saccade.data.tables.source_files import is_source

# Starts of the names of files beside pictures that do not have their texts.
NOT_TABLES = ("readme", "license", "licence", "requirements", "changelog", "classes", "answers", "labels_map")
SURROGATE = re.compile("[\ud800-\udfff]")
# Names of pictures whose text has a number before it, behind it or both, as collections of words have.
NUMBERED_TEXTS = (re.compile(r"\d+_(.+)_\d+"), re.compile(r"(.+)_\d+"), re.compile(r"\d+_(.+)"))


@dataclass(frozen=True)
class Labelled:
    """A picture with its class, and the part of the data it belongs to if the folders say so."""

    name: str
    label: str
    part: int | None


class ClassFolders(ImageLayout):
    """Pictures in a folder for each class, within folders for training, validation and test if there are such."""

    def __init__(self, tree: Tree) -> None:
        self.tree, self.path = tree, tree.path
        names = tuple(filter(is_picture_name, tree.names))
        self._pictures, self._loose = classify(names)
        self.labels = sorted({picture.label for picture in self._pictures})

    @property
    def roles(self) -> tuple[tuple[str, ...], ...]:
        return (("label",),)

    def read(self, roles: Sequence[str], settings: ImageSettings, progress: Progress) -> ImageRows:
        if tuple(roles) == ("text",):
            return PictureNames(self.tree).read(roles, settings, progress)
        if tuple(roles) != ("label",):
            refuse_packed(self.tree)
            raise self.refuse_roles(roles, f"pictures in {len(self.labels)} class folders")
        self._check_classes()
        problems, notes = Problems(), skipped_notes([name for name in self.tree.names if not is_picture_name(name)])
        test = [name for name in self._loose if part_of(PurePosixPath(name).parts[0]) == TEST]
        if test:
            count = "1 picture" if len(test) == 1 else f"{len(test):,} pictures"
            notes.append(f"{count} skipped: without a class folder (first: {test[0]})")
        for name in sorted(set(self._loose) - set(test)):
            step = "move it into the folder of its class, or delete it"
            what = "a picture outside of the class folders"
            problems.add(Problem(self.path / name, None, None, what, "a folder for each class", step))
        for picture in self._pictures:
            if SURROGATE.search(picture.label):
                what, step = f"the class '{picture.label}' is not UTF-8", "rename the folder"
                problems.add(Problem(self.path / picture.name, None, None, what, "a name in UTF-8", step))
        problems.check()
        pictures = self.tree.pictures([picture.name for picture in self._pictures])
        numbers = np.arange(len(pictures))
        parts = [-1 if picture.part is None else picture.part for picture in self._pictures]
        progress(1.0)
        return ImageRows(
            pictures,
            numbers,
            {"label": text_column(picture.label for picture in self._pictures)},
            np.array(parts, np.int8) if min(parts) >= 0 else None,
            PictureOrigins(pictures, numbers),
            self.path,
            (f"{self.path.name}: {len(pictures):,} pictures in {len(self.labels):,} classes", *notes),
        )

    def _check_classes(self) -> None:
        if len(self.labels) < 2:
            what = f"every picture is in the class '{self.labels[0]}'" if self.labels else "no pictures in folders"
            step = "make a folder for each class and move the pictures into it, or name a table of paths and labels"
            raise BadRows([Problem(self.path, None, None, what, "at least two class folders", step)])


def classify(names: Sequence[str]) -> tuple[list[Labelled], list[str]]:
    """Return the pictures in class folders with their labels, and the names of those outside of any."""
    paths = [tuple(part for part in name.split("/") if part != ".") for name in names]
    first = 0
    while paths and _is_wrapper(paths, first):
        first += 1
    has_parts = _has_parts(paths, first)
    labelled, loose = [], []
    for name, path in zip(names, paths, strict=True):
        label = path[first + has_parts : -1]
        if label:
            labelled.append(Labelled(name, "/".join(label), part_of(path[first]) if has_parts else None))
        else:
            loose.append(name)
    return _without_common_end(labelled), loose


def _is_wrapper(paths: Sequence[tuple[str, ...]], first: int) -> bool:
    """Whether all pictures are in subfolders of one folder, which says nothing about them."""
    folder = paths[0][first]
    return part_of(folder) is None and all(len(path) > first + 2 and path[first] == folder for path in paths)


def _has_parts(paths: Sequence[tuple[str, ...]], first: int) -> bool:
    """Whether the outermost folders are those of training, validation and test."""
    outer = {path[first] for path in paths if len(path) > first + 1}
    return bool(outer) and all(part_of(name) is not None for name in outer)


def _without_common_end(pictures: list[Labelled]) -> list[Labelled]:
    """Return the pictures without a last folder that is the same in all labels, such as n01443537/images."""
    ends = {picture.label.rpartition("/")[2] for picture in pictures}
    if len(ends) != 1 or any("/" not in picture.label for picture in pictures):
        return pictures
    return [Labelled(item.name, item.label.rpartition("/")[0], item.part) for item in pictures]


class PictureNames(ImageLayout):
    """Pictures without labels, in one folder or several; where they show text, their names may be it."""

    def __init__(self, tree: Tree) -> None:
        self.tree, self.path = tree, tree.path

    @property
    def roles(self) -> tuple[tuple[str, ...], ...]:
        return ()

    def read(self, roles: Sequence[str], settings: ImageSettings, progress: Progress) -> ImageRows:
        names = list(filter(is_picture_name, self.tree.names))
        if tuple(roles) == ("label",):
            refuse_packed(self.tree)
            return ClassFolders(self.tree).read(roles, settings, progress)
        if tuple(roles) != ("text",):
            refuse_packed(self.tree)
            raise self.refuse_roles(roles, f"{len(names):,} pictures without texts")
        stems = [PurePosixPath(name).stem for name in names]
        pattern = next((pattern for pattern in NUMBERED_TEXTS if all(map(pattern.fullmatch, stems))), None)
        texts = [match[1] if pattern and (match := pattern.fullmatch(stem)) else stem for stem in stems]
        parts = [part_of(PurePosixPath(name).parts[0]) for name in names]
        pictures = self.tree.pictures(names)
        numbers = np.arange(len(names))
        shown = f"the text of each picture is its file name: '{texts[0]}' for {PurePosixPath(names[0]).name}"
        known = [part for part in parts if part is not None]
        progress(1.0)
        return ImageRows(
            pictures,
            numbers,
            {"text": text_column(texts)},
            np.array(known, np.int8) if len(known) == len(parts) else None,
            PictureOrigins(pictures, numbers),
            self.path,
            (f"{self.path.name}: {len(names):,} pictures", shown),
        )


def refuse_packed(tree: Tree) -> None:
    """Refuse an archive with a table or another file inside it that may have the texts of its pictures."""
    packed = None if isinstance(tree, Folder) else next(filter(_may_have_texts, tree.names), None)
    if packed is not None:
        what, step = "a file inside an archive", "unpack the archive, or copy the file beside it and name that file"
        raise BadRows([Problem(tree.path / packed, None, None, what, "the texts of its pictures outside of it", step)])


def _may_have_texts(name: str) -> bool:
    plain, file = name.lower().removesuffix(".gz"), PurePosixPath(name.lower()).name
    return suffix_of(plain) in {*FORMATS, ".json"} - {".md"} and not file.startswith(NOT_TABLES)


def find_folders(tree: Tree) -> ImageLayout | None:
    """Return a folder or archive of pictures, with classes or without; None if its files are rather texts."""
    pictures = [name for name in tree.names if is_picture_name(name)]
    if len(pictures) <= sum(map(_is_text_name, tree.names)):
        return None
    layout = ClassFolders(tree)
    return layout if len(layout.labels) > 1 else PictureNames(tree)


def _is_text_name(name: str) -> bool:
    plain = name.lower().removesuffix(".gz")
    return suffix_of(plain) in FORMATS or is_source(plain)
