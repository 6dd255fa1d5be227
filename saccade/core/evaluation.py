"""Evaluation: metric values, with the direction and unit of every metric and the signatures to reproduce them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Metric:
    """A number that `evaluate` returns."""

    name: str
    higher_is_better: bool | None
    """None: neither, such as a number of rows"""
    unit: str = ""
    label: str = ""
    """its name as people write it, such as BLEU; see `describe_metric`"""

    def better(self, value: float, than: float) -> bool:
        """Return whether a value is better than another one."""
        return value > than if self.higher_is_better else value < than


@dataclass(frozen=True)
class Table:
    """A small table reported with the metrics, such as a confusion matrix."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def to_markdown(self) -> list[str]:
        """Return the lines of a Markdown table with aligned columns."""
        cells = [[cell.replace("|", "\\|") for cell in row] for row in (self.columns, *self.rows)]
        widths = [max(3, *map(len, column)) for column in zip(*cells, strict=True)]
        lines = [cells[0], ["-" * width for width in widths], *cells[1:]]
        return [
            f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |" for line in lines
        ]


@dataclass(frozen=True)
class Evaluation:
    """Metric values by name, the signatures of their computation, tables and notes."""

    values: Mapping[str, float]
    signatures: Mapping[str, str] = field(default_factory=dict)
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    complete: bool = False
    """whether a quick evaluation covered the entire split, so that a full one would return the same values"""

    def __getitem__(self, name: str) -> float:
        return self.values[name]
