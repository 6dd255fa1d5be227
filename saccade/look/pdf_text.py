"""Text of a PDF: glyphs of embedded fonts; what needs shaping, or has no outlines in TrueType, as a fine picture."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from saccade.look.fonts import RIGHT_TO_LEFT, font_for, font_paths, text_mask
from saccade.look.labels import clusters
from saccade.look.pdf_file import PdfFile, number, stream_of
from saccade.look.truetype import TrueType

FINE = 96  # pixels of the size of a text that is a picture
SHAPED = (range(0x0590, 0x0600), range(0x0600, 0x0900), range(0x0900, 0x1100), range(0x1780, 0x1800))
HELVETICA = (  # widths of the characters from the space to the tilde
    "278 278 355 556 556 889 667 191 333 333 389 584 278 333 278 278 556 556 556 556 556 556 556 556 "
    "556 556 278 278 584 584 584 556 1015 667 667 722 722 667 611 778 722 278 500 667 556 833 722 778 "
    "667 778 722 667 611 722 667 944 667 667 611 278 278 278 469 556 333 556 556 500 556 556 278 556 "
    "556 222 222 500 222 833 556 556 556 556 333 500 278 556 500 722 500 500 500 334 260 334 584 "
)
WIDTHS = tuple(map(int, HELVETICA.split()))


@dataclass
class Embedded:
    """A font of the system and the characters of it that are used."""

    name: str
    font: TrueType
    used: dict[int, str] = field(default_factory=dict)
    """characters by their glyphs"""


@dataclass(frozen=True)
class TextRun:
    """A text in one font: what a content stream shows, and its width in thousandths of the size."""

    font: str
    """name of the resource; empty: the text is a picture of that name"""
    shown: str
    width: float
    height: float = 0.0
    baseline: float = 0.0
    """of a picture: how far its top is above the baseline, in thousandths of the size"""


class PdfText:
    """The texts of one PDF."""

    def __init__(self, file: PdfFile) -> None:
        self._file = file
        self._embedded: dict[Path, Embedded] = {}
        self._pictures: dict[str, TextRun] = {}
        self._standard = False

    def run(self, text: str) -> TextRun:
        """Return how a text is shown."""
        if not needs_shaping(text):
            for path in font_paths():
                font = outlines(path)
                if font is not None and all(font.glyph(letter) for letter in text):
                    return self._glyphs(path, font, text)
            if all(32 <= ord(letter) < 127 for letter in text):
                self._standard = True
                shown = text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
                return TextRun("Helvetica", f"({shown})", sum(WIDTHS[ord(letter) - 32] for letter in text))
        return self._picture(text)

    def _glyphs(self, path: Path, font: TrueType, text: str) -> TextRun:
        embedded = self._embedded.setdefault(path, Embedded(f"F{len(self._embedded)}", font))
        glyphs = [font.glyph(letter) for letter in text]
        embedded.used.update(zip(glyphs, text, strict=True))
        shown = "".join(f"{glyph:04X}" for glyph in glyphs)
        return TextRun(embedded.name, f"<{shown}>", sum(map(font.advance, glyphs)))

    def _picture(self, text: str) -> TextRun:
        """Return a text as a picture, laid out by Pillow in the fonts that it reads."""
        if text not in self._pictures:
            from saccade.look.picture import check_pillow

            check_pillow(f"a PDF with the label {text!r}")
            mask, name = text_mask(text, FINE), f"T{len(self._pictures)}"
            header = f"/Type /XObject /Subtype /Image /Width {mask.width} /Height {mask.height}"
            grey = f"{header} /ColorSpace /DeviceGray /BitsPerComponent 8"
            opacity = self._file.add(stream_of(mask.tobytes(), grey))
            ink = self._file.add(stream_of(bytes(mask.width * mask.height), f"{grey} /SMask {opacity} 0 R"))
            self._file.images[name] = ink
            ascent = getattr(font_for(text, FINE), "getmetrics", lambda: (0.93 * FINE, 0))()[0]
            scale = 1000 / FINE
            top = scale * (0.1 * FINE + ascent)
            self._pictures[text] = TextRun("", name, scale * mask.width, scale * mask.height, top)
        return self._pictures[text]

    def finish(self) -> dict[str, int]:
        """Write the fonts and return their objects by name."""
        fonts = {embedded.name: self._write(embedded) for embedded in self._embedded.values()}
        if self._standard:
            fonts["Helvetica"] = self._file.add(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
        return fonts

    def _write(self, embedded: Embedded) -> int:
        font, used, add = embedded.font, sorted(embedded.used), self._file.add
        data = font.subset(used)
        file = add(stream_of(data, f"/Length1 {len(data)}"))
        scale, name = 1000 / font.units, f"SACCAD+{embedded.name}"
        box = " ".join(number(scale * value) for value in font.box)
        metrics = f"/Ascent {number(scale * font.ascent)} /Descent {number(scale * font.descent)}"
        descriptor = add(
            f"<< /Type /FontDescriptor /FontName /{name} /Flags 4 /FontBBox [{box}] /ItalicAngle 0 {metrics} "
            f"/CapHeight {number(scale * font.ascent)} /StemV 80 /FontFile2 {file} 0 R >>".encode()
        )
        widths = " ".join(f"{glyph} [{number(font.advance(glyph))}]" for glyph in used)
        system = "/CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >>"
        descendant = add(
            f"<< /Type /Font /Subtype /CIDFontType2 /BaseFont /{name} {system} /FontDescriptor {descriptor} 0 R "
            f"/W [{widths}] /CIDToGIDMap /Identity >>".encode()
        )
        unicode = add(stream_of(_to_unicode(embedded.used).encode()))
        return add(
            f"<< /Type /Font /Subtype /Type0 /BaseFont /{name} /Encoding /Identity-H "
            f"/DescendantFonts [{descendant} 0 R] /ToUnicode {unicode} 0 R >>".encode()
        )


def needs_shaping(text: str) -> bool:
    """Whether letters of a text join, move or run from right to left, so that glyphs side by side are not the text."""
    return any(
        unicodedata.category(letter) in ("Mn", "Me", "Mc", "Cf")
        or unicodedata.bidirectional(letter) in RIGHT_TO_LEFT
        or any(ord(letter) in block for block in SHAPED)
        for letter in text
    ) or len(clusters(text)) != len(text)


@cache
def outlines(path: Path) -> TrueType | None:
    """Return a font of the system; None: it has outlines of another kind."""
    try:
        return TrueType(path)
    except (OSError, ValueError):
        return None


def _to_unicode(used: dict[int, str]) -> str:
    """Return the table by which a viewer copies and searches text."""
    pairs = [f"<{glyph:04X}> <{letter.encode('utf-16-be').hex().upper()}>" for glyph, letter in sorted(used.items())]
    blocks = [pairs[first : first + 100] for first in range(0, len(pairs), 100)]
    body = "\n".join(f"{len(block)} beginbfchar\n" + "\n".join(block) + "\nendbfchar" for block in blocks)
    return (
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap\n"
        "/CIDSystemInfo << /Registry (Adobe) /Ordering (UCS) /Supplement 0 >> def /CMapName /Saccade def\n"
        "/CMapType 2 def 1 begincodespacerange <0000> <FFFF> endcodespacerange\n"
        f"{body}\nendcmap CMapName currentdict /CMap defineresource pop end end"
    )
