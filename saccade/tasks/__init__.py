"""Tasks: one file each; the folder is the registry, and a dotted name is any importable module."""

import importlib
from pathlib import Path

from saccade.errors import UsageError, suggest
from saccade.task import Task


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
        raise UsageError(f"Task of '{where}' must be a subclass of saccade.task.Task, but is {found!r}")
    return found
