"""Tasks: one file each; the folder is the registry, and a dotted name is an importable module."""

import importlib
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from saccade.core.task import Task
from saccade.data.formats.chats import is_chat_log
from saccade.data.formats.pair_files import COLUMN_NAMES, find_pairs
from saccade.data.formats.squad import is_squad
from saccade.data.formats.tagged import is_tagged
from saccade.data.tables.columns import label_kind
from saccade.data.tables.files import find
from saccade.data.tables.problems import Problems
from saccade.data.tables.rows import rows
from saccade.data.tables.sniffing import DataFile, sniff
from saccade.errors import DataError, UsageError, suggest

TASK_OF_LABELS = {"classes": "text_classification", "numbers": "regression", "": "language_model"}
LANGUAGE = re.compile(r"[a-z]{2,3}([-_][a-z]+)?")  # a column called en or zh-hans
SAMPLE = 200  # rows that decide whether a table has parallel texts


def task_names() -> list[str]:
    """Return the built-in tasks: the files of this folder."""
    return sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py"))


def load_task(name: str) -> type[Task]:
    """Return the built-in task of that name, or the class `Task` of an importable module (`my_package.my_task`)."""
    if name.startswith(".") or ("." not in name and name not in task_names()):
        raise UsageError(f"no task '{name}'{suggest(name, task_names())}")
    path = name if "." in name else f"saccade.tasks.{name}"
    try:
        module = importlib.import_module(path)
        task = module.Task
    except ModuleNotFoundError as error:
        raise UsageError(f"no task '{name}': {error}") from error
    except (ImportError, SyntaxError, ValueError) as error:
        raise UsageError(f"the module '{path}' cannot be imported: {error}") from error
    except AttributeError as error:
        raise UsageError(f"the module '{path}' must have a class Task, but has none") from error
    if not (isinstance(task, type) and issubclass(task, Task)):
        raise UsageError(f"Task of '{path}' must be a subclass of saccade.core.task.Task, but is {task!r}")
    return task


def guess_task(data: Path, overrides: Sequence[str] = ()) -> str:
    """Return the name of a task that suits the data, by file names, columns, contents and overrides."""
    if any(override.startswith("data.target=") for override in overrides):
        return "translation"
    if is_tagged(data):
        return "tagging"
    path = find(data)[0]
    if is_squad(path):
        return "question_answering"
    file = sniff(path)
    pairs = (override.removeprefix("data.").partition("=") for override in overrides)
    settings = {name: value for name, _, value in pairs}
    text, second, label = (settings.get(f"{name}_column", "") for name in ("text", "second", "label"))
    if file.format == "text" or (text and not label) or (not label and is_chat_log(file)):
        return "language_model"
    labels = label_kind(file, text=text, second=second, label=label)
    if label:
        return TASK_OF_LABELS[labels or "classes"]
    if (labels == "numbers" and not file.columns) or not _is_parallel(data, file):
        return TASK_OF_LABELS[labels]
    return "translation"


def _is_parallel(data: Path, file: DataFile) -> bool:
    """Whether a table has two text columns with common names, or consists of two text columns."""
    try:
        columns = find_pairs(data).columns
    except DataError:
        return False
    names = tuple(name.lower() for name in columns)
    languages = len(file.columns) == 2 and all(LANGUAGE.fullmatch(name) for name in names)
    if file.columns and names not in COLUMN_NAMES and not languages:
        return False
    sample = [row.values for row in islice(rows(file, columns, problems=Problems()), SAMPLE)]
    texts = all(len(set(side)) > len(side) / 2 for side in zip(*sample, strict=True))  # a column of labels repeats
    return bool(sample) and texts
