"""Line charts as SVG; colours come from the style sheet of the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 460, 290
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 26, 42
# One marker for each line, so that the chart can be read without colours.
MARKERS = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0",
    "M-3.6-3.6h7.2v7.2h-7.2z",
    "M0-4.6L4.4 3.4h-8.8z",
    "M0-5L5 0 0 5-5 0z",
    "M-4.2-2.4L0 4.6 4.2-2.4z",
)


@dataclass(frozen=True)
class Line:
    """One line of a chart: its name, the number of its model (colour and marker), and its points from left to right."""

    name: str
    number: int
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Scale:
    """Mapping from values to pixels, linear or logarithmic, with ticks."""

    low: float
    high: float
    first: float
    last: float
    logarithmic: bool = False
    ticks: tuple[float, ...] = ()

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = math.log(low), math.log(high), math.log(value)
        fraction = (value - low) / (high - low) if high > low else 0.5
        return self.first + fraction * (self.last - self.first)


def nice_ticks(low: float, high: float, count: int = 5) -> tuple[float, ...]:
    """Return round values that enclose the range."""
    span = max(high - low, 1e-9)
    size = 10.0 ** math.floor(math.log10(span / count))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if span / (size * factor) <= count)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(round(number * step, 10) for number in range(first, max(last, first + 1) + 1))


def chart(
    title: str,
    lines: Sequence[Line],
    x_label: str,
    y_label: str,
    *,
    x_ticks: Sequence[float] = (),
    logarithmic: bool = False,
    y_max: float | None = None,
) -> str:
    """Return a chart as SVG; `logarithmic` applies to the x axis."""
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points]
    if not xs:
        return '<p class="none">No data yet.</p>'
    ticks = tuple(x_ticks) or nice_ticks(0.0 if not logarithmic else min(xs), max(xs))
    if logarithmic and not x_ticks:
        first, last = math.floor(math.log10(min(xs))), math.ceil(math.log10(max(xs)))
        ticks = tuple(10.0**power for power in range(first, last + 1))
    y_ticks = nice_ticks(
        min(0.0, min(ys)) if y_max is not None or min(ys) < 0.5 * max(ys) else min(ys), y_max or max(ys)
    )
    x = Scale(ticks[0], ticks[-1], LEFT, WIDTH - RIGHT, logarithmic, ticks)
    y = Scale(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP, ticks=y_ticks)
    description = f"{len(lines)} lines: {y_label} against {x_label}; the table below has the numbers"
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>",
        f'<text class="axis" x="0" y="12">{escape(y_label)}</text>',
        f'<text class="axis" x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end">{escape(x_label)}</text>',
        *(_grid(y(value), value) for value in y.ticks),
        *(_tick(x(value), HEIGHT - BOTTOM + 17, "middle", value) for value in x.ticks),
    ]
    return "".join([*parts, *(_line(line, x, y) for line in lines), "</svg>"])


def _grid(y: float, value: float) -> str:
    return f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>{_tick(LEFT - 8, y + 4, "end", value)}'


def _tick(x: float, y: float, anchor: str, value: float) -> str:
    return f'<text class="mark" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{number(value)}</text>'


def _line(line: Line, x: Scale, y: Scale) -> str:
    pixels = [(x(x_value), y(y_value)) for x_value, y_value in line.points]
    path = "M" + "L".join(f"{left:.1f} {top:.1f}" for left, top in pixels)
    many = len(pixels) > 40  # markers for all would hide the line
    markers = "".join(
        f'<path class="dot" transform="translate({left:.1f} {top:.1f})" d="{MARKERS[line.number]}">'
        f"<title>{escape(line.name)}: {number(line.points[at][0])}, {number(line.points[at][1])}</title></path>"
        for at, (left, top) in enumerate(pixels)
        if not many or at == len(pixels) - 1
    )
    return f'<g class="s{line.number}"><path class="line" d="{path}"/>{markers}</g>'


def legend(names: Sequence[tuple[int, str]]) -> str:
    """Return the legend: colour and marker of each line."""
    items = "".join(
        f'<li class="s{at}"><svg width="26" height="14" aria-hidden="true"><path class="line" d="M1 7H25"/>'
        f'<path class="dot" transform="translate(13 7)" d="{MARKERS[at]}"/></svg>{escape(name)}</li>'
        for at, name in names
    )
    return f'<ul class="legend">{items}</ul>'


def strip(title: str, values: Sequence[float]) -> str:
    """Return a row of cells, darker for larger values, on a logarithmic scale over six powers of ten."""
    top = max(values, default=0.0)
    cells = []
    for at, value in enumerate(values):
        opacity = max(0.0, 1 + math.log10(value / top) / 6) if value > 0 else 0.0
        cells.append(f'<rect x="{4 * at}" width="4" height="14" fill-opacity="{opacity:.3g}"/>')
    return (
        f'<svg class="strip" viewBox="0 0 {4 * len(values)} 14" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title>{"".join(cells)}</svg>'
    )


def number(value: float) -> str:
    """Format a number compactly: 1,000, 12.5, 0.5M."""
    if abs(value) >= 1e5:
        return f"{value / 1e6:.4g}M"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"
