"""Charts: a few lines over one axis, as SVG that takes its colours from the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDE, HIGH = 460, 290
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 26, 42
# One shape for each line, so that nobody needs the colours.
SHAPES = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0",
    "M-3.6-3.6h7.2v7.2h-7.2z",
    "M0-4.6L4.4 3.4h-8.8z",
    "M0-5L5 0 0 5-5 0z",
    "M-4.2-2.4L0 4.6 4.2-2.4z",
)


@dataclass(frozen=True)
class Line:
    """One line: its name, its number among the models (colour and shape), its points from left to right."""

    name: str
    number: int
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Scale:
    """A way from values to pixels, plain or logarithmic, with round values to mark."""

    low: float
    high: float
    first: float
    last: float
    logarithmic: bool = False
    marks: tuple[float, ...] = ()

    def __call__(self, value: float) -> float:
        low, high, at = self.low, self.high, value
        if self.logarithmic:
            low, high, at = math.log(low), math.log(high), math.log(value)
        share = (at - low) / (high - low) if high > low else 0.5
        return self.first + share * (self.last - self.first)


def nice(low: float, high: float, count: int = 5) -> tuple[float, ...]:
    """Round values from below the lowest to above the highest."""
    span = max(high - low, 1e-9)
    size = 10.0 ** math.floor(math.log10(span / count))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if span / (size * factor) <= count)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(round(number * step, 10) for number in range(first, max(last, first + 1) + 1))


def chart(
    title: str,
    lines: Sequence[Line],
    across: str,
    up: str,
    *,
    marks: Sequence[float] = (),
    logarithmic: bool = False,
    most: float | None = None,
) -> str:
    """A chart; `marks` are the values named along the bottom, which is logarithmic with them if asked for."""
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points]
    if not xs:
        return '<p class="none">Nothing to draw yet.</p>'
    below = tuple(marks) or nice(0.0 if not logarithmic else min(xs), max(xs))
    if logarithmic and not marks:
        first, last = math.floor(math.log10(min(xs))), math.ceil(math.log10(max(xs)))
        below = tuple(10.0**power for power in range(first, last + 1))
    beside = nice(min(0.0, min(ys)) if most is not None or min(ys) < 0.5 * max(ys) else min(ys), most or max(ys))
    x = Scale(below[0], below[-1], LEFT, WIDE - RIGHT, logarithmic, below)
    y = Scale(beside[0], beside[-1], HIGH - BOTTOM, TOP, marks=beside)
    told = f"{len(lines)} lines: {up} against {across}; the table below holds the numbers"
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDE} {HIGH}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title><desc>{escape(told)}</desc>",
        f'<text class="axis" x="0" y="12">{escape(up)}</text>',
        f'<text class="axis" x="{WIDE - RIGHT}" y="{HIGH - 6}" text-anchor="end">{escape(across)}</text>',
        *(_grid(y(value), value) for value in y.marks),
        *(_mark(x(value), HIGH - BOTTOM + 17, "middle", value) for value in x.marks),
    ]
    return "".join([*parts, *(_line(line, x, y) for line in lines), "</svg>"])


def _grid(y: float, value: float) -> str:
    return f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDE - RIGHT}"/>{_mark(LEFT - 8, y + 4, "end", value)}'


def _mark(x: float, y: float, anchor: str, value: float) -> str:
    return f'<text class="mark" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{number(value)}</text>'


def _line(line: Line, x: Scale, y: Scale) -> str:
    places = [(x(one), y(other)) for one, other in line.points]
    path = "M" + "L".join(f"{one:.1f} {other:.1f}" for one, other in places)
    many = len(places) > 40  # a shape for each would hide the line
    shapes = "".join(
        f'<path class="dot" transform="translate({one:.1f} {other:.1f})" d="{SHAPES[line.number]}">'
        f"<title>{escape(line.name)}: {number(line.points[at][0])}, {number(line.points[at][1])}</title></path>"
        for at, (one, other) in enumerate(places)
        if not many or at == len(places) - 1
    )
    return f'<g class="s{line.number}"><path class="line" d="{path}"/>{shapes}</g>'


def legend(names: Sequence[tuple[int, str]]) -> str:
    """Which colour and shape is which line."""
    items = "".join(
        f'<li class="s{at}"><svg width="26" height="14" aria-hidden="true"><path class="line" d="M1 7H25"/>'
        f'<path class="dot" transform="translate(13 7)" d="{SHAPES[at]}"/></svg>{escape(name)}</li>'
        for at, name in names
    )
    return f'<ul class="legend">{items}</ul>'


def strip(title: str, shares: Sequence[float]) -> str:
    """A row of cells, darker for a greater share; six powers of ten from white to full."""
    top = max(shares, default=0.0)
    cells = []
    for at, share in enumerate(shares):
        dark = max(0.0, 1 + math.log10(share / top) / 6) if share > 0 else 0.0
        cells.append(f'<rect x="{4 * at}" width="4" height="14" fill-opacity="{dark:.3g}"/>')
    return (
        f'<svg class="strip" viewBox="0 0 {4 * len(shares)} 14" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title>{"".join(cells)}</svg>'
    )


def number(value: float) -> str:
    """A number as short as it can be read: 1,000, 12.5, 0.5M."""
    if abs(value) >= 1e5:
        return f"{value / 1e6:.4g}M"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"
