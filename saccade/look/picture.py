"""A map as a PNG, with fonts of the system that have the characters of its labels."""

import io
import os
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from saccade.core import AttentionMap, GridAxis
from saccade.errors import UsageError
from saccade.look.grids import panels
from saccade.look.labels import clusters, truncate, visible
from saccade.metrics.alignment import head_weights

if TYPE_CHECKING:
    from PIL import Image, ImageFont

    Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

CELL, FONT, EDGE, LABEL = 44, 24, 28, 20  # pixels, and cells of the longest label
TITLE = 200  # cells of the longest title
SMALLEST, WIDEST = 4, 8000  # pixels of a cell and of the cells together
PAPER, INK, SHADE, HEAT = (255, 255, 255), (27, 31, 36), (26, 86, 196), (208, 42, 30)
ACROSS = 6  # panels side by side
RIGHT_TO_LEFT = ("R", "AL")
# The first font with every character of a label is used.
FONTS = (
    *("DejaVuSans.ttf", "NotoSans-Regular.ttf", "LiberationSans-Regular.ttf", "Arial Unicode.ttf", "arial.ttf"),
    *("NotoSansCJK-Regular.ttc", "NotoSansCJKsc-Regular.otf", "PingFang.ttc", "msyh.ttc", "msgothic.ttc"),
    *("wqy-zenhei.ttc", "wqy-microhei.ttc", "DroidSansFallbackFull.ttf", "NotoSansHebrew-Regular.ttf"),
    *("NotoSansArabic-Regular.ttf", "NotoNaskhArabic-Regular.ttf", "NotoSansDevanagari-Regular.ttf"),
    *("NotoSansThai-Regular.ttf", "NotoSansBengali-Regular.ttf", "NotoSansTamil-Regular.ttf"),
)


def png(attention: AttentionMap, title: str = "") -> bytes:
    """Return a map as a PNG: queries as rows, keys as columns; over the image where the keys are its cells."""
    try:
        from PIL import Image
    except ImportError as error:
        raise UsageError("a PNG needs Pillow, which is not installed: pip install 'saccade[images]'") from error
    picture = _panels(attention, title) if isinstance(attention.keys, GridAxis) else _matrix(attention, title)
    assert isinstance(picture, Image.Image)
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def _matrix(attention: AttentionMap, title: str) -> "Image.Image":
    from PIL import Image, ImageDraw

    weights = head_weights(attention)
    size = max(SMALLEST, min(CELL, WIDEST // max(*weights.shape, 1)))
    step = -(-FONT // size)  # labels that would overlap are skipped
    rows = [_text(truncate(visible(label), LABEL)) for label in attention.queries.labels[::step]]
    columns = [
        _text(truncate(visible(label), LABEL)).rotate(60, expand=True) for label in attention.keys.labels[::step]
    ]
    head = [_text(truncate(visible(title), TITLE))] if title else []
    left = EDGE + max((row.width for row in rows), default=0) + 12
    above = EDGE + sum(text.height + 12 for text in head) + max((column.height for column in columns), default=0) + 4
    down, across = (size * count for count in weights.shape)
    slant = max((column.width for column in columns), default=0)
    wide = max(left + across + slant, *(EDGE + text.width for text in head), 0) + EDGE
    image = Image.new("RGB", (wide, above + down + EDGE), PAPER)
    for text in head:
        image.paste(INK, (EDGE, EDGE), text)
    for number, row in enumerate(rows):
        image.paste(INK, (left - 12 - row.width, above + number * step * size + (size - row.height) // 2), row)
    for number, column in enumerate(columns):
        image.paste(INK, (left + number * step * size + size // 2 - FONT // 4, above - column.height - 2), column)
    if weights.numel():
        image.paste(SHADE, (left, above), _mask(weights, float(weights.max()), (across, down)))
    ImageDraw.Draw(image).rectangle((left - 1, above - 1, left + across, above + down), outline=(150, 155, 160))
    return image


def _panels(attention: AttentionMap, title: str) -> "Image.Image":
    """Return the image once for each query, shaded by the weights of its cells."""
    from PIL import Image

    keys, figures = attention.keys, panels(attention)
    assert isinstance(keys, GridAxis)
    size = (CELL * max(keys.columns, 1), CELL * max(keys.rows, 1))
    columns = max(1, min(ACROSS, len(figures)))
    lines = [[figure.label, *(f"{name} {weight:.2f}" for name, weight in figure.extra)] for figure in figures]
    high = size[1] + 2 * FONT * (len(keys.extra) + 1) + EDGE
    head = [_text(truncate(visible(title), TITLE))] if title else []
    above = EDGE + sum(text.height + 12 for text in head)
    wide = max(EDGE + columns * (size[0] + EDGE), *(2 * EDGE + text.width for text in head), 0)
    canvas = Image.new("RGB", (wide, above + -(-len(figures) // columns) * high + EDGE), PAPER)
    for text in head:
        canvas.paste(INK, (EDGE, EDGE), text)
    base = Image.new("RGB", size, PAPER)
    if keys.image is not None:
        pixels = keys.image[:3].expand(3, -1, -1) if len(keys.image) == 1 else keys.image[:3]
        picture = Image.fromarray(pixels.permute(1, 2, 0).contiguous().cpu().numpy())
        base = picture.resize(size, Image.Resampling.NEAREST)
    largest = max((float(figure.weights.max()) for figure in figures if figure.weights.numel()), default=0.0)
    for number, figure in enumerate(figures):
        x, y = EDGE + (number % columns) * (size[0] + EDGE), above + (number // columns) * high
        canvas.paste(base, (x, y))
        if figure.weights.numel():
            canvas.paste(HEAT, (x, y), _mask(0.75 * figure.weights, largest, size))
        for line, words in enumerate(lines[number]):
            text = _text(truncate(visible(words), LABEL))
            canvas.paste(INK, (x, y + size[1] + 4 + 2 * FONT * line), text)
    return canvas


def _mask(weights: Tensor, largest: float, size: tuple[int, int]) -> "Image.Image":
    """Return weights as opacities, one pixel per cell enlarged to the size: fast for any number of cells."""
    from PIL import Image

    opacity = (weights.float() / max(largest, 1e-9) * 255).round().byte().cpu().numpy()
    return Image.fromarray(opacity).resize(size, Image.Resampling.NEAREST)


def _text(text: str) -> "Image.Image":
    """Return a text as a mask of its pixels."""
    from PIL import Image, ImageDraw, features

    if not features.check("raqm") and any(unicodedata.bidirectional(character) in RIGHT_TO_LEFT for character in text):
        text = "".join(reversed(clusters(text)))  # Pillow alone lays every text out from left to right
    font = _font(text)
    left, _, right, _ = font.getbbox(text)
    mask = Image.new("L", (max(round(right - left), 1), round(FONT * 1.5)), 0)
    ImageDraw.Draw(mask).text((-left, FONT * 0.1), text, fill=255, font=font)
    return mask


def _font(text: str) -> "Font":
    """Return the first font with every character of the text, or Pillow's own."""
    from PIL import ImageFont

    fonts = _fonts()
    for font in fonts:
        if all(_has(font, character) for character in set(text)):
            return font
    return fonts[0] if fonts else ImageFont.load_default(FONT)


@cache
def _has(font: "ImageFont.FreeTypeFont", character: str) -> bool:
    """Whether a font has a glyph for a character, and not only the box for missing ones."""
    return character.isspace() or _glyph(font, character) != _glyph(font, "\U0010ffff")


@cache
def _glyph(font: "ImageFont.FreeTypeFont", character: str) -> tuple[Any, bytes]:
    mask = font.getmask(character)
    return mask.size, bytes(mask)


@cache
def _fonts() -> "tuple[ImageFont.FreeTypeFont, ...]":
    """Return the fonts of `FONTS` on this system, in their order."""
    from PIL import ImageFont

    files: dict[str, Path] = {}
    for file in _font_files():
        files.setdefault(file.name, file)
    return tuple(ImageFont.truetype(files[name], FONT) for name in FONTS if name in files)


def _font_files() -> Iterator[Path]:
    """Yield the font files of the system."""
    home = Path.home()
    folders = [Path("/usr/share/fonts"), Path("/usr/local/share/fonts"), home / ".local/share/fonts", home / ".fonts"]
    folders += [Path("/System/Library/Fonts"), Path("/Library/Fonts"), home / "Library/Fonts"]
    folders += [Path(os.environ["WINDIR"]) / "Fonts"] if "WINDIR" in os.environ else []
    for folder in folders:
        if folder.is_dir():
            yield from folder.rglob("*.tt[fc]")
            yield from folder.rglob("*.otf")
