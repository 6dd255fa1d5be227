"""Figures of one map with one head: text for the terminal and SVG; the axis class of the keys chooses the view."""

import math
from collections.abc import Sequence
from html import escape

from torch import Tensor

from saccade.core import AttentionMap, GridAxis, TimeAxis
from saccade.look import graphs, grids, ramps, spectrogram
from saccade.look.labels import align_right, cells, clusters, truncate, visible
from saccade.look.overlay import OverlayStyle
from saccade.look.shades import legend, shaded_row
from saccade.look.times import is_over_time
from saccade.metrics.alignment import head_weights

TITLE = 100  # cells of the longest title that a figure is widened for
LABEL, TALL = 20, 14  # cells of the longest row label and of the tallest column label
LISTED = 3  # keys of each query in the list
SMALLEST = 0.05  # smaller weights are not listed


def terminal(attention: AttentionMap, *, width: int, colour: bool, style: OverlayStyle = OverlayStyle()) -> str:
    """Return a map as text: queries as rows, keys as columns; a list of the largest weights where that is too wide."""
    if isinstance(attention.keys, GridAxis):
        return grids.terminal(attention, width=width, colour=colour, style=style)
    if is_over_time(attention):
        return spectrogram.terminal(attention)
    weights = head_weights(attention)
    rows, columns = ([visible(label) for label in axis.labels] for axis in (attention.queries, attention.keys))
    if not rows or not columns:
        return "(an empty map)"
    left = min(max(cells(label) for label in rows), LABEL, width - 2 * len(columns) - 1)
    if left < min(max(cells(label) for label in rows), 6):
        return "\n".join(_list(weights, rows, columns, width))
    largest = float(weights.max())
    lines = [" " * (left + 1) + line for line in _upright(columns)]
    for label, row in zip(rows, weights.tolist(), strict=True):
        shaded = shaded_row(row, largest, colour)
        lines.append(f"{align_right(label, left)} {shaded if colour else shaded.rstrip()}")
    return "\n".join([*lines, *legend(largest, width, colour)])


def _upright(labels: Sequence[str]) -> list[str]:
    """Return lines of labels written from top to bottom, two cells each, that end on the same line."""
    columns = [clusters(label) for label in labels]
    columns = [[*column[: TALL - 1], "⋮"] if len(column) > TALL else column for column in columns]
    height = max(len(column) for column in columns)
    lines = []
    for line in range(height):
        positions = [line - height + len(column) for column in columns]
        signs = [column[at] if at >= 0 else "" for column, at in zip(columns, positions, strict=True)]
        lines.append("".join(sign + " " * (2 - cells(sign)) for sign in signs).rstrip())
    return lines


def _list(weights: Tensor, rows: Sequence[str], columns: Sequence[str], width: int) -> list[str]:
    """Return 'token <- token 0.83, token 0.11' for each query."""
    left = min(max(cells(label) for label in rows), LABEL, max(width // 3, 1))
    lines = []
    for label, row in zip(rows, weights, strict=True):
        line = f"{align_right(label, left)} <-"
        values, keys = row.topk(min(LISTED, len(columns)))
        for number, (value, key) in enumerate(zip(values.tolist(), keys.tolist(), strict=True)):
            ahead = line + (", " if number else " ")
            room = width - cells(ahead) - 5  # for the weight
            if value < SMALLEST or (number and cells(columns[key]) > room):
                break
            line = f"{ahead}{truncate(columns[key], min(max(room, 1), LABEL))} {value:.2f}"
        lines.append(truncate(line, width))
    return lines


CELL, FONT = 28, 13  # pixels
CHARACTER = 0.62 * FONT  # width of one cell of text
SLANT = math.radians(60)
STYLE = """
svg{color:#1b1f24;background:#fff;font:13px system-ui,"Noto Sans","Noto Sans CJK SC",sans-serif}
text{fill:currentColor}.f{fill:none;stroke:currentColor;stroke-opacity:.35}
@media(prefers-color-scheme:dark){svg{color:#e6e8eb;background:#15181c}}
"""


def svg(attention: AttentionMap, title: str = "", style: OverlayStyle = OverlayStyle()) -> str:
    """Return a map as a self-contained SVG: every cell names its tokens and its weight, screen readers get a title."""
    if isinstance(attention.keys, GridAxis):
        return grids.svg(attention, title, style)
    if graphs.is_graph(attention):
        return graphs.svg(attention, title)
    if isinstance(attention.keys, TimeAxis):
        return spectrogram.svg(attention, title)
    weights = head_weights(attention)
    rows, columns = ([visible(label) for label in axis.labels] for axis in (attention.queries, attention.keys))
    left, high = extent(rows, 1.0) + 12, extent(columns, math.sin(SLANT)) + 16
    across, down = CELL * len(columns), CELL * len(rows)
    head = FONT * 2 if title else 0
    width, height = left + across + extent(columns, math.cos(SLANT)) + 16, head + high + down + 64
    caption = f"Attention weights of {len(rows)} queries (rows) and {len(columns)} keys (columns)"
    width = max(width, 8 * min(cells(title), TITLE) + 24, left + 7.3 * len(caption))
    largest, levels = float(weights.max()) if weights.numel() else 0.0, ramps.levels(weights, sqrt=style.sqrt)
    name = escape(visible(title or f"Attention {attention.name}"))
    about = f"{len(rows)} queries (rows) and {len(columns)} keys (columns); the largest weight is {largest:.2f}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" aria-label="{name}"><title>{name}</title><desc>{about}</desc>'
        f"<style>{STYLE}{ramps.css()}</style>"
    ]
    if title:
        text = escape(truncate(visible(title), int(width / 8)))
        parts.append(f'<text x="12" y="{FONT + 8}" font-weight="600">{text}</text>')
    parts.append(f'<g transform="translate({left:.0f} {head + high:.0f})">')
    for number, label in enumerate(columns):
        x = (number + 0.5) * CELL
        parts.append(label_text(label, f'transform="translate({x:.1f} -6) rotate(-60)" dominant-baseline="central"'))
    for number, label in enumerate(rows):
        y = (number + 0.5) * CELL
        parts.append(label_text(label, f'x="-8" y="{y:.1f}" text-anchor="end" dominant-baseline="central"'))
    parts.append(f'<rect class="f" width="{across}" height="{down}"/>')
    for line, cells_of_row in enumerate(zip(weights.tolist(), levels.tolist(), strict=True)):
        parts += [
            _cell(line, number, level, f"{rows[line]} <- {columns[number]}: {weight:.2f}")
            for number, (weight, level) in enumerate(zip(*cells_of_row, strict=True))
        ]
    parts.append(_scale(down + 16, largest, sqrt=style.sqrt))
    parts.append(f'<text y="{down + 49}">{caption}</text>')
    return "".join([*parts, "</g></svg>"])


def extent(labels: Sequence[str], factor: float) -> float:
    """Return the pixels that the longest label takes along one side."""
    return max((cells(truncate(label, LABEL)) for label in labels), default=0) * CHARACTER * factor


def label_text(label: str, position: str) -> str:
    tooltip = f"<title>{escape(label)}</title>" if cells(label) > LABEL else ""
    return f"<text {position}>{tooltip}{escape(truncate(label, LABEL))}</text>"


def _cell(row: int, column: int, level: int, name: str) -> str:
    return (
        f'<rect class="l{level}" x="{column * CELL + 1}" y="{row * CELL + 1}" width="{CELL - 2}" height="{CELL - 2}">'
        f"<title>{escape(name)}</title></rect>"
    )


def _scale(y: int, largest: float, *, sqrt: bool) -> str:
    """Return the colour scale from 0 to the largest weight."""
    steps = "".join(
        f'<rect class="l{level}" x="{16 + 3 * step}" y="{y}" width="3" height="12"/>'
        for step, level in enumerate(ramps.scale(sqrt=sqrt))
    )
    return f'<text y="{y + 11}">0</text>{steps}<text x="118" y="{y + 11}">{scale_text(largest, sqrt=sqrt)}</text>'


def scale_text(largest: float, *, sqrt: bool) -> str:
    """Return what stands at the end of a colour scale."""
    return f"{largest:.2g}{' (square-root colours)' if sqrt else ''}"
