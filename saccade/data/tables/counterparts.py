"""Counterparts: the file whose lines go with those of another one, such as train.de beside train.en."""

import re
from pathlib import Path

from saccade.data.tables.encodings import explain
from saccade.data.tables.files import find
from saccade.errors import DataError, suggest

LISTED = 10  # names in an error message
BETWEEN = re.compile(r"([._-])")


def name_parts(name: str) -> list[str]:
    """The parts of a file name between its dots, and those between its dots, dashes and underscores."""
    return list(dict.fromkeys([*name.split("."), *BETWEEN.split(name)[::2]]))


def counterpart(path: Path, target: str) -> Path:
    """The file that goes with a file of lines: the one that `target` names, or the one beside it with that part."""
    path = Path(path)
    named = next((file for file in (Path(target), path.parent / target) if is_file(file)), None)
    if named is None and "/" in target:
        if Path(target).is_dir():
            raise DataError(f"{target}: a folder, expected a file; name the one that goes with {path.name}")
        (named,) = find(target)  # says that there is none
    if named is not None:
        if named.resolve() == path.resolve():
            raise DataError(f"{path}: the source and the target are one file, expected two; name the other one")
        return named
    made = [file for name in _exchanged(path.name, target) if is_file(file := path.parent / name)]
    if len(made) == 1:
        return made[0]
    if made:
        listed = " and ".join(file.name for file in made)
        raise DataError(
            f"{path}: both {listed} have '{target}' in place of a part of its name; name one: --target FILE"
        )
    raise _missing(path, target)


def swap_rule(source: Path, target: str) -> str:
    """The part of the name that makes a source file's name that of its target: 'de' for train.en and train.de.

    A word without a dot is such a part already.
    """
    ours, theirs = Path(source).name, Path(target).name
    if "." not in target and "/" not in target and "." in ours:
        return target
    for pattern in (BETWEEN, re.compile(r"(\.)")):
        before, after = pattern.split(ours), pattern.split(theirs)
        differ = [new for old, new in zip(before, after, strict=False) if old != new]
        if len(before) == len(after) and before[1::2] == after[1::2] and len(differ) == 1:
            return differ[0]
    message = f"{target}: the names of source and target must differ in one part, as train.en and train.de do"
    raise DataError(f"{message}, but the source is {ours} and the target {theirs}; rename one of them")


def is_file(path: Path) -> bool:
    """Whether there is a file of this name; a name that the system refuses is a data error."""
    try:
        return path.is_file()
    except OSError as error:  # a name that is too long
        raise explain(path, error) from error


def _exchanged(name: str, part: str) -> list[str]:
    """Every name that differs from this one only in having `part` instead of one of its parts."""
    names: dict[str, None] = {}
    for pattern in (BETWEEN, re.compile(r"(\.)")):
        pieces = pattern.split(name)
        for at in range(0, len(pieces), 2):
            names["".join([*pieces[:at], part, *pieces[at + 1 :]])] = None
    return [changed for changed in names if changed != name]


def _missing(path: Path, target: str) -> DataError:
    """The error for a counterpart that is not there, with what is."""
    try:
        beside = sorted(file.name for file in path.parent.iterdir() if file.is_file() and file.name != path.name)
    except OSError as error:
        return explain(path.parent, error)
    ours = name_parts(path.name)
    known = list(dict.fromkeys(part for name in beside for part in name_parts(name) if part not in ours))
    hint = suggest(target, [*known, *beside])
    listed = ", ".join(beside[:LISTED]) + (f" and {len(beside) - LISTED:,} more" if len(beside) > LISTED else "")
    message = f"{path}: no file '{target}', and none beside it with '{target}' in place of a part of its name"
    step = hint if "did you mean" in hint else "; name the file: --target FILE"
    return DataError(f"{message}, expected one of: {listed or '(there is no other file)'}{step}")
