"""A map as a PNG: a matrix of queries and keys, or the image once for each query."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from saccade.core import AttentionMap, GridAxis, TimeAxis
from saccade.errors import UsageError
from saccade.look import graphs, ramps, spectrogram
from saccade.look.draw import scale_text
from saccade.look.fonts import SIZE, text_mask
from saccade.look.labels import truncate, visible
from saccade.look.overlay import OverlayStyle, fit, outline, overlay
from saccade.look.panels import Panel, grid_of, largest_weight, left_out, panels
from saccade.metrics.alignment import head_weights

if TYPE_CHECKING:
    from PIL import Image

CELL, EDGE, LABEL = 44, 28, 20  # pixels, and cells of the longest label
TITLE = 200  # cells of the longest title
SMALLEST, WIDEST = 4, 8000  # pixels of a cell and of the cells together
SCALE = 160  # pixels of the colour scale
PAPER, INK, FRAME = (255, 255, 255), (27, 31, 36), (150, 155, 160)
AREA, LONE_AREA = 300 * 300, 640 * 640  # pixels of a panel, and of the only panel of a figure
LINE = round(1.5 * SIZE)  # pixels of a line of text
ACROSS = 6  # panels side by side


def png(attention: AttentionMap, title: str = "", style: OverlayStyle = OverlayStyle()) -> bytes:
    """Return a map as a PNG: queries as rows, keys as columns; over the image where the keys are its cells."""
    check_pillow("a PNG")
    if isinstance(attention.keys, TimeAxis):
        return spectrogram.png(attention, title)
    if isinstance(attention.keys, GridAxis):
        image = _panels(attention, title, style)
    else:
        image = (
            graphs.image(attention, title) if graphs.is_graph(attention) else _matrix(attention, title, sqrt=style.sqrt)
        )
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def check_pillow(what: str) -> None:
    """Raise with the install command if Pillow is missing."""
    try:
        import PIL  # noqa: F401
    except ImportError as error:
        raise UsageError(f"{what} needs Pillow, which is not installed: pip install 'saccade[images]'") from error


def to_image(pixels: Tensor) -> Image.Image:
    """Return pixels (3, H, W) as an image."""
    from PIL import Image

    return Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())


def _matrix(attention: AttentionMap, title: str, *, sqrt: bool) -> Image.Image:
    from PIL import Image, ImageDraw

    weights = head_weights(attention)
    size = max(SMALLEST, min(CELL, WIDEST // max(*weights.shape, 1)))
    step = -(-SIZE // size)  # labels that would overlap are skipped
    rows = [text_mask(truncate(visible(label), LABEL)) for label in attention.queries.labels[::step]]
    columns = [
        text_mask(truncate(visible(label), LABEL)).rotate(60, expand=True) for label in attention.keys.labels[::step]
    ]
    head = [text_mask(truncate(visible(title), TITLE))] if title else []
    left = EDGE + max((row.width for row in rows), default=0) + 12
    above = EDGE + sum(text.height + 12 for text in head) + max((column.height for column in columns), default=0) + 4
    down, across = (size * count for count in weights.shape)
    slant = max((column.width for column in columns), default=0)
    scale = _scale(float(weights.max()) if weights.numel() else 0.0, sqrt=sqrt)
    caption = text_mask(f"Attention weights of {len(weights)} queries (rows) and {weights.shape[1]} keys (columns)")
    wide = (
        max(left + across + slant, left + max(scale.width, caption.width), *(EDGE + text.width for text in head), 0)
        + EDGE
    )
    image = Image.new("RGB", (wide, above + down + EDGE // 2 + scale.height + caption.height + EDGE), PAPER)
    for text in head:
        image.paste(INK, (EDGE, EDGE), text)
    for number, row in enumerate(rows):
        image.paste(INK, (left - 12 - row.width, above + number * step * size + (size - row.height) // 2), row)
    for number, column in enumerate(columns):
        image.paste(INK, (left + number * step * size + size // 2 - SIZE // 4, above - column.height - 2), column)
    if weights.numel():
        image.paste(coloured(ramps.levels(weights, sqrt=sqrt), (across, down)), (left, above))
    image.paste(scale, (left, above + down + EDGE // 2))
    image.paste(INK, (left, above + down + EDGE // 2 + scale.height), caption)
    ImageDraw.Draw(image).rectangle((left - 1, above - 1, left + across, above + down), outline=FRAME)
    return image


def coloured(levels: Tensor, size: tuple[int, int]) -> Image.Image:
    """Return levels (Q, K) as colours, one pixel per cell enlarged to the size: fast for any number of cells."""
    from PIL import Image

    image = Image.fromarray(levels.byte().numpy())
    image.putpalette([part for colour in ramps.colours() for part in colour])
    return image.resize(size, Image.Resampling.NEAREST).convert("RGB")


def _scale(largest: float, *, sqrt: bool) -> Image.Image:
    """Return the colour scale from 0 to the largest weight."""
    from PIL import Image

    ends = [text_mask("0"), text_mask(scale_text(largest, sqrt=sqrt))]
    bar = coloured(torch.tensor([ramps.scale(sqrt=sqrt, steps=SCALE)]), (SCALE, SIZE))
    high = max(SIZE, *(end.height for end in ends))
    image = Image.new("RGB", (ends[0].width + SCALE + ends[1].width + 16, high), PAPER)
    image.paste(INK, (0, (high - ends[0].height) // 2), ends[0])
    image.paste(bar, (ends[0].width + 8, (high - SIZE) // 2))
    image.paste(INK, (ends[0].width + SCALE + 16, (high - ends[1].height) // 2), ends[1])
    return image


def _panels(attention: AttentionMap, title: str, style: OverlayStyle) -> Image.Image:
    """Return the image once for each query, with the weights of its cells over it and its label below."""
    from PIL import Image

    figures, keys = panels(attention, style.at), grid_of(attention)
    high, wide = fit(keys, LONE_AREA if len(figures) == 1 else AREA)
    columns = max(1, min(ACROSS, len(figures)))
    below = LINE * (len(keys.extra) + 1) + EDGE
    hidden = left_out(attention)
    head = [text_mask(truncate(visible(text), TITLE)) for text in (title, hidden) if text]
    above = EDGE + sum(text.height + 4 for text in head)
    across = max(EDGE + columns * (wide + EDGE), *(2 * EDGE + text.width for text in head), 0)
    canvas = Image.new("RGB", (across, above + -(-len(figures) // columns) * (high + below)), PAPER)
    y = EDGE // 2
    for text in head:
        canvas.paste(INK, (EDGE, y), text)
        y += text.height + 4
    largest = largest_weight(figures)
    for number, figure in enumerate(figures):
        x, y = EDGE + (number % columns) * (wide + EDGE), above + (number // columns) * (high + below)
        pixels = overlay(keys, figure.weights, largest, (high, wide), style)
        pixels = pixels if figure.query is None else outline(pixels, figure.query, 3)
        canvas.paste(to_image(pixels), (x, y))
        _write(canvas, figure, (x, y + high + 4), wide)
    return canvas


def _write(canvas: Image.Image, figure: Panel, at: tuple[int, int], wide: int) -> None:
    """Write the label of a panel and the weights of the positions before the grid, cut at its width."""
    for line, words in enumerate([figure.label, *(f"{name} {weight:.2f}" for name, weight in figure.extra)]):
        text = text_mask(truncate(words, max(LABEL, wide // (SIZE // 2))))
        text = text.crop((0, 0, min(text.width, wide + EDGE - 6), text.height))
        canvas.paste(INK, (at[0], at[1] + LINE * line), text)
