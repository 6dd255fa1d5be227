"""A demonstration as text for the terminal: tables, plots and maps by rich, with colours only where they are wanted."""

from __future__ import annotations

import io
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from saccade.errors import printable
from saccade.lectures._row import Check, Demonstration, Heat, Item, Note, Plot, Shown, Table
from saccade.look.draw import terminal
from saccade.look.shades import block

MARKERS = "ox+*#%"
HEIGHT, WIDTH = 12, 60  # characters of a plot


def print_demonstration(demonstration: Demonstration, console: Console) -> None:
    """Print the items in order, then the checks."""
    for item in demonstration.items:
        console.print(_render(item, console))
        console.print()
    console.print(_checks(demonstration.checks))


def to_text(demonstration: Demonstration, width: int = 100) -> str:
    """Return a demonstration as text without colours."""
    file = io.StringIO()
    print_demonstration(demonstration, Console(width=width, file=file))
    return file.getvalue()


def _render(item: Item, console: Console) -> RenderableType:
    if isinstance(item, Note):
        return Text(printable(item.text))
    if isinstance(item, Table):
        return _table(item)
    if isinstance(item, Plot):
        return Text(f"{item.title}\n" + "\n".join(plot_lines(item)))
    if isinstance(item, Heat):
        return Text(f"{item.title}\n" + "\n".join(_heat_lines(item, console.width)))
    return _map(item, console)


def _map(item: Shown, console: Console) -> RenderableType:
    colour = console.color_system is not None
    drawn = terminal(item.attention, width=console.width, colour=colour, style=item.style)
    return Text.assemble((item.name, "bold"), f": {printable(item.about)}\n").append_text(Text.from_ansi(drawn))


def _table(item: Table) -> Group:
    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(item.columns):
        values = [row[number] for row in item.rows]
        table.add_column(column, justify="right" if all(map(_is_number, values)) else "left")
    for row in item.rows:
        table.add_row(*(Text(printable(value)) for value in row))
    return Group(Text(item.title, "bold"), table)


def _is_number(text: str) -> bool:
    return text[:1].isdigit() or (text[:1] == "-" and text[1:2].isdigit()) or text in ("-", "nan", "inf")


def _checks(checks: Sequence[Check]) -> Group:
    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("", "statement", "value", "expected"):
        table.add_column(column)
    for check in checks:
        mark = Text("ok", "green") if check.passed else Text("FAILED", "bold red")
        table.add_row(mark, *(Text(printable(part)) for part in (check.statement, check.value, check.expected)))
    return Group(Text("Checks", "bold"), table)


def plot_lines(plot: Plot) -> list[str]:
    """Return lines of characters: a marker for each line of the plot, the range of both axes, and a legend."""
    points = [point for line in plot.lines.values() for point in line]
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]
    for marker, line in zip(MARKERS, plot.lines.values(), strict=False):
        for x, y in line:
            column = round((x - left) / (right - left or 1) * (WIDTH - 1))
            row = round((y - low) / (high - low or 1) * (HEIGHT - 1))
            grid[HEIGHT - 1 - row][column] = marker
    names = {0: f"{high:.4g}", HEIGHT - 1: f"{low:.4g}"}
    margin = max(map(len, names.values()))
    lines = [f"{names.get(number, ''):>{margin}} |{''.join(row).rstrip()}" for number, row in enumerate(grid)]
    start, end = f"{left:.4g}", f"{right:.4g}"
    legend = "   ".join(f"{marker} {name}" for marker, name in zip(MARKERS, plot.lines, strict=False))
    return [
        f"{plot.y_label}",
        *lines,
        f"{' ' * margin} +{'-' * WIDTH}",
        f"{' ' * margin}  {start}{plot.x_label:^{WIDTH - len(start) - len(end)}}{end}",
        legend,
    ]


def _heat_lines(item: Heat, width: int) -> list[str]:
    """Return a matrix as shades, one character for each group of columns that must share it."""
    columns = min(item.values.shape[1], max(width - 2, 1), 128)
    reduced = F.adaptive_avg_pool1d(item.values[:, None], columns)[:, 0]
    low, high = item.values.min(), item.values.max()
    fractions = (reduced - low) / torch.clamp(high - low, min=1e-12)
    lines = ["".join(map(block, row)).rstrip() for row in fractions.tolist()]
    return [*lines, f"lightest {low:.3g}, darkest {high:.3g}"]
