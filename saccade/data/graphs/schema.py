"""Schema: how the columns of nodes and edges become numbers, derived from the training data and kept with the run.

Shapes: N nodes, M edges, F features.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from saccade.data.graphs.graph import Graph, Value
from saccade.errors import DataError

MOST_CATEGORIES = 200  # a column of more different texts is a name, not a category
MOST_WORDS = 50_000
LARGEST_DEGREE = 15  # counted exactly; more are one category
Kind = Literal["number", "category", "words"]


@dataclass(frozen=True)
class Column:
    """How one column becomes numbers: standardized, or one number for each category or word."""

    name: str
    kind: Kind
    values: tuple[str, ...] = ()
    """categories or words"""
    mean: float = 0.0
    deviation: float = 1.0

    @property
    def width(self) -> int:
        return 1 if self.kind == "number" else len(self.values)

    def encode(self, values: Sequence[Value], origin: str) -> NDArray[np.float32]:
        """Return the numbers (N, width) of a column; what was not in the training data counts as absent."""
        out = np.zeros((len(values), self.width), dtype=np.float32)
        if self.kind == "number":
            numbers = [self.mean if value is None else self._number(value, origin) for value in values]
            out[:, 0] = (np.array(numbers, dtype=np.float64) - self.mean) / self.deviation
            return out
        columns = {value: column for column, value in enumerate(self.values)}
        for row, value in enumerate(values):
            items = words(value) if self.kind == "words" else (text(value),)
            chosen = [columns[item] for item in items if item in columns]
            out[row, chosen] = 1.0 / max(1, len(chosen))
        return out

    def _number(self, value: Value, origin: str) -> float:
        number = to_number(value)
        if number is None:
            raise DataError(f"{origin}: '{self.name}' is {str(value)[:40]!r}, expected a number; correct it")
        return number


@dataclass(frozen=True)
class Schema:
    """The columns of nodes and edges, and whether the number of edges of a node is a feature."""

    node: tuple[Column, ...]
    edge: tuple[Column, ...]
    degree: bool = False

    @property
    def node_width(self) -> int:
        return sum(column.width for column in self.node) + (LARGEST_DEGREE + 1 if self.degree else 0)

    @property
    def edge_width(self) -> int:
        return sum(column.width for column in self.edge)

    @classmethod
    def of(cls, graphs: Iterable[Graph]) -> tuple[Schema, list[str]]:
        """Return the schema of the training graphs, and notes for the user."""
        graphs, notes = list(graphs), list[str]()
        node = [_column(name, graphs, "node_columns", notes) for name in _names(graphs, "node_columns")]
        edge = [_column(name, graphs, "edge_columns", notes) for name in _names(graphs, "edge_columns")]
        nodes = tuple(column for column in node if column is not None)
        if not nodes:
            notes.append("nodes have no features of their own: the number of their edges is used")
        return cls(nodes, tuple(column for column in edge if column is not None), degree=not nodes), notes

    def encode_nodes(self, graph: Graph) -> NDArray[np.float32]:
        """Return the features (N, F) of the nodes of a graph, whose edges go both ways."""
        parts = [_encode(column, graph.node_columns, len(graph), "node", graph.origin) for column in self.node]
        if self.degree:
            counts = np.bincount(graph.target, minlength=len(graph)).clip(0, LARGEST_DEGREE)
            parts.append(np.eye(LARGEST_DEGREE + 1, dtype=np.float32)[counts])
        return np.concatenate(parts, axis=1) if parts else np.zeros((len(graph), 0), np.float32)

    def encode_edges(self, graph: Graph) -> NDArray[np.float32]:
        """Return the features (M, F) of the edges of a graph."""
        count = len(graph.source)
        parts = [_encode(column, graph.edge_columns, count, "edge", graph.origin) for column in self.edge]
        return np.concatenate(parts, axis=1) if parts else np.zeros((count, 0), np.float32)

    def to_json(self) -> dict[str, Any]:
        sides = {side: [vars(column) for column in getattr(self, side)] for side in ("node", "edge")}
        return {**sides, "degree": self.degree}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Schema:
        def columns(side: str) -> tuple[Column, ...]:
            return tuple(Column(**{**column, "values": tuple(column["values"])}) for column in value[side])

        return cls(columns("node"), columns("edge"), value["degree"])


def words(value: Value) -> tuple[str, ...]:
    """Return the words of a value."""
    return value if isinstance(value, tuple) else () if value is None else tuple(text(value).split())


def text(value: Value) -> str:
    """Return a value as text; 3.0 is 3."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value).strip()


def to_number(value: Value) -> float | None:
    """Return a value as a finite number, None if it is none."""
    if isinstance(value, tuple) or value is None:
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _names(graphs: Sequence[Graph], side: str) -> list[str]:
    return list(dict.fromkeys(name for graph in graphs for name in getattr(graph, side)))


def _column(name: str, graphs: Sequence[Graph], side: str, notes: list[str]) -> Column | None:
    """Return how a column becomes numbers; None for one that says nothing."""
    values = [value for graph in graphs for value in getattr(graph, side).get(name, ())]
    present = [value for value in values if value is not None and value != ""]
    what = "column" if side == "node_columns" else "column of edges"
    numbers = [to_number(value) for value in present]
    distinct = {value if isinstance(value, tuple) else text(value) for value in values}
    if len(distinct) < 2:
        return None  # the same everywhere
    if present and all(
        isinstance(value, float) or number is not None for value, number in zip(present, numbers, strict=True)
    ):
        present_numbers = np.array(numbers, dtype=np.float64)
        return Column(name, "number", (), float(present_numbers.mean()), float(present_numbers.std()) or 1.0)
    lists = any(isinstance(value, tuple) or len(text(value).split()) > 1 for value in present)
    counts = Counter(word for value in present for word in (words(value) if lists else (text(value),)))
    shared = [word for word, count in counts.items() if count > 1]
    if len(shared) < 2 or (not lists and len(counts) > MOST_CATEGORIES) or len(counts) > MOST_WORDS:
        notes.append(f"{what} '{name}' is not used: {len(counts):,} different texts")
        return None
    return Column(name, "words" if lists else "category", tuple(sorted(counts, key=_natural)))


def _natural(word: str) -> tuple[int, str]:
    return (len(word), word) if word.isdecimal() else (1 << 30, word)


def _encode(
    column: Column, columns: Mapping[str, Sequence[Value]], count: int, side: str, origin: str
) -> NDArray[np.float32]:
    if column.name not in columns:
        message = f"{origin or 'the graph'}: {side}s without '{column.name}', expected {_shown(column)}"
        raise DataError(f"{message} for each {side}, as in the training data; add it")
    values = columns[column.name]
    assert len(values) == count
    return column.encode(values, origin or "the graph")


def _shown(column: Column) -> str:
    if column.kind == "number":
        return "a number"
    listed = ", ".join(column.values[:5])
    return f"{'words' if column.kind == 'words' else 'a category'} such as {listed}"
