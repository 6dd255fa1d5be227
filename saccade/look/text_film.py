"""A film of attention between words: a frame for each query, its keys coloured by their weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from saccade.core import AttentionMap
from saccade.look import ramps
from saccade.look.draw import scale_text
from saccade.look.fonts import text_mask
from saccade.look.labels import truncate, visible
from saccade.look.maps import is_self_attention
from saccade.look.overlay import OverlayStyle
from saccade.metrics.alignment import head_weights

if TYPE_CHECKING:
    from PIL import Image

WIDTH, EDGE, GAP = 960, 28, 8  # pixels
TEXT, SMALL, TITLE = 24, 14, 18
LABEL = 24  # cells of the longest label
PAPER, INK, SOFT, MARK = (255, 255, 255), (27, 31, 36), (87, 96, 108), (122, 15, 10)
LINE = round(1.5 * TEXT) + round(1.5 * SMALL) + GAP
SCALE = 160  # pixels of the colour scale
SHOWN = 0.01  # the smallest weight that is written
LIGHT = 0.179  # luminance above which black is read better than white
Box = tuple[int, int, int]
"""left, top and width of a token"""


@dataclass(frozen=True)
class Layout:
    """Where the tokens of one axis are."""

    labels: tuple[Image.Image, ...]
    boxes: tuple[Box, ...]
    bottom: int


def text_frames(attention: AttentionMap, title: str, style: OverlayStyle) -> Iterator[Image.Image]:
    """Yield the frames of a map with one head; the colours are those of its matrix."""
    weights, levels = head_weights(attention), ramps.levels(head_weights(attention), sqrt=style.sqrt)
    colours, top = ramps.colours(), EDGE + (round(1.5 * TITLE) + GAP if title else 0)
    same = is_self_attention(attention)
    queries = None if same else _layout(attention.queries.labels, top)
    keys = _layout(attention.keys.labels, top if queries is None else queries.bottom + 2 * GAP)
    base = _base(title, float(weights.max()), keys.bottom, style)
    rows = zip(weights.tolist(), levels.tolist(), strict=True)
    for number, (values, shades) in enumerate(rows):
        canvas = base.copy()
        if queries is not None:
            for at in range(len(queries.boxes)):
                _draw(canvas, queries, at, PAPER, "", marked=at == number)
        for at, (value, level) in enumerate(zip(values, shades, strict=True)):
            written = f"{value:.2f}" if value >= SHOWN else ""
            _draw(canvas, keys, at, colours[level], written, marked=same and at == number)
        yield canvas


def _layout(labels: Sequence[str], top: int) -> Layout:
    """Set tokens in lines."""
    masks = tuple(text_mask(truncate(visible(label), LABEL), TEXT) for label in labels)
    boxes, x, y = [], EDGE, top
    for mask in masks:
        width = max(mask.width, 2 * TEXT) + 2 * GAP
        if x + width > WIDTH - EDGE and x > EDGE:
            x, y = EDGE, y + LINE
        boxes.append((x, y, width))
        x += width + GAP // 2
    return Layout(masks, tuple(boxes), y + LINE)


def _base(title: str, largest: float, bottom: int, style: OverlayStyle) -> Image.Image:
    """Return what all frames share: the title above and the colour scale below."""
    from PIL import Image

    canvas = Image.new("RGB", (WIDTH, bottom + 2 * TEXT + EDGE), PAPER)
    if title:
        mask = text_mask(visible(title), TITLE)
        canvas.paste(INK, (EDGE, EDGE // 2), mask.crop((0, 0, min(mask.width, WIDTH - 2 * EDGE), mask.height)))
    colours, x = ramps.colours(), EDGE + 24
    for step, level in enumerate(ramps.scale(sqrt=style.sqrt, steps=SCALE)):
        canvas.paste(colours[level], (x + step, bottom + GAP, x + step + 1, bottom + GAP + TEXT))
    canvas.paste(SOFT, (EDGE, bottom + GAP), text_mask("0", SMALL))
    canvas.paste(SOFT, (x + SCALE + GAP, bottom + GAP), text_mask(scale_text(largest, sqrt=style.sqrt), SMALL))
    return canvas


def _draw(canvas: Image.Image, layout: Layout, at: int, colour: Sequence[int], written: str, *, marked: bool) -> None:
    """Draw one token: its label on its colour, its weight below; the query has a frame."""
    from PIL import ImageDraw

    (x, y, width), mask = layout.boxes[at], layout.labels[at]
    height = round(1.5 * TEXT)
    pen = ImageDraw.Draw(canvas)
    pen.rounded_rectangle((x, y, x + width, y + height), 6, fill=tuple(colour))
    if marked:
        pen.rounded_rectangle((x, y, x + width, y + height), 6, outline=MARK, width=4)
    ink = INK if luminance(colour) > LIGHT else PAPER
    canvas.paste(ink, (x + (width - mask.width) // 2, y), mask)
    if written:
        below = text_mask(written, SMALL)
        canvas.paste(SOFT, (x + (width - below.width) // 2, y + height), below)


def luminance(colour: Sequence[int]) -> float:
    """Return the relative luminance of a colour (WCAG), as the pages do."""
    linear = [part / 3294 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
