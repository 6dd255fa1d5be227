"""Searching image data: which layout the pictures of a path have, and what they can be used for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from saccade.data.formats.cifar import find_cifar
from saccade.data.formats.idx import find_idx
from saccade.data.formats.image_arrays import find_npz
from saccade.data.formats.image_folders import NOT_TABLES, PictureNames, find_folders
from saccade.data.formats.image_json import find_json
from saccade.data.formats.image_layouts import ImageLayout
from saccade.data.formats.image_lists import PictureList, is_numbered, looks_like_list
from saccade.data.formats.image_tables import PictureTable, looks_like_pictures, sniff_table
from saccade.data.images.finder import ARCHIVES
from saccade.data.images.kinds import is_picture_name
from saccade.data.images.trees import Folder, Tree, open_tree
from saccade.data.parts import part_of_file
from saccade.data.settings import ImageSettings
from saccade.data.tables.encodings import explain
from saccade.data.tables.files import find
from saccade.data.tables.sniffing import FORMATS, DataFile
from saccade.errors import DataError

METADATA = {"metadata.csv", "metadata.tsv", "metadata.jsonl"}  # beside the pictures, as the Hugging Face Hub has it
MAX_TABLES = 20  # files of a folder that are looked into


class UnreadableTable(Exception):
    """The only table or list of some pictures cannot be read."""

    def __init__(self, reason: DataError) -> None:
        super().__init__(str(reason))
        self.reason = reason


def find_images(path: Path, settings: ImageSettings) -> ImageLayout | None:
    """Return the pictures of a path and how the texts belong to them; None if it has no pictures."""
    try:
        if not path.is_dir() and not path.is_file():
            find(path)  # raises what is wrong with it
        arrays = find_npz(path) or find_idx(path)
        if arrays is not None:
            return arrays
        tree = open_tree(path)
        if isinstance(tree, Folder) and not _may_have_pictures(tree):
            return find_cifar(tree)
        documents = find_json(path, tree, settings)
        if documents is not None or tree is None:
            return documents or _find_file(path, settings)
        return find_cifar(tree) or _find_in_tree(tree, settings)
    except OSError as error:
        raise explain(path, error) from error


def open_table(path: Path, settings: ImageSettings) -> ImageLayout | None:
    """Return a file that does not look like a table of pictures as one, so that reading it says why; None: no table."""
    if path.is_dir() or _format(path.name) is None:
        return None
    file = sniff_table(path, settings)
    return None if file.format == "text" else PictureTable(path, [file], path.parent, settings)


def _find_in_tree(tree: Tree, settings: ImageSettings) -> ImageLayout | None:
    """Return the pictures of a folder or archive: by tables or lists in it, or by its folders."""
    by_folder = find_folders(tree)
    try:
        return _find_annotated(tree, settings) or by_folder
    except UnreadableTable as error:
        if isinstance(by_folder, PictureNames):  # nothing else says what the pictures are
            raise error.reason from error
        return by_folder


def _may_have_pictures(folder: Folder) -> bool:
    """Whether a folder has pictures, or archives in which they may be."""
    return any(is_picture_name(name) or name.lower().endswith(ARCHIVES) for name in folder.names)


def _find_file(path: Path, settings: ImageSettings) -> ImageLayout | None:
    """Return a table or a list of pictures; None for any other file."""
    if is_picture_name(path.name) or _format(path.name) is None:
        return None
    try:
        return _find_tables(path, [path], path.parent, settings)
    except UnreadableTable:  # reading it as text, or as the table it was said to be, reports the reason
        return None


def _find_annotated(tree: Tree, settings: ImageSettings) -> ImageLayout | None:
    """Return tables or lists in a folder, or within its folders for training, validation and test."""
    if not isinstance(tree, Folder):
        return None
    names = [name for name in tree.names if _format(name) is not None]
    metadata = [name for name in names if name.rpartition("/")[2] in METADATA]
    outer = metadata or [name for name in names if "/" not in name]
    files = [tree.path / name for name in outer if not name.lower().startswith(NOT_TABLES)]
    return _find_tables(tree.path, files[:MAX_TABLES], tree.path, settings) if files else None


def _find_tables(path: Path, files: Sequence[Path], folder: Path, settings: ImageSettings) -> ImageLayout | None:
    """Return those of some files that are lists or tables of pictures; several must be parts of the data."""
    sniffed: list[DataFile] = []
    for file in files:
        try:
            sniffed.append(sniff_table(file, settings))
        except DataError as error:  # of several files, another one may be the table
            if len(files) == 1:
                raise UnreadableTable(error) from error
    lists = [file for file in sniffed if looks_like_list(file)]
    numbered = [file for file in lists if is_numbered(file) and "lemma" not in file.path.name.lower()]
    if lists:
        chosen = _choose(path, numbered or lists)
        return PictureList(path, chosen, folder)
    tables = [file for file in sniffed if looks_like_pictures(file, path, folder, settings)]
    return PictureTable(path, _choose(path, tables), folder, settings) if tables else None


def _choose(path: Path, files: Sequence[DataFile]) -> Sequence[DataFile]:
    """Return one file, or several that are parts of the data by their names or folders."""
    if len(files) > 1 and any(part_of_file(file.path, path) is None for file in files):
        listed = ", ".join(str(file.path.relative_to(path)) for file in files[:5])
        raise DataError(f"{path}: {len(files)} tables of pictures ({listed}), expected one; name the one you mean")
    return files


def _format(name: str) -> str | None:
    suffixes = name.lower().removesuffix(".gz").rpartition(".")
    return FORMATS.get(f".{suffixes[2]}") if suffixes[1] else None
