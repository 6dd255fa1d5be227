"""The figure of a reliability script: one line `name: N/N what`, or the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Figure:
    """How many of the trials of a script ended as promised."""

    name: str
    good: int
    total: int
    text: str
    """what happened, in a few words"""
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def line(self) -> str:
        return f"{self.name}: {self.good:,}/{self.total:,} {self.text}"


def print_figure(figure: Figure, as_json: bool) -> int:
    """Print the line of a figure, or JSON; return the exit code of the script."""
    record = {"name": figure.name, "good": figure.good, "total": figure.total, "text": figure.text, **figure.details}
    print(json.dumps(record) if as_json else figure.line, flush=True)
    return 0 if figure.total and figure.good == figure.total else 1
