"""Attention over an image: for each query the weights of the cells of a grid, as text and as SVG."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from torch import Tensor

from saccade.core import AttentionMap, GridAxis
from saccade.core.serialize import image_url
from saccade.look.labels import cells, truncate, visible
from saccade.look.shades import legend, shaded_row
from saccade.metrics.alignment import head_weights

CELL, GAP, FONT = 28, 24, 13  # pixels
MOST = 64  # panels of a figure


@dataclass(frozen=True)
class Panel:
    """The weights of one query over a grid."""

    label: str
    weights: Tensor  # (rows, columns)
    extra: tuple[tuple[str, float], ...]
    """weights of the positions before the grid, such as a class token"""


def panels(attention: AttentionMap) -> list[Panel]:
    """Return a panel for each query; cells of a grid of queries are shown by their mean."""
    weights, keys, queries = head_weights(attention), attention.keys, attention.queries
    if not isinstance(keys, GridAxis):
        raise ValueError(f"'{attention.name}' must have keys on a grid, but has keys of {keys.kind}")
    rows = [(label, row) for label, row in zip(queries.labels, weights, strict=True)]
    if isinstance(queries, GridAxis) and queries.rows * queries.columns:
        first = len(queries.extra)
        rows = [*rows[:first], (f"mean of {len(queries) - first} cells", weights[first:].mean(0))]
    return [_panel(label, row, keys) for label, row in rows[:MOST]]


def _panel(label: str, row: Tensor, keys: GridAxis) -> Panel:
    first = len(keys.extra)
    extra = tuple(zip(keys.extra, row[:first].tolist(), strict=True))
    return Panel(visible(label), row[first:].reshape(keys.rows, keys.columns), extra)


def terminal(attention: AttentionMap, *, width: int, colour: bool) -> str:
    """Return the panels of a map as text, as many side by side as fit."""
    figures = panels(attention)
    keys = attention.keys
    if not figures or not isinstance(keys, GridAxis) or not keys.rows * keys.columns:
        return "(an empty map)"
    wide = 2 * keys.columns
    if wide > width:
        return f"(a grid of {keys.columns} columns is too wide for {width} characters)"
    largest = max(float(figure.weights.max()) for figure in figures)
    together = max(1, (width + 2) // (wide + 2))
    lines: list[str] = []
    for start in range(0, len(figures), together):
        group = figures[start : start + together]
        lines.append("  ".join(_padded(figure.label, wide) for figure in group).rstrip())
        for row in range(keys.rows):
            shaded = [shaded_row(figure.weights[row].tolist(), largest, colour) for figure in group]
            lines.append("  ".join(shaded).rstrip(" "))
        for number, name in enumerate(keys.extra):
            values = (f"{truncate(visible(name), wide - 5)} {figure.extra[number][1]:.2f}" for figure in group)
            lines.append("  ".join(_padded(value, wide) for value in values).rstrip())
        lines.append("")
    return "\n".join([*lines[:-1], *legend(largest, width, colour)])


def _padded(text: str, width: int) -> str:
    text = truncate(text, width)
    return text + " " * (width - cells(text))


STYLE = """
svg{color:#1b1f24;background:#fff;font:13px system-ui,"Noto Sans","Noto Sans CJK SC",sans-serif}
text{fill:currentColor}.w{fill:#d02a1e}.f{fill:none;stroke:currentColor;stroke-opacity:.35}image{image-rendering:pixelated}
@media(prefers-color-scheme:dark){svg{color:#e6e8eb;background:#15181c}}
"""


def svg(attention: AttentionMap, title: str = "", *, across: int = 6) -> str:
    """Return the panels of a map as an SVG: the image, each cell as strong as its weight; cells name their weight."""
    figures, keys = panels(attention), attention.keys
    assert isinstance(keys, GridAxis)
    wide, high = CELL * keys.columns, CELL * keys.rows
    columns = max(1, min(across, len(figures)))
    lines = -(-len(figures) // columns)
    below = FONT * (len(keys.extra) + 1)
    width = GAP + columns * (wide + GAP)
    head = 2 * FONT if title else 0
    height = GAP + head + lines * (high + GAP + below)
    largest = max((float(figure.weights.max()) for figure in figures if figure.weights.numel()), default=0.0)
    name = escape(visible(title or f"Attention {attention.name}"))
    about = (
        f"{len(figures)} queries over a grid of {keys.rows} x {keys.columns} cells; the largest weight is {largest:.2f}"
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{name}"><title>{name}</title><desc>{about}</desc><style>{STYLE}</style>'
    ]
    if title:
        shown = escape(truncate(visible(title), width // 8))
        parts.append(f'<text x="{GAP}" y="{FONT + 8}" font-weight="600">{shown}</text>')
    url = "" if keys.image is None else image_url(keys.image)
    for number, figure in enumerate(figures):
        x = GAP + (number % columns) * (wide + GAP)
        y = GAP + head + (number // columns) * (high + GAP + below)
        parts += [f'<g transform="translate({x} {y})">', *_svg_panel(figure, url, largest, wide, high), "</g>"]
    return "".join([*parts, "</svg>"])


def _svg_panel(figure: Panel, url: str, largest: float, wide: int, high: int) -> list[str]:
    """Return the elements of one query."""
    image = f'<image href="{url}" width="{wide}" height="{high}" preserveAspectRatio="none"/>' if url else ""
    parts = [image, f'<rect class="f" width="{wide}" height="{high}"/>']
    for row, weights in enumerate(figure.weights.tolist()):
        for column, weight in enumerate(weights):
            opacity = 0.75 * weight / largest if largest > 0 else 0.0
            name = f"{escape(figure.label)} &lt;- {row},{column}: {weight:.2f}"
            parts.append(
                f'<rect class="w" x="{column * CELL}" y="{row * CELL}" width="{CELL}" height="{CELL}" '
                f'fill-opacity="{opacity:.3g}"><title>{name}</title></rect>'
            )
    lines = [figure.label, *(f"{visible(name)} {weight:.2f}" for name, weight in figure.extra)]
    parts += [
        f'<text y="{high + FONT * (number + 1) + 2}">{escape(truncate(line, max(wide // 8, 4)))}</text>'
        for number, line in enumerate(lines)
    ]
    return parts
