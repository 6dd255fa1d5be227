"""Attention along the edges of a graph: the graph drawn with its edges as strong as their weights, as SVG or PNG.

An edge between two nodes is two curves, one for each direction: that of the weight of node a for node b runs from b to
a and bends to the left. The weight of a node for itself is the colour of the node, its predicted label that of its rim.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from torch import Tensor

from saccade.core import AttentionMap, NodeAxis
from saccade.look.fonts import text_mask
from saccade.look.labels import truncate, visible
from saccade.metrics.alignment import head_weights

if TYPE_CHECKING:
    from PIL import Image

SIDE, MARGIN, HEAD = 720, 46, 34  # pixels of the drawing, around it and above it
LABELLED = 80  # nodes of a graph whose nodes have their names beside them
LABEL = 12  # cells of the longest name
BEND = 0.08  # of an edge, as a fraction of its length
SMALLEST = 0.02  # of the largest weight; a smaller one is drawn as an edge without weight
PAPER, INK, PLAIN, SHADE = (255, 255, 255), (27, 31, 36), (205, 209, 214), (26, 86, 196)
RIMS = ((179, 89, 0), (0, 121, 107), (142, 36, 170), (93, 109, 0), (173, 20, 87))  # of predicted labels
RIM = 3  # pixels
SCALE = 2  # pixels of a PNG for each pixel of an SVG
STYLE = """
svg{color:#1b1f24;background:#fff;font:11px system-ui,"Noto Sans","Noto Sans CJK SC",sans-serif}
text{fill:currentColor}.e{stroke:currentColor;stroke-opacity:.18;fill:none}.a{stroke:#1a56c4;fill:none}
.n{fill:#fff;stroke:currentColor;stroke-opacity:.7}.w{fill:#1a56c4;stroke:none}
@media(prefers-color-scheme:dark){svg{color:#e6e8eb;background:#15181c}.a{stroke:#6db1ff}.w{fill:#6db1ff}.n{fill:#15181c}}
"""

Point = tuple[float, float]


@dataclass(frozen=True)
class Arc:
    """The weight of one node for a neighbour, drawn from the neighbour to the node."""

    query: int
    key: int
    weight: float


@dataclass(frozen=True)
class Drawing:
    """Where the nodes are, their radius, and the weights along edges, the smallest first."""

    axis: NodeAxis
    points: list[Point]
    radius: float
    arcs: list[Arc]
    own: list[float]
    """weight of each node for itself"""
    largest: float
    rims: dict[str, tuple[int, int, int]]
    """colour of each predicted label; empty: there are none, or more than colours"""

    def name(self, node: int) -> str:
        """Return what is written beside a node: its name, and its predicted label where that has no colour."""
        label, tags = self.axis.labels[node], self.axis.tags
        return truncate(visible(f"{label} {tags[node]}" if tags and not self.rims else label), LABEL)

    def curve(self, arc: Arc) -> tuple[Point, Point, Point]:
        """Return start, control point and end of the curve of an arc."""
        (x0, y0), (x1, y1) = self.points[arc.key], self.points[arc.query]
        middle = ((x0 + x1) / 2 + BEND * (y1 - y0), (y0 + y1) / 2 - BEND * (x1 - x0))
        return (x0, y0), middle, (x1, y1)

    def strength(self, weight: float) -> float:
        return min(1.0, weight / self.largest) if self.largest > 0 else 0.0


def is_graph(attention: AttentionMap) -> bool:
    """Whether a map is over the nodes of a graph whose positions are known."""
    return isinstance(attention.keys, NodeAxis) and len(attention.keys.positions) == len(attention.keys) > 0


def drawing(attention: AttentionMap) -> Drawing:
    """Return the drawing of a map with one head."""
    axis = attention.keys
    if not isinstance(axis, NodeAxis):
        raise ValueError(f"'{attention.name}' must have nodes as keys, but has keys of {axis.kind}")
    weights: Tensor = head_weights(attention).cpu()
    inner = SIDE - 2 * MARGIN
    points = [(MARGIN + x * inner, HEAD + MARGIN + y * inner) for x, y in axis.positions]
    pairs = dict.fromkeys(pair for a, b in axis.edges if a != b for pair in ((a, b), (b, a)))
    arcs = [Arc(query, key, float(weights[query, key])) for query, key in pairs]
    own = weights.diagonal().tolist()
    largest = max([arc.weight for arc in arcs] + own, default=0.0)
    radius = max(3.0, min(13.0, 150 / math.sqrt(len(points))))
    tags = sorted(set(axis.tags))
    rims = dict(zip(tags, RIMS, strict=False)) if len(tags) <= len(RIMS) else {}
    return Drawing(axis, points, radius, sorted(arcs, key=lambda arc: arc.weight), own, largest, rims)


def svg(attention: AttentionMap, title: str = "") -> str:
    """Return a graph as a self-contained SVG: every edge and node names its nodes and its weight."""
    figure, names = drawing(attention), [visible(label) for label in attention.keys.labels]
    name = escape(visible(title or f"Attention {attention.name}"))
    about = f"{len(names)} nodes, {len(figure.axis.edges)} edges; the largest weight is {figure.largest:.2f}"
    height = SIDE + HEAD
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIDE} {height}" width="{SIDE}" height="{height}" '
        f'role="img" aria-label="{name}"><title>{name}</title><desc>{about}</desc><style>{STYLE}</style>'
        f'<text x="12" y="22" font-size="13" font-weight="600">{escape(truncate(visible(title), SIDE // 8))}</text>'
    ]
    for a, b in figure.axis.edges:
        (x0, y0), (x1, y1) = figure.points[a], figure.points[b]
        parts.append(f'<path class="e" d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}"/>')
    for arc in figure.arcs:
        strength = figure.strength(arc.weight)
        if strength < SMALLEST:
            continue
        (x0, y0), (cx, cy), (x1, y1) = figure.curve(arc)
        tip = escape(f"{names[arc.query]} <- {names[arc.key]}: {arc.weight:.3f}")
        parts.append(
            f'<path class="a" d="M{x0:.1f} {y0:.1f}Q{cx:.1f} {cy:.1f} {x1:.1f} {y1:.1f}" '
            f'stroke-opacity="{strength:.3g}" stroke-width="{1 + 3 * strength:.2f}"><title>{tip}</title></path>'
        )
    for node, ((x, y), weight, label) in enumerate(zip(figure.points, figure.own, names, strict=True)):
        circle = f'cx="{x:.1f}" cy="{y:.1f}" r="{figure.radius:.1f}"'
        tag = f", predicted {visible(figure.axis.tags[node])}" if figure.axis.tags else ""
        tip = escape(f"{label} <- itself: {weight:.3f}{tag}")
        rim = f' style="stroke:{_hex(figure.rims[figure.axis.tags[node]])}" stroke-width="{RIM}"' if figure.rims else ""
        parts.append(f'<circle class="n" {circle}{rim}/>')
        parts.append(
            f'<circle class="w" {circle} fill-opacity="{figure.strength(weight):.3g}"><title>{tip}</title></circle>'
        )
        if len(names) <= LABELLED:
            text = escape(figure.name(node))
            parts.append(f'<text x="{x + figure.radius + 3:.1f}" y="{y - figure.radius:.1f}">{text}</text>')
    parts.append(_scale(figure.largest, height - 14))
    for x, tag, colour in _legend(figure):
        parts.append(f'<rect x="{x}" y="{height - 23}" width="12" height="10" fill="{_hex(colour)}"/>')
        parts.append(f'<text x="{x + 17}" y="{height - 14}">{escape(tag)}</text>')
    return "".join([*parts, "</svg>"])


def _scale(largest: float, y: int) -> str:
    """Return the colour scale from 0 to the largest weight."""
    steps = "".join(
        f'<rect class="w" x="{26 + 8 * step}" y="{y - 9}" width="8" height="10" fill-opacity="{step / 9:.2f}"/>'
        for step in range(10)
    )
    return f'<text x="12" y="{y}">0</text>{steps}<text x="112" y="{y}">{largest:.2f}</text>'


def _legend(figure: Drawing) -> list[tuple[int, str, tuple[int, int, int]]]:
    """Return where each predicted label is written below the drawing, with its colour."""
    return [
        (170 + 105 * number, truncate(visible(tag), LABEL), colour)
        for number, (tag, colour) in enumerate(figure.rims.items())
    ]


def _hex(colour: tuple[int, int, int]) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)


def image(attention: AttentionMap, title: str = "") -> Image.Image:
    """Return a graph as an image."""
    from PIL import Image, ImageDraw

    figure = drawing(attention)
    canvas = Image.new("RGB", (SIDE * SCALE, (SIDE + HEAD) * SCALE), PAPER)
    pen = ImageDraw.Draw(canvas)
    for a, b in figure.axis.edges:
        pen.line([_scaled(figure.points[a]), _scaled(figure.points[b])], fill=PLAIN, width=SCALE)
    for arc in figure.arcs:
        strength = figure.strength(arc.weight)
        if strength >= SMALLEST:
            pen.line(_samples(figure.curve(arc)), fill=_mix(strength), width=round((1 + 3 * strength) * SCALE))
    radius = figure.radius * SCALE
    for node, (point, weight) in enumerate(zip(figure.points, figure.own, strict=True)):
        x, y = _scaled(point)
        box = (x - radius, y - radius, x + radius, y + radius)
        rim = figure.rims[figure.axis.tags[node]] if figure.rims else INK
        width = (RIM if figure.rims else 1) * SCALE
        pen.ellipse(box, fill=_mix(figure.strength(weight), PAPER), outline=rim, width=width)
    if len(figure.points) <= LABELLED:
        for node, (x, y) in enumerate(figure.points):
            mask = text_mask(figure.name(node), 11 * SCALE)
            canvas.paste(INK, (round((x + figure.radius + 2) * SCALE), round((y - figure.radius - 12) * SCALE)), mask)
    bottom = (SIDE + HEAD - 24) * SCALE
    for left, tag, colour in _legend(figure):
        pen.rectangle((left * SCALE, bottom, (left + 12) * SCALE, bottom + 10 * SCALE), fill=colour)
        canvas.paste(INK, ((left + 17) * SCALE, bottom - SCALE), text_mask(tag, 11 * SCALE))
    if title:
        canvas.paste(INK, (12 * SCALE, 6 * SCALE), text_mask(truncate(visible(title), SIDE // 8), 13 * SCALE))
    return canvas


def _scaled(point: Point) -> Point:
    return point[0] * SCALE, point[1] * SCALE


def _samples(curve: tuple[Point, Point, Point], count: int = 12) -> list[Point]:
    """Return points along a quadratic curve."""
    (x0, y0), (x1, y1), (x2, y2) = map(_scaled, curve)
    points = []
    for step in range(count + 1):
        t = step / count
        a, b, c = (1 - t) ** 2, 2 * t * (1 - t), t**2
        points.append((a * x0 + b * x1 + c * x2, a * y0 + b * y1 + c * y2))
    return points


def _mix(strength: float, ground: tuple[int, int, int] = PLAIN) -> tuple[int, int, int]:
    red, green, blue = (round(low + (high - low) * strength) for low, high in zip(ground, SHADE, strict=True))
    return red, green, blue
