"""Tasks: one file each; the folder is the registry, and a dotted name is any importable module."""

import importlib
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from saccade.core.task import Task
from saccade.data.formats.pairs import USUAL, find_pairs
from saccade.data.formats.squad import is_squad
from saccade.data.formats.tagged import is_tagged
from saccade.data.tables.columns import labelled_with
from saccade.data.tables.files import DataFile, find, rows, sniff
from saccade.data.tables.problems import Problems
from saccade.errors import DataError, UsageError, suggest

BY_LABEL = {"classes": "text_classification", "numbers": "regression", "": "language_model"}
COLUMNS = {"text": "column", "second": "second", "label": "label"}  # what settings call them
LANGUAGE = re.compile(r"[a-z]{2,3}([-_][a-z]+)?")  # a column called en or zh-hans


def task_names() -> list[str]:
    """The built-in tasks: the files of this folder."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__")


def load_task(name: str) -> type[Task]:
    """The task of that name, or of any importable module (`mine.task`) that has a class `Task`."""
    if name.startswith(".") or ("." not in name and name not in task_names()):
        raise UsageError(f"no task '{name}'{suggest(name, task_names())}")
    where = name if "." in name else f"saccade.tasks.{name}"
    try:
        module = importlib.import_module(where)
        found = module.Task
    except ModuleNotFoundError as error:
        raise UsageError(f"no task '{name}': {error}") from error
    except (ImportError, SyntaxError, ValueError) as error:
        raise UsageError(f"the module '{where}' cannot be imported: {error}") from error
    except AttributeError as error:
        raise UsageError(f"the module '{where}' must have a class Task, but has none") from error
    if not (isinstance(found, type) and issubclass(found, Task)):
        raise UsageError(f"Task of '{where}' must be a subclass of saccade.core.task.Task, but is {found!r}")
    return found


def guess_task(data: Path, words: Sequence[str] = ()) -> str:
    """What to learn from data where nobody says: by the names of the files, their columns and what is in them."""
    if any(word.startswith("data.target=") for word in words):
        return "translation"
    if is_tagged(data):
        return "tagging"
    file = find(data)[0]
    if is_squad(file):
        return "question_answering"
    found = sniff(file)
    given = {name: value for name, _, value in (word.removeprefix("data.").partition("=") for word in words)}
    if found.format == "text" or ("column" in given and "label" not in given):
        return "language_model"
    kind = labelled_with(found, **{place: given.get(name, "") for place, name in COLUMNS.items()})
    if "label" in given:
        return BY_LABEL[kind or "classes"]
    if (kind == "numbers" and not found.columns) or not _is_parallel(data, found):
        return BY_LABEL[kind]
    return "translation"


def _is_parallel(data: Path, found: DataFile) -> bool:
    """Whether a table has two columns of texts by the usual names, or none but two columns of texts."""
    try:
        columns = find_pairs(data).columns
    except DataError:
        return False
    names = tuple(name.lower() for name in columns)
    languages = len(found.columns) == 2 and all(LANGUAGE.fullmatch(name) for name in names)
    if found.columns and names not in USUAL and not languages:
        return False
    sample = [row.values for row in islice(rows(found, columns, problems=Problems()), 200)]
    texts = all(len(set(side)) > len(side) / 2 for side in zip(*sample, strict=True))  # a column of labels repeats
    return bool(sample) and texts
