"""Finding pictures by the names that a table or an annotation file gives them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from saccade.data.images.kinds import is_picture_name
from saccade.data.images.pictures import JoinedPictures, PictureFiles, Pictures
from saccade.data.images.trees import Tree, is_archive, open_tree
from saccade.data.path_matching import PathIndex, PathMatch, PathRule, match_paths
from saccade.data.tables.encodings import explain
from saccade.data.tables.problems import did_you_mean
from saccade.errors import DataError

ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")
LISTED = 200  # names among which a similar one is looked for
BESIDE = -1  # number of the tree of pictures that are files, not members of an archive

Place = tuple[int, str]
"""number of a tree, and the name of a picture in it"""


class PictureFinder:
    """Pictures below a folder, and in archives directly in it, that rows refer to by path, file name or number.

    Pictures are numbered in the order in which they are first referred to.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[str, int] = {}
        self._members: dict[Place, int] = {}

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
    def _index(self) -> PathIndex[Place]:
        """Tree and name of each picture."""
        trees = self._trees
        return PathIndex(
            (name, (BESIDE if tree.path == self.folder else number, name))
            for number, tree in enumerate(trees)
            for name in filter(is_picture_name, tree.names)
        )

    def match(self, names: Iterable[str], within: str = "") -> dict[str, PathMatch[Place]]:
        """Return the picture that each of the names in one table means.

        `within` is the folder below this one to which they are relative, if there are pictures.
        """
        return match_paths(names, within, self._find)

    def _find(self, key: str, rule: PathRule) -> Place | None:
        if "\x00" in key:
            return None
        if not rule.stem and not rule.dropped and is_picture_name(key):
            try:
                if (self.folder / key).is_file():
                    return BESIDE, key
            except OSError:  # such as a name that is too long for a file
                return None
        return self._index.find(key, rule.stem)

    def number(self, place: Place) -> int:
        """Return the number of a picture."""
        count = len(self._files) + len(self._members)
        return self._files.setdefault(place[1], count) if place[0] == BESIDE else self._members.setdefault(place, count)

    def reason(self, name: str, match: PathMatch[Place]) -> tuple[str, str, str]:
        """Return what is wrong with a name that is not that of one picture, what was expected, and what to do."""
        if match.same_as:
            what = f"'{name[:200]}' and '{match.same_as[:200]}' would both be the picture '{match.end}'"
            return what, "a picture for each", "put the pictures into the folders that the table names"
        if self._index.is_ambiguous(match.end):
            return f"several pictures are called '{match.end}'", "one", "write the path from the folder of the table"
        near = did_you_mean(PurePosixPath(name.strip().replace("\\", "/")).name, self._index.names(LISTED))
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
