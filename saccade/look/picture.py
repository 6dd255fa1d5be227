"""A map as a PNG, with the fonts of the system that have its letters."""

import io
import os
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade.core.task import AttentionMap
from saccade.errors import UsageError
from saccade.look.labels import clusters, cut, shown
from saccade.look.maps import only

if TYPE_CHECKING:
    from PIL import Image, ImageFont

    Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

CELL, FONT, EDGE, LABEL = 44, 24, 28, 20  # pixels, and cells of the longest label
SMALLEST, WIDEST = 4, 8000  # pixels of a cell and of the cells together
PAPER, INK, SHADE = (255, 255, 255), (27, 31, 36), (26, 86, 196)
RIGHT_TO_LEFT = ("R", "AL")
# The first that has every letter of a label is taken.
FONTS = (
    *("DejaVuSans.ttf", "NotoSans-Regular.ttf", "LiberationSans-Regular.ttf", "Arial Unicode.ttf", "arial.ttf"),
    *("NotoSansCJK-Regular.ttc", "NotoSansCJKsc-Regular.otf", "PingFang.ttc", "msyh.ttc", "msgothic.ttc"),
    *("wqy-zenhei.ttc", "wqy-microhei.ttc", "DroidSansFallbackFull.ttf", "NotoSansHebrew-Regular.ttf"),
    *("NotoSansArabic-Regular.ttf", "NotoNaskhArabic-Regular.ttf", "NotoSansDevanagari-Regular.ttf"),
    *("NotoSansThai-Regular.ttf", "NotoSansBengali-Regular.ttf", "NotoSansTamil-Regular.ttf"),
)


def png(read: AttentionMap, title: str = "") -> bytes:
    """One map as a PNG: target words as rows, source words as columns."""
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise UsageError("a PNG needs Pillow, which is not installed: pip install 'saccade[images]'") from error
    weights = only(read)
    size = max(SMALLEST, min(CELL, WIDEST // max(*weights.shape, 1)))
    step = -(-FONT // size)  # labels that would overlap are left out
    rows = [_text(cut(shown(label), LABEL)) for label in read.queries.labels[::step]]
    columns = [_text(cut(shown(label), LABEL)).rotate(60, expand=True) for label in read.keys.labels[::step]]
    head = [_text(shown(title))] if title else []
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
    # Pixels of the map itself, grown to its size: fast for any number of cells.
    shares = weights.float() / weights.max().clamp_min(1e-9) if weights.numel() else weights.float()
    shade = Image.fromarray((shares * 255).round().byte().cpu().numpy())
    if weights.numel():
        image.paste(SHADE, (left, above), shade.resize((across, down), Image.Resampling.NEAREST))
    ImageDraw.Draw(image).rectangle((left - 1, above - 1, left + across, above + down), outline=(150, 155, 160))
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def _text(text: str) -> "Image.Image":
    """The letters of a text as a mask."""
    from PIL import Image, ImageDraw, features

    if not features.check("raqm") and any(unicodedata.bidirectional(letter) in RIGHT_TO_LEFT for letter in text):
        text = "".join(reversed(clusters(text)))  # Pillow alone writes every text from left to right
    font = _font(text)
    left, _, right, _ = font.getbbox(text)
    mask = Image.new("L", (max(round(right - left), 1), round(FONT * 1.5)), 0)
    ImageDraw.Draw(mask).text((-left, FONT * 0.1), text, fill=255, font=font)
    return mask


def _font(text: str) -> "Font":
    """The first font with every letter of the text, Pillow's own where there is none."""
    from PIL import ImageFont

    fonts = _fonts()
    for font in fonts:
        if all(_has(font, letter) for letter in set(text)):
            return font
    return fonts[0] if fonts else ImageFont.load_default(FONT)


@cache
def _has(font: "ImageFont.FreeTypeFont", letter: str) -> bool:
    """Whether a font draws a letter as anything but the box for letters it does not have."""
    return letter.isspace() or _drawn(font, letter) != _drawn(font, "\U0010ffff")


@cache
def _drawn(font: "ImageFont.FreeTypeFont", letter: str) -> tuple[Any, bytes]:
    mask = font.getmask(letter)
    return mask.size, bytes(mask)


@cache
def _fonts() -> "tuple[ImageFont.FreeTypeFont, ...]":
    """The known fonts that this system has, in the order they are asked."""
    from PIL import ImageFont

    found: dict[str, Path] = {}
    for file in _font_files():
        found.setdefault(file.name, file)
    return tuple(ImageFont.truetype(found[name], FONT) for name in FONTS if name in found)


def _font_files() -> Iterator[Path]:
    """Every file in the folders where systems keep fonts."""
    home = Path.home()
    folders = [Path("/usr/share/fonts"), Path("/usr/local/share/fonts"), home / ".local/share/fonts", home / ".fonts"]
    folders += [Path("/System/Library/Fonts"), Path("/Library/Fonts"), home / "Library/Fonts"]
    folders += [Path(os.environ["WINDIR"]) / "Fonts"] if "WINDIR" in os.environ else []
    for folder in folders:
        if folder.is_dir():
            yield from folder.rglob("*.tt[fc]")
            yield from folder.rglob("*.otf")
