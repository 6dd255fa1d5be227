"""Path matching: which file each path of a table means; how paths are read is decided once for all rows of a table.

A path may start at the folder of the table, further down, or at folders that only another machine has, and may lack its
suffix. Were that decided row by row, a missing file would silently be replaced by another one of the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from posixpath import splitext
from typing import Generic, TypeVar

SAMPLED = 10_000  # paths that decide how all are read

Place = TypeVar("Place", bound=Hashable)


@dataclass(frozen=True)
class PathRule:
    """How the paths of a table are read."""

    folder: str = ""
    """folder to which they are relative; empty: any"""
    dropped: int = 0
    """leading folders that are dropped"""
    stem: bool = False
    """whether they have no suffix"""

    def end(self, path: str) -> str:
        """Return what is kept of a path; empty if nothing is."""
        for _ in range(self.dropped):
            path = path[1:] if path.startswith("/") else path.partition("/")[2]
        return path

    def key(self, path: str) -> str:
        """Return what is kept of a path, behind its folder; empty if nothing is kept."""
        end = self.end(path)
        return f"{self.folder}/{end}" if end and self.folder else end


@dataclass(frozen=True)
class PathMatch(Generic[Place]):
    """The file that a path of a table means."""

    place: Place | None
    """where it is; None if there is none, or several"""
    end: str
    """what is kept of the path"""
    same_as: str = ""
    """another path of the table that would mean the same file, were leading folders dropped"""


class PathIndex(Generic[Place]):
    """Files by their paths and by every end of them, with and without the suffix."""

    def __init__(self, files: Iterable[tuple[str, Place]]) -> None:
        self._ends: dict[str, Place | None] = {}  # None: several files have the same
        self._stems: dict[str, Place | None] = {}
        complete: dict[str, Place] = {}
        for name, place in files:
            end = str(PurePosixPath(name))
            complete[end] = place
            while end:
                for index, key in ((self._ends, end), (self._stems, splitext(end)[0])):
                    index[key] = place if index.get(key, place) == place else None
                end = end.partition("/")[2]
        self._ends.update(complete)

    def find(self, key: str, stem: bool) -> Place | None:
        """Return where a file is by the end of its path, without its suffix if `stem`; None: nowhere, or several."""
        return (self._stems if stem else self._ends).get(key)

    def is_ambiguous(self, key: str) -> bool:
        """Whether several files have this end."""
        return any(key in index and index[key] is None for index in (self._ends, self._stems))

    def names(self, count: int) -> list[str]:
        """Return the names of some files, with and without their folders."""
        return [PurePosixPath(key).name for key, _ in zip(self._ends, range(count), strict=False)]


def plain_path(written: str) -> str:
    """Return a written path with slashes and without blanks around it."""
    return str(PurePosixPath(written.strip().replace("\\", "/"))) if written.strip() else ""


def match_paths(
    written: Iterable[str], folder: str, find: Callable[[str, PathRule], Place | None]
) -> dict[str, PathMatch[Place]]:
    """Return the file that each of the paths of one table means.

    `folder` is that of the table; `find` returns where the file of a key is. Two paths that differ never mean the same
    file by leaving out leading folders.
    """
    paths = {text: plain_path(text) for text in dict.fromkeys(written)}
    distinct = list(dict.fromkeys(paths.values()))
    rule = _choose_rule(distinct[:: max(1, -(-len(distinct) // SAMPLED))], folder, find)
    taken: dict[Place, str] = {}
    matches: dict[str, PathMatch[Place]] = {}
    for path in distinct:
        key = rule.key(path)
        place = find(key, rule) if key else None
        same_as = taken.setdefault(place, path) if place is not None and rule.dropped else path
        clash = "" if same_as == path else same_as
        matches[path] = PathMatch(None if clash else place, rule.end(path), clash)
    return {text: matches[path] for text, path in paths.items()}


def _choose_rule(paths: Sequence[str], folder: str, find: Callable[[str, PathRule], Place | None]) -> PathRule:
    """Return the first rule by which at least half of the paths mean a file of their own, else that by which most do.

    Rules that drop fewer folders come first: a rule that finds more files by dropping more may find others.
    """
    best, most = PathRule(folder), 0
    for dropped in range(max((path.count("/") + 1 for path in paths), default=0)):
        for stem in (False, True):
            for within in dict.fromkeys((folder, "")):
                rule = PathRule(within, dropped, stem)
                keys = filter(None, map(rule.key, paths))
                places = [place for key in keys if (place := find(key, rule)) is not None]
                # A file that two paths would mean counts against the rule, since at least one of them is wrong.
                count = len(places) - 2 * (len(places) - len(set(places))) * bool(dropped)
                if count and 2 * count >= len(paths):
                    return rule
                if count > most:
                    best, most = rule, count
    return best
