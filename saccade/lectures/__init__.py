"""Lectures: statements of the lectures that are shown by running them; one file each, the folder is the registry."""

import importlib
from pathlib import Path

from saccade.errors import UsageError, suggest
from saccade.lectures._lecture import Lecture


def lecture_names() -> list[str]:
    """Return the rows of the lectures that are shown: the files of this folder."""
    return sorted(path.stem.upper() for path in Path(__file__).parent.glob("[!_]*.py"))


def load_lecture(name: str) -> Lecture:
    """Return the lecture of that row."""
    if name.upper() not in lecture_names():
        raise UsageError(f"no lecture '{name}'{suggest(name.upper(), lecture_names())}")
    lecture = importlib.import_module(f"saccade.lectures.{name.lower()}").LECTURE
    assert isinstance(lecture, Lecture)
    return lecture
