"""Finding pictures by the names that a table or an annotation file gives them."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from saccade.data.images.kinds import is_picture_name
from saccade.data.images.pictures import JoinedPictures, PictureFiles, Pictures
from saccade.data.images.trees import Tree, is_archive, open_tree
from saccade.data.tables.encodings import explain
from saccade.data.tables.problems import did_you_mean
from saccade.errors import DataError

ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")
LISTED = 200  # names among which a similar one is looked for


class PictureFinder:
    """Pictures below a folder, and in archives directly in it, that rows refer to by path, file name or number.

    Pictures are numbered in the order in which they are first referred to.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[str, int] = {}
        self._members: dict[tuple[int, str], int] = {}
        self._numbers: dict[tuple[str, str], int | None] = {}

    @cached_property
    def _trees(self) -> list[Tree]:
        """The folder itself, and the archives in it if it has no pictures."""
        folder = open_tree(self.folder)
        if folder is None:  # cannot happen: the folder of a file
            raise DataError(f"{self.folder}: not a folder; name a file in a folder")
        if any(map(is_picture_name, folder.names)):
            return [folder]
        try:
            paths = sorted(self.folder.iterdir())
        except OSError as error:
            raise explain(self.folder, error) from error
        named = [path for path in paths if path.name.lower().endswith(ARCHIVES) and path.is_file()]
        archives = [tree for path in named if is_archive(path) and (tree := open_tree(path)) is not None]
        return [tree for tree in archives if any(map(is_picture_name, tree.names))]

    @cached_property
    def _index(self) -> dict[str, tuple[int, str] | None]:
        """Tree and name of each picture by its path, by every end of it, and without its suffix; None: ambiguous."""
        index: dict[str, tuple[int, str] | None] = {}
        exact: dict[str, tuple[int, str]] = {}
        for number, tree in enumerate(self._trees):
            for name in filter(is_picture_name, tree.names):
                place = (number, name)
                path = PurePosixPath(name)
                exact[str(path)] = place
                for first in range(len(path.parts)):
                    end = PurePosixPath(*path.parts[first:])
                    for key in (str(end), str(end.with_suffix(""))):
                        index[key] = place if index.get(key, place) == place else None
        return index | exact

    def number(self, name: str, within: str = "") -> int | None:
        """Return the number of a picture, or None if there is none of that name, or several.

        `within` is the folder below this one to which the name is relative, if there is a picture.
        """
        key = (within, name)
        if key not in self._numbers:
            number = self._lookup(f"{within}/{name.strip()}") if within else None
            self._numbers[key] = self._lookup(name) if number is None else number
        return self._numbers[key]

    def _lookup(self, name: str) -> int | None:
        written = name.strip().replace("\\", "/")
        if not written or "\x00" in written:
            return None
        try:
            if is_picture_name(written) and (self.folder / written).is_file():
                return self._files.setdefault(str(PurePosixPath(written)), len(self._files) + len(self._members))
        except OSError:  # such as a name that is too long for a file
            return None
        parts = PurePosixPath(written).parts
        for first in range(len(parts)):  # the paths of a table may start at another folder
            place = self._index.get("/".join(parts[first:]))
            if place is not None:
                tree = self._trees[place[0]]
                if tree.path == self.folder:
                    return self._files.setdefault(place[1], len(self._files) + len(self._members))
                return self._members.setdefault(place, len(self._files) + len(self._members))
        return None

    def reason(self, name: str) -> tuple[str, str, str]:
        """Return what is wrong with a name that is not that of one picture, what was expected, and what to do."""
        file = PurePosixPath(name.strip().replace("\\", "/")).name
        if self._index.get(file, ("", "")) is None:
            return f"several pictures are called '{file}'", "one", "write the path from the folder of the table"
        near = did_you_mean(file, [PurePosixPath(key).name for key in list(self._index)[:LISTED]])
        where = f"a picture in '{self.folder}'{near}"
        return f"no picture '{name[:200]}'", where, "correct the path, or delete the row"

    def pictures(self) -> tuple[Pictures, NDArray[np.int64]]:
        """Return all pictures that were referred to, and where the picture of each number is among them."""
        sets: list[Pictures] = []
        numbers: list[int] = []
        if self._files:
            sets.append(PictureFiles(self.folder, list(self._files)))
            numbers += self._files.values()
        for tree_number, tree in enumerate(self._trees if self._members else ()):
            names = [name for number, name in self._members if number == tree_number]
            if names:
                sets.append(tree.pictures(names))
                numbers += [self._members[tree_number, name] for name in names]
        places = np.empty(len(numbers), np.int64)
        places[numbers] = np.arange(len(numbers))
        return sets[0] if len(sets) == 1 else JoinedPictures(sets), places
