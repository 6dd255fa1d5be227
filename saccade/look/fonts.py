"""Text as pixels, in fonts of the system that have its characters."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade.look.labels import clusters

if TYPE_CHECKING:
    from PIL import Image, ImageFont

    Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

SIZE = 24  # pixels
RIGHT_TO_LEFT = ("R", "AL")
# The first font with every character of a label is used.
FONTS = (
    *("DejaVuSans.ttf", "NotoSans-Regular.ttf", "LiberationSans-Regular.ttf", "Arial Unicode.ttf", "arial.ttf"),
    *("NotoSansCJK-Regular.ttc", "NotoSansCJKsc-Regular.otf", "PingFang.ttc", "msyh.ttc", "msgothic.ttc"),
    *("wqy-zenhei.ttc", "wqy-microhei.ttc", "DroidSansFallbackFull.ttf", "NotoSansHebrew-Regular.ttf"),
    *("NotoSansArabic-Regular.ttf", "NotoNaskhArabic-Regular.ttf", "NotoSansDevanagari-Regular.ttf"),
    *("NotoSansThai-Regular.ttf", "NotoSansBengali-Regular.ttf", "NotoSansTamil-Regular.ttf"),
)


def text_mask(text: str, size: int = SIZE) -> Image.Image:
    """Return a text as a mask of its pixels."""
    from PIL import Image, ImageDraw, features

    if not features.check("raqm") and any(unicodedata.bidirectional(character) in RIGHT_TO_LEFT for character in text):
        text = "".join(reversed(clusters(text)))  # Pillow alone lays every text out from left to right
    font = font_for(text, size)
    left, _, right, _ = font.getbbox(text)
    mask = Image.new("L", (max(round(right - left), 1), round(size * 1.5)), 0)
    ImageDraw.Draw(mask).text((-left, size * 0.1), text, fill=255, font=font)
    return mask


def font_for(text: str, size: int = SIZE) -> Font:
    """Return the first font with every character of the text, or Pillow's own."""
    from PIL import ImageFont

    fonts = system_fonts()
    chosen = next((font for font in fonts if all(_has(font, character) for character in set(text))), None)
    if chosen is None and not fonts:
        return ImageFont.load_default(size)
    return (chosen or fonts[0]).font_variant(size=size)


@cache
def _has(font: ImageFont.FreeTypeFont, character: str) -> bool:
    """Whether a font has a glyph for a character, and not only the box for missing ones."""
    return character.isspace() or _glyph(font, character) != _glyph(font, "\U0010ffff")


@cache
def _glyph(font: ImageFont.FreeTypeFont, character: str) -> tuple[Any, bytes]:
    mask = font.getmask(character)
    return mask.size, bytes(mask)


@cache
def system_fonts() -> tuple[ImageFont.FreeTypeFont, ...]:
    """Return the fonts of `FONTS` on this system, in their order."""
    from PIL import ImageFont

    return tuple(ImageFont.truetype(path, SIZE) for path in font_paths())


@cache
def font_paths() -> tuple[Path, ...]:
    """Return the files of the fonts of `FONTS` on this system, in their order."""
    files: dict[str, Path] = {}
    for file in _font_files():
        files.setdefault(file.name, file)
    return tuple(files[name] for name in FONTS if name in files)


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
