"""Counterparts: the file whose lines belong to those of another file, such as train.de to train.en."""

import re
from pathlib import Path

from saccade.data.tables.encodings import explain
from saccade.data.tables.files import find
from saccade.data.tables.problems import did_you_mean
from saccade.errors import DataError

LISTED = 10  # names in an error message
BETWEEN = re.compile(r"([._-])")


def name_parts(name: str) -> list[str]:
    """Return the parts of a file name between its dots, and those between its dots, dashes and underscores."""
    return list(dict.fromkeys([*name.split("."), *BETWEEN.split(name)[::2]]))


def counterpart(path: Path, target: str) -> Path:
    """Return the counterpart of a file of lines: the file `target`, or the one in its folder with that name part."""
    path = Path(path)
    named = next((file for file in (Path(target), path.parent / target) if is_file(file)), None)
    if named is None and "/" in target:
        if Path(target).is_dir():
            raise DataError(f"{target}: a folder, expected a file; name the one that goes with {path.name}")
        (named,) = find(target)  # raises that there is none
    if named is not None:
        if named.resolve() == path.resolve():
            raise DataError(f"{path}: the source and the target are one file, expected two; name the other one")
        return named
    candidates = [file for name in _swapped_names(path.name, target) if is_file(file := path.parent / name)]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        listed = " and ".join(file.name for file in candidates)
        raise DataError(
            f"{path}: both {listed} have '{target}' in place of a part of its name; name one: data.target=FILE"
        )
    raise _missing(path, target)


def swap_rule(source: Path, target: str) -> str:
    """Return the part of the name that makes a source file's name that of its target: 'de' for train.en and train.de.

    A target without a dot is such a part already.
    """
    source_name, target_name = Path(source).name, Path(target).name
    if "." not in target and "/" not in target and "." in source_name:
        return target
    for pattern in (BETWEEN, re.compile(r"(\.)")):
        before, after = pattern.split(source_name), pattern.split(target_name)
        differ = [new for old, new in zip(before, after, strict=False) if old != new]
        if len(before) == len(after) and before[1::2] == after[1::2] and len(differ) == 1:
            return differ[0]
    message = f"{target}: the names of source and target must differ in one part, as train.en and train.de do"
    raise DataError(f"{message}, but the source is {source_name} and the target {target_name}; rename one of them")


def is_file(path: Path) -> bool:
    """Whether there is a file of this name; a name that the system refuses is a data error."""
    try:
        return path.is_file()
    except OSError as error:  # a name that is too long
        raise explain(path, error) from error


def _swapped_names(name: str, part: str) -> list[str]:
    """Return every name that differs from this one only in having `part` instead of one of its parts."""
    names: dict[str, None] = {}
    for pattern in (BETWEEN, re.compile(r"(\.)")):
        pieces = pattern.split(name)
        for index in range(0, len(pieces), 2):
            names["".join([*pieces[:index], part, *pieces[index + 1 :]])] = None
    return [changed for changed in names if changed != name]


def _missing(path: Path, target: str) -> DataError:
    """Return the error for a counterpart that does not exist, with the files that do."""
    try:
        siblings = sorted(file.name for file in path.parent.iterdir() if file.is_file() and file.name != path.name)
    except OSError as error:
        return explain(path.parent, error)
    own_parts = name_parts(path.name)
    parts = list(dict.fromkeys(part for name in siblings for part in name_parts(name) if part not in own_parts))
    hint = did_you_mean(target, [*parts, *siblings])
    listed = ", ".join(siblings[:LISTED]) + (f" and {len(siblings) - LISTED:,} more" if len(siblings) > LISTED else "")
    message = f"{path}: no file '{target}', and none beside it with '{target}' in place of a part of its name"
    step = hint or "; name the file: data.target=FILE"
    return DataError(f"{message}, expected one of: {listed or '(there is no other file)'}{step}")
