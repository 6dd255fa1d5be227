"""Row: a statement of the lectures, the demonstration that computes it, and the checks that it must pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from saccade.core import AttentionMap
from saccade.look.figure import AttentionFigure
from saccade.look.overlay import OverlayStyle

Value = bool | int | float | str | Tensor | Sequence["Value"] | None


@dataclass(frozen=True)
class Check:
    """A statement that was tested on computed numbers."""

    statement: str
    value: str
    expected: str
    passed: bool


@dataclass(frozen=True)
class Note:
    """A line of explanation."""

    text: str


@dataclass(frozen=True)
class Table:
    """Numbers in rows and columns."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Plot:
    """Lines over a common axis."""

    title: str
    x_label: str
    y_label: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True)
class Heat:
    """A matrix as shades."""

    title: str
    values: Tensor
    """(rows, columns)"""


@dataclass(frozen=True)
class Shown:
    """One attention map with its explanation."""

    name: str
    about: str
    attention: AttentionMap
    """(1, queries, keys)"""
    style: OverlayStyle = field(default_factory=OverlayStyle)
    """of attention over an image"""
    figure: AttentionFigure | None = None
    """the prediction that the map belongs to; a page then shows all of its maps"""


Item = Note | Table | Plot | Heat | Shown


class Demonstration:
    """What a row computes: tables, plots and maps in the order of the explanation, and the checks."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.checks: list[Check] = []

    @property
    def passed(self) -> bool:
        """Whether there are checks and all of them passed."""
        return bool(self.checks) and all(check.passed for check in self.checks)

    def note(self, text: str) -> None:
        """Add a line of explanation."""
        self.items.append(Note(text))

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[Value]]) -> None:
        """Add a table; numbers are rounded to four digits."""
        self.items.append(Table(title, tuple(columns), tuple(tuple(map(format_value, row)) for row in rows)))

    def plot(self, title: str, x_label: str, y_label: str, lines: Mapping[str, Sequence[tuple[float, float]]]) -> None:
        """Add a plot of lines, each a sequence of points."""
        self.items.append(Plot(title, x_label, y_label, lines))

    def heat(self, title: str, values: Tensor) -> None:
        """Add a matrix as shades."""
        self.items.append(Heat(title, values.detach().float()))

    def map(self, name: str, about: str, attention: AttentionMap, style: OverlayStyle = OverlayStyle()) -> None:
        """Add an attention map."""
        self.items.append(Shown(name, about, attention, style))

    def figure(self, name: str, about: str, figure: AttentionFigure) -> None:
        """Add the attention of a prediction; the page shows all of its maps."""
        self.items.append(Shown(name, about, figure.attention, figure.style, figure))

    def close(self, statement: str, value: float | Sequence[float] | Tensor, expected: Value, within: float) -> None:
        """Check that numbers are those expected, up to `within`."""
        left, right = (torch.as_tensor(side, dtype=torch.float64).detach() for side in (value, expected))
        passed = left.shape == right.shape and bool(((left - right).abs() <= within).all())
        self._add(statement, value, f"{format_value(expected)} ± {within:g}", passed)

    def same(self, statement: str, value: Tensor, expected: Tensor, within: float = 0.0) -> None:
        """Check that two tensors of many numbers agree, by their largest difference; 0: exactly."""
        if value.shape != expected.shape:
            self._add(statement, f"shape {shape(value)}", f"shape {shape(expected)}", False)
            return
        difference = (value.detach().double() - expected.detach().double()).abs().max().item()
        rule = "difference exactly 0" if within == 0 else f"difference ≤ {within:g}"
        self._add(statement, f"{difference:.2g}", rule, difference <= within)

    def equal(self, statement: str, value: Value, expected: Value) -> None:
        """Check that a value is exactly the expected one."""
        self._add(statement, value, format_value(expected), value == expected)

    def below(self, statement: str, value: float, limit: float) -> None:
        """Check that a number is below a limit."""
        self._add(statement, value, f"< {format_value(limit)}", value < limit)

    def above(self, statement: str, value: float, limit: float) -> None:
        """Check that a number is above a limit."""
        self._add(statement, value, f"> {format_value(limit)}", value > limit)

    def between(self, statement: str, value: float, low: float, high: float) -> None:
        """Check that a number is within a range."""
        self._add(statement, value, f"{format_value(low)} to {format_value(high)}", low <= value <= high)

    def holds(self, statement: str, passed: bool) -> None:
        """Check a statement that is true or false."""
        self._add(statement, "yes" if passed else "no", "yes", bool(passed))

    def raises(self, statement: str, kind: type[Exception], message: str, call: Callable[[], object]) -> None:
        """Check that a call is refused with a message."""
        try:
            call()
        except kind as error:
            self._add(statement, str(error), f"refused: {message}", message in str(error))
            return
        self._add(statement, "accepted", f"refused: {message}", False)

    def _add(self, statement: str, value: Value, expected: str, passed: bool) -> None:
        self.checks.append(Check(statement, format_value(value), expected, passed))


@dataclass(frozen=True)
class Row:
    """A statement of the lectures with its demonstration."""

    id: str
    title: str
    run: Callable[[Demonstration], None]
    seconds: float = 0.5
    """how long it takes on two cores, about"""
    needs: tuple[str, ...] = ()
    """models of the catalogue"""
    extras: tuple[str, ...] = ()
    """extras of saccade, such as images, whose packages it uses"""
    page: str = ""
    """of the studio, where the same can be tried with one's own numbers, text or model"""
    also: str = ""
    """a command that shows it at full size"""

    @property
    def command(self) -> str:
        """The command that runs the demonstration."""
        return f"saccade lectures {self.id}"

    @property
    def studio_command(self) -> str:
        """The command that serves the page of the studio."""
        return " ".join(("saccade studio", *self.needs))


def shape(value: Tensor) -> str:
    """Return the shape of a tensor as 2 x 3."""
    return " x ".join(map(str, value.shape)) or "a number"


def format_value(value: Value) -> str:
    """Return a value for a table: floats with four digits, short tensors as a list, others as their shape."""
    if isinstance(value, Tensor):
        return format_value(value.tolist()) if value.numel() <= 8 and value.dim() <= 1 else f"({shape(value)})"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if math.isfinite(value) and value == int(value) and abs(value) < 1e12:
            return f"{value:,.0f}"
        return f"{value:.4f}" if 0.01 <= abs(value) < 10 else f"{value:.4g}"
    return value if isinstance(value, str) else ", ".join(map(format_value, value))
