"""Panels: the weights of each query over the grid of an image, and the point that each query looks at.

Shapes: Q queries, R rows and C columns of a grid.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from saccade.core import AttentionMap, GridAxis
from saccade.errors import UsageError
from saccade.look.labels import visible
from saccade.look.overlay import Box
from saccade.metrics.alignment import head_weights

MOST = 64  # panels of a figure


@dataclass(frozen=True)
class Panel:
    """The weights of one query over a grid."""

    label: str
    weights: Tensor  # (R, C)
    extra: tuple[tuple[str, float], ...]
    """weights of the positions before the grid, such as a class token"""
    query: Box | None = None
    """where the query is in the image, if it is a cell"""


def panels(attention: AttentionMap, at: tuple[int, int] | None = None) -> list[Panel]:
    """Return a panel for each query; of a grid of queries those before it and the mean of its cells, or one cell."""
    weights, keys, queries = head_weights(attention), grid_of(attention), attention.queries
    if at is not None:
        return [_cell_panel(attention, weights, at)]
    rows = [(label, row) for label, row in zip(queries.labels, weights, strict=True)]
    if isinstance(queries, GridAxis) and queries.rows * queries.columns:
        first = len(queries.extra)
        rows = [*rows[:first], (f"mean of {len(queries) - first} cells", weights[first:].mean(0))]
    return [_panel(label, row, keys) for label, row in rows[:MOST]]


def left_out(attention: AttentionMap) -> str:
    """Return how many queries a figure shows of how many; empty: it shows all."""
    count = len(attention.queries)
    return "" if isinstance(attention.queries, GridAxis) or count <= MOST else f"the first {MOST} of {count} queries"


def grid_of(attention: AttentionMap) -> GridAxis:
    """Return the grid of the keys."""
    if not isinstance(attention.keys, GridAxis):
        raise ValueError(f"'{attention.name}' must have keys on a grid, but has keys of {attention.keys.kind}")
    return attention.keys


def largest_weight(figures: list[Panel]) -> float:
    """Return the largest weight of all panels, which has the strongest colour."""
    return max((float(figure.weights.max()) for figure in figures if figure.weights.numel()), default=0.0)


def _cell_panel(attention: AttentionMap, weights: Tensor, at: tuple[int, int]) -> Panel:
    """Return the panel of the query at a row and a column."""
    queries, (row, column) = attention.queries, at
    if not isinstance(queries, GridAxis):
        raise ValueError(f"'{attention.name}' must have queries on a grid, but has queries of {queries.kind}")
    if not (0 <= row < queries.rows and 0 <= column < queries.columns):
        last = f"{queries.rows - 1},{queries.columns - 1}"
        raise UsageError(f"at must be 0,0 to {last} in '{attention.name}', but is {row},{column}")
    number = len(queries.extra) + row * queries.columns + column
    high, wide = 1 / queries.rows, 1 / queries.columns
    box = (row * high, column * wide, (row + 1) * high, (column + 1) * wide)
    return _panel(queries.labels[number], weights[number], grid_of(attention), box)


def _panel(label: str, row: Tensor, keys: GridAxis, query: Box | None = None) -> Panel:
    first = len(keys.extra)
    extra = tuple((visible(name), weight) for name, weight in zip(keys.extra, row[:first].tolist(), strict=True))
    return Panel(visible(label), row[first:].reshape(keys.rows, keys.columns), extra, query)


def gaze(attention: AttentionMap) -> list[tuple[float, float]]:
    """Return the point (x, y) of the image that each query looks at, 0 to 1.

    It is the centre of mass of the cell with the largest weight and its neighbours: the mean of all cells would lie
    between two objects where a query looks at both.
    """
    keys = grid_of(attention)
    weights = head_weights(attention)[:, len(keys.extra) :].reshape(-1, keys.rows, keys.columns)
    return [_point(cells) for cells in weights]


def _point(cells: Tensor) -> tuple[float, float]:
    rows, columns = cells.shape
    row, column = divmod(int(cells.argmax()), columns)
    top, left = max(0, row - 1), max(0, column - 1)
    near = cells[top : row + 2, left : column + 2].tolist()
    total = sum(map(sum, near))
    if total <= 0:
        return 0.5, 0.5
    x = sum(weight * (left + at + 0.5) for line in near for at, weight in enumerate(line)) / total
    y = sum(weight * (top + at + 0.5) for at, line in enumerate(near) for weight in line) / total
    return x / columns, y / rows
