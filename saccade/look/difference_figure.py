"""Figures of a difference: the matrix as SVG, blue and red around white, and the largest changes as text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from saccade.atomic_io import new_file
from saccade.errors import ResourceError, UsageError
from saccade.look import draw
from saccade.look.difference import Change, MapDifference
from saccade.look.labels import truncate, visible
from saccade.look.names import map_titles
from saccade.look.shades import Colour, ramp

# RdBu of ColorBrewer, which can be told apart with any colour blindness; the page Compare has the same stops.
STOPS: tuple[Colour, ...] = (
    *((5, 48, 97), (33, 102, 172), (67, 147, 195), (146, 197, 222), (209, 229, 240), (255, 255, 255)),
    *((253, 219, 199), (244, 165, 130), (214, 96, 77), (178, 24, 43), (103, 0, 31)),
)
MOST_CELLS = 2**18
GAP = "–"  # in place of the label of a position that only the other prediction has
Labels = tuple[str | None, str | None]
PATTERN = (
    '<pattern id="gap" width="6" height="6" patternUnits="userSpaceOnUse">'
    '<path d="M-1 7 7 -1" stroke="#7d8793" stroke-width="1"/></pattern>'
)


def pair_name(labels: Labels) -> str:
    """Return the label of an aligned position: `tired / wide` where the two differ."""
    first, second = (GAP if label is None else visible(label) for label in labels)
    return first if first.casefold() == second.casefold() else f"{first} / {second}"


def changes_text(changes: Sequence[Change], differences: Sequence[MapDifference]) -> str:
    """Return the largest changes as a table: difference, weights of both, query and key, layer and head."""
    by_maps = {difference.maps: difference for difference in differences}
    titles = map_titles([difference.maps[0] for difference in differences])
    lines = ["  B - A      A      B  query -> key"]
    for change in changes:
        difference = by_maps[change.maps]
        labels = difference.query_labels(change.query), difference.key_labels(change.key)
        pair = " -> ".join(pair_name(names) for names in labels)
        where = f"{titles[change.maps[0]]} · head {change.head}"
        lines.append(f"{change.difference:+7.4f} {change.before:6.4f} {change.after:6.4f}  {pair}  ({where})")
    return "\n".join(lines if changes else ["no weight differs"])


def difference_svg(difference: MapDifference, head: int | None, other: int | None, title: str) -> str:
    """Return the second weights minus the first of a head of each as a self-contained SVG; gaps are hatched."""
    size = len(difference.queries) * len(difference.keys)
    if size > MOST_CELLS:
        raise UsageError(f"a figure must have at most {MOST_CELLS:,} cells, but has {size:,}; shorten the texts")
    rows = [pair_name(difference.query_labels(at)) for at in range(len(difference.queries))]
    columns = [pair_name(difference.key_labels(at)) for at in range(len(difference.keys))]
    left, high = draw.extent(rows, 1.0) + 12, draw.extent(columns, math.sin(draw.SLANT)) + 46
    down = draw.CELL * len(rows)
    width = left + draw.CELL * len(columns) + draw.extent(columns, math.cos(draw.SLANT)) + 16
    width = max(width, 8 * min(len(title), draw.TITLE) + 24, left + 320)
    heading = escape(truncate(visible(title), int(width / 8)))
    cells, largest = _cells(difference, head, other, rows, columns)
    return "".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {high + down + 48:.0f}" '
            f'width="{width:.0f}" height="{high + down + 48:.0f}" role="img" aria-label="{heading}">'
            f"<title>{heading}</title><style>{draw.STYLE}</style><defs>{PATTERN}</defs>",
            f'<text x="12" y="{draw.FONT + 8}" font-weight="600">{heading}</text>',
            f'<g transform="translate({left:.0f} {high:.0f})">',
            *_labels(rows, columns),
            *cells,
            _scale(down + 16, largest),
            "</g></svg>",
        ]
    )


def write_difference(difference: MapDifference, head: int | None, title: str, path: Path) -> None:
    """Write the difference of a head of both as .svg."""
    if path.suffix.lower() != ".svg":
        raise UsageError(
            f"the figure of a difference must end on .svg, but is '{path}'; choose another name with --out"
        )
    figure = difference_svg(difference, head, head, title)
    try:
        with new_file(path) as file:
            file.write(figure.encode())
    except OSError as error:
        raise ResourceError(f"cannot write {path}: {error.strerror}; choose another file with --out") from error


def _labels(rows: Sequence[str], columns: Sequence[str]) -> Iterator[str]:
    for number, label in enumerate(columns):
        x = (number + 0.5) * draw.CELL
        yield draw.label_text(label, f'transform="translate({x:.1f} -6) rotate(-60)" dominant-baseline="central"')
    for number, label in enumerate(rows):
        y = (number + 0.5) * draw.CELL
        yield draw.label_text(label, f'x="-8" y="{y:.1f}" text-anchor="end" dominant-baseline="central"')


def _cells(
    difference: MapDifference, head: int | None, other: int | None, rows: Sequence[str], columns: Sequence[str]
) -> tuple[list[str], float]:
    """Return the cells, and the largest difference."""
    before, after = difference.weights(range(len(rows)), range(len(columns)), head, other)
    aligned = [[None not in pair for pair in pairs] for pairs in (difference.queries, difference.keys)]
    sides = zip(before.tolist(), after.tolist(), strict=True)
    values = [list(zip(one, two, strict=True)) for one, two in sides]
    both = [
        abs(b - a)
        for line, query in zip(values, aligned[0], strict=True)
        for (a, b), key in zip(line, aligned[1], strict=True)
        if query and key
    ]
    largest = max([*both, 1e-9])
    parts = []
    for line, row in enumerate(values):
        for number, (a, b) in enumerate(row):
            gap = not (aligned[0][line] and aligned[1][number])
            name = f"{rows[line]} -> {columns[number]}"
            text = f"{name}: only in one of them" if gap else f"{name}: A {a:.4f}, B {b:.4f}, B - A {b - a:+.4f}"
            colour = "url(#gap)" if gap else _hex((b - a) / largest)
            parts.append(_rect(number, line, colour, text))
    return parts, largest if both else 0.0


def _rect(column: int, row: int, fill: str, name: str) -> str:
    x, y, side = column * draw.CELL + 0.5, row * draw.CELL + 0.5, draw.CELL - 1
    place = f'x="{x}" y="{y}" width="{side}" height="{side}"'
    return f'<rect {place} fill="{fill}" stroke="#7d8793" stroke-opacity=".3"><title>{escape(name)}</title></rect>'


def _hex(fraction: float) -> str:
    return f"#{bytes(ramp((fraction + 1) / 2, STOPS)).hex()}"


def _scale(y: int, largest: float) -> str:
    """Return the colour scale from more in A to more in B."""
    steps = "".join(
        f'<rect x="{100 + 3 * step}" y="{y}" width="3" height="12" fill="{_hex((step - 16) / 16)}"/>'
        for step in range(33)
    )
    low, high = f"-{largest:.2f} (more in A)", f"+{largest:.2f} (more in B)"
    return f'<text x="94" y="{y + 11}" text-anchor="end">{low}</text>{steps}<text x="206" y="{y + 11}">{high}</text>'
