"""Demo: what a demo generates, the tasks it trains on that, and inputs to show."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saccade.errors import UsageError, suggest


@dataclass(frozen=True)
class DemoFiles:
    """Files that were written for a task."""

    train: Path
    """data of `saccade train`"""
    plan: str
    """what was generated, in numbers"""
    examples: tuple[Mapping[str, str | Path], ...]
    """inputs to show, by field: texts, and paths of files"""
    valid: Path | None = None
    """validation data; None: part of the training data, which say so themselves"""


@dataclass(frozen=True)
class DemoTask:
    """A task of a demo: its data, its settings and how its attention is introduced."""

    goal: str
    """what the model learns, after 'The demo learns to '"""
    write: Callable[[Path], DemoFiles]
    """writes the data of the task into a folder"""
    attention: str
    """title of the attention map, before the input"""
    minutes: float
    """of training"""
    samples: int = 0
    """outputs to show of a model that needs no input, instead of those for examples"""
    replay: bool = False
    """whether the demo ends with an episode of the model in its environment, on the page Replay"""
    preset: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Demo:
    """A demo: a summary and its tasks by name, of which the first is the default."""

    summary: str
    tasks: Mapping[str, DemoTask]

    @property
    def default(self) -> str:
        return next(iter(self.tasks))

    def task(self, name: str) -> DemoTask:
        """Return the task of that name."""
        if name not in self.tasks:
            raise UsageError(f"this demo has no task '{name}'{suggest(name, list(self.tasks))}")
        return self.tasks[name]
