"""Attention over an image: for each query the weights of the cells of a grid, as text and as SVG."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from html import escape

from torch import Tensor

from saccade.core import AttentionMap, GridAxis
from saccade.core.outputs import png
from saccade.core.serialize import image_url
from saccade.look.labels import cells, truncate, visible
from saccade.look.overlay import HEAT, MARK, SMALL, OverlayStyle, fit, heat, outline, overlay, picture, scale
from saccade.look.panels import Panel, grid_of, largest_weight, left_out, panels
from saccade.look.shades import block, half_blocks, legend, ramp

AREA, LONE_AREA = 26 * 26, 52 * 52  # pixels of a panel in a terminal, and of the only panel of a figure
SMOOTH = 256  # pixels of the longer side of smoothed weights in an SVG


def terminal(attention: AttentionMap, *, width: int, colour: bool, style: OverlayStyle) -> str:
    """Return the panels of a map as text, as many side by side as fit: in colour over the image, else beside it."""
    figures, keys = panels(attention, style.at), grid_of(attention)
    if not figures or not keys.rows * keys.columns:
        return "(an empty map)"
    high, wide = _size(keys, width, LONE_AREA if len(figures) == 1 and colour else AREA)
    largest = largest_weight(figures)
    texts = [_text_panel(figure, keys, largest, (high, wide), colour, style) for figure in figures]
    if not colour and keys.image is not None:
        brightness = picture(keys, (high // 2, wide)).mean(0) / 255
        blank = [" " * wide] * (len(keys.extra))
        texts.insert(0, [_padded("image", wide), *_shaded(brightness), *blank])
    together = max(1, (width + 2) // (wide + 2))
    lines: list[str] = []
    for start in range(0, len(texts), together):
        lines += ["  ".join(parts).rstrip(" ") for parts in zip(*texts[start : start + together], strict=True)]
        lines.append("")
    hidden = left_out(attention)
    return "\n".join([*lines[:-1], *([f"({hidden})"] if hidden else []), *_legend(largest, width, colour)])


def _legend(largest: float, width: int, colour: bool) -> list[str]:
    return legend(largest, width, colour, over_image=True)


def _size(keys: GridAxis, width: int, area: int) -> tuple[int, int]:
    """Return the size (H, W) of a panel in pixels; H is even, since a character has two of them."""
    high, wide = fit(keys, area)
    if wide > width:
        high, wide = max(1, round(high * width / wide)), width
    return high + high % 2, wide


def _text_panel(
    figure: Panel, keys: GridAxis, largest: float, size: tuple[int, int], colour: bool, style: OverlayStyle
) -> list[str]:
    """Return the lines of one query, all of the same width."""
    high, wide = size
    if colour:
        pixels = overlay(keys, figure.weights, largest, size, style)
        lines = half_blocks(pixels if figure.query is None else outline(pixels, figure.query))
    else:
        lines = _shaded(scale(figure.weights, largest, (high // 2, wide), smooth=style.smooth))
    extra = [_padded(f"{truncate(name, max(1, wide - 5))} {weight:.2f}", wide) for name, weight in figure.extra]
    return [_padded(figure.label, wide), *lines, *extra]


def _shaded(fractions: Tensor) -> list[str]:
    return ["".join(map(block, row)) for row in fractions.tolist()]


def _padded(text: str, width: int) -> str:
    text = truncate(text, width)
    return text + " " * (width - cells(text))


GAP, FONT = 24, 13  # pixels
PANEL, LONE_PANEL = 180 * 180, 420 * 420  # pixels of a panel of an SVG, and of the only panel of a figure
STYLE = f"""
svg{{color:#1b1f24;background:#fff;font:13px system-ui,"Noto Sans","Noto Sans CJK SC",sans-serif}}
text{{fill:currentColor}}.f{{fill:none;stroke:currentColor;stroke-opacity:.35}}
.q{{fill:none;stroke:rgb{MARK};stroke-width:2}}.b{{image-rendering:pixelated}}
@media(prefers-color-scheme:dark){{svg{{color:#e6e8eb;background:#15181c}}}}
"""


@dataclass(frozen=True)
class SvgGrid:
    """What all panels of an SVG share."""

    keys: GridAxis
    largest: float
    high: int
    wide: int
    style: OverlayStyle


def svg(attention: AttentionMap, title: str, style: OverlayStyle, *, across: int = 6) -> str:
    """Return the panels of a map as an SVG: the image, each cell as strong as its weight; cells name their weight."""
    figures, keys = panels(attention, style.at), grid_of(attention)
    high, wide = fit(keys, LONE_PANEL if len(figures) == 1 else PANEL)
    columns = max(1, min(across, len(figures)))
    lines = -(-len(figures) // columns)
    below = (FONT + 4) * (len(keys.extra) + 1)
    width = GAP + columns * (wide + GAP)
    head = 2 * FONT if title else 0
    height = GAP + head + lines * (high + GAP + below)
    largest = largest_weight(figures)
    name = escape(visible(title or f"Attention {attention.name}"))
    shown = left_out(attention) or f"{len(figures)} queries"
    about = f"{shown} over a grid of {keys.rows} x {keys.columns} cells; the largest weight is {largest:.2f}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{name}"><title>{name}</title><desc>{about}</desc><style>{STYLE}</style>'
    ]
    if keys.image is not None:
        coarse = 'class="b" ' if max(keys.image.shape[1:]) < SMALL else ""
        place = f'{coarse}width="{wide}" height="{high}" preserveAspectRatio="none"'
        image = f'<image id="image" {place} href="{image_url(keys.image)}"/>'
        parts.append(f"<defs>{image}</defs>")
    if title:
        shown = escape(truncate(visible(title), width // 8))
        parts.append(f'<text x="{GAP}" y="{FONT + 8}" font-weight="600">{shown}</text>')
    grid = SvgGrid(keys, largest, high, wide, style)
    for number, figure in enumerate(figures):
        x = GAP + (number % columns) * (wide + GAP)
        y = GAP + head + (number // columns) * (high + GAP + below)
        parts += [f'<g transform="translate({x} {y})">', *_svg_panel(figure, grid), "</g>"]
    return "".join([*parts, "</svg>"])


def _svg_panel(figure: Panel, grid: SvgGrid) -> list[str]:
    """Return the elements of one query."""
    high, wide = grid.high, grid.wide
    parts = ['<use href="#image"/>' if grid.keys.image is not None else ""]
    if grid.style.smooth:
        longer = max(high, wide)
        size = (max(1, high * SMOOTH // longer), max(1, wide * SMOOTH // longer))
        encoded = png(heat(figure.weights, grid.largest, size, grid.style))
        url = f"data:image/png;base64,{base64.b64encode(encoded).decode()}"
        parts.append(f'<image href="{url}" width="{wide}" height="{high}" preserveAspectRatio="none"/>')
    parts += [f'<rect class="f" width="{wide}" height="{high}"/>', *_svg_cells(figure, grid)]
    if figure.query is not None:
        top, left, bottom, right = figure.query
        box = f'x="{left * wide:.1f}" y="{top * high:.1f}" width="{(right - left) * wide:.1f}"'
        parts.append(f'<rect class="q" {box} height="{(bottom - top) * high:.1f}"/>')
    lines = [figure.label, *(f"{name} {weight:.2f}" for name, weight in figure.extra)]
    parts += [
        f'<text y="{high + (FONT + 4) * (number + 1)}">{escape(truncate(line, max(wide // 8, 4)))}</text>'
        for number, line in enumerate(lines)
    ]
    return parts


def _svg_cells(figure: Panel, grid: SvgGrid) -> list[str]:
    """Return a rectangle for each cell that names its weight; where weights are smooth it is transparent."""
    rows, columns = figure.weights.shape
    high, wide = grid.high / max(rows, 1), grid.wide / max(columns, 1)
    parts = []
    for row, weights in enumerate(figure.weights.tolist()):
        for column, weight in enumerate(weights):
            fraction = weight / grid.largest if grid.largest > 0 and not grid.style.smooth else 0.0
            name = f"{escape(figure.label)} &lt;- {row},{column}: {weight:.2f}"
            parts.append(
                f'<rect x="{column * wide:.1f}" y="{row * high:.1f}" width="{wide:.1f}" height="{high:.1f}" '
                f'fill="rgb{ramp(fraction, HEAT)}" fill-opacity="{grid.style.opacity * fraction:.3g}">'
                f"<title>{name}</title></rect>"
            )
    return parts
