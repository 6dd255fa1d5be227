"""TrueType fonts: which glyph a character has, how wide it is, and a font file with some of the glyphs alone."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

NEEDED = ("cmap", "glyf", "head", "hhea", "hmtx", "loca", "maxp")
KEPT = ("cvt ", "fpgm", "glyf", "head", "hhea", "hmtx", "loca", "maxp", "prep")  # in an embedded font
COMPOSITE_END, WORDS, SCALE, XY_SCALE, MATRIX = 0x20, 0x1, 0x8, 0x40, 0x80


class TrueType:
    """A font with outlines in `glyf`; of a collection its first font."""

    def __init__(self, path: Path) -> None:
        """Read a font; ValueError: it is none, or has other outlines."""
        self.data = path.read_bytes()
        start = struct.unpack_from(">I", self.data, 12)[0] if self.data[:4] == b"ttcf" else 0
        try:
            count = struct.unpack_from(">H", self.data, start + 4)[0]
            records = (struct.unpack_from(">4sIII", self.data, start + 12 + 16 * at) for at in range(count))
            self.tables = {tag.decode("latin-1"): (offset, size) for tag, _, offset, size in records}
            missing = [name for name in NEEDED if name not in self.tables]
            if missing:
                raise ValueError(f"{path}: no table {', '.join(missing)}")
            self.units = self._value("head", 18, "H")
            self.ascent, self.descent = self._value("hhea", 4, "h"), self._value("hhea", 6, "h")
            self.box = struct.unpack_from(">4h", self.data, self.tables["head"][0] + 36)
            self._metrics, self.glyphs = self._value("hhea", 34, "H"), self._value("maxp", 4, "H")
            self._loca = self._read_loca()
            self._codes = self._read_cmap()
        except struct.error as error:
            raise ValueError(f"{path}: damaged ({error})") from error

    def glyph(self, character: str) -> int:
        """Return the glyph of a character; 0: there is none."""
        return self._codes.get(ord(character), 0)

    def advance(self, glyph: int) -> float:
        """Return the width of a glyph, in thousandths of the size."""
        return 1000 * self._value("hmtx", 4 * min(glyph, self._metrics - 1), "H") / self.units

    def subset(self, glyphs: Iterable[int]) -> bytes:
        """Return a font with the outlines of some glyphs; all keep their numbers."""
        kept, waiting = set[int](), [0, *glyphs]
        while waiting:
            glyph = waiting.pop()
            if glyph not in kept:
                kept.add(glyph)
                waiting += self._components(glyph)
        outlines, offsets = bytearray(), []
        for glyph in range(self.glyphs):
            offsets.append(len(outlines))
            if glyph in kept:
                outlines += self._outline(glyph)
                outlines += bytes(-len(outlines) % 4)
        loca = struct.pack(f">{len(offsets) + 1}I", *offsets, len(outlines))
        head = bytearray(self._table("head"))
        struct.pack_into(">h", head, 50, 1)  # offsets of 32 bits
        changed = {"glyf": bytes(outlines), "loca": loca, "head": bytes(head)}
        tables = {name: changed.get(name) or self._table(name) for name in KEPT if name in self.tables}
        return _font_file(tables)

    def _value(self, table: str, offset: int, kind: str) -> int:
        return int(struct.unpack_from(f">{kind}", self.data, self.tables[table][0] + offset)[0])

    def _table(self, name: str) -> bytes:
        offset, size = self.tables[name]
        return self.data[offset : offset + size]

    def _read_loca(self) -> tuple[int, ...]:
        long = self._value("head", 50, "h")
        values = struct.unpack_from(f">{self.glyphs + 1}{'I' if long else 'H'}", self.data, self.tables["loca"][0])
        return values if long else tuple(2 * value for value in values)

    def _outline(self, glyph: int) -> bytes:
        start = self.tables["glyf"][0]
        return self.data[start + self._loca[glyph] : start + self._loca[glyph + 1]]

    def _components(self, glyph: int) -> list[int]:
        """Return the glyphs that a glyph consists of; none if it has outlines of its own."""
        outline = self._outline(glyph)
        if len(outline) < 10 or struct.unpack_from(">h", outline)[0] >= 0:
            return []
        parts, at, flags = [], 10, COMPOSITE_END
        while flags & COMPOSITE_END:
            flags, part = struct.unpack_from(">HH", outline, at)
            parts.append(part)
            at += 8 if flags & WORDS else 6
            at += 2 if flags & SCALE else 4 if flags & XY_SCALE else 8 if flags & MATRIX else 0
        return parts

    def _read_cmap(self) -> dict[int, int]:
        """Return the glyph of every code point, by the widest table for Unicode."""
        base = self.tables["cmap"][0]
        count = struct.unpack_from(">H", self.data, base + 2)[0]
        entries = [struct.unpack_from(">HHI", self.data, base + 4 + 8 * at) for at in range(count)]
        order = {(3, 10): 0, (0, 6): 1, (0, 4): 2, (3, 1): 3, (0, 3): 4}
        for platform, encoding, offset in sorted(entries, key=lambda entry: order.get((entry[0], entry[1]), 9)):
            kind = struct.unpack_from(">H", self.data, base + offset)[0]
            if (platform, encoding) in order and kind in (4, 12):
                return self._segments(base + offset) if kind == 4 else self._groups(base + offset)
        return {}

    def _groups(self, at: int) -> dict[int, int]:
        count = struct.unpack_from(">I", self.data, at + 12)[0]
        groups = (struct.unpack_from(">III", self.data, at + 16 + 12 * number) for number in range(count))
        return {code: glyph + code - first for first, last, glyph in groups for code in range(first, last + 1)}

    def _segments(self, at: int) -> dict[int, int]:
        count = struct.unpack_from(">H", self.data, at + 6)[0] // 2
        ends, starts, deltas, shifts = (
            struct.unpack_from(f">{count}H", self.data, at + 14 + 2 * count * part + (2 if part else 0))
            for part in range(4)
        )
        codes: dict[int, int] = {}
        for number, (first, last) in enumerate(zip(starts, ends, strict=True)):
            for code in range(first, min(last, 0xFFFE) + 1):
                glyph = code
                if shifts[number]:
                    place = at + 16 + 6 * count + 2 * number + shifts[number] + 2 * (code - first)
                    glyph = struct.unpack_from(">H", self.data, place)[0]
                    if not glyph:
                        continue
                codes[code] = (glyph + deltas[number]) & 0xFFFF
        return codes


def _font_file(tables: dict[str, bytes]) -> bytes:
    """Return tables as a font file."""
    power = len(tables).bit_length() - 1
    search = 16 << power
    header = struct.pack(">IHHHH", 0x10000, len(tables), search, power, 16 * len(tables) - search)
    offset, records, body = 12 + 16 * len(tables), b"", b""
    for name, table in sorted(tables.items()):
        padded = table + bytes(-len(table) % 4)
        checksum = sum(struct.unpack(f">{len(padded) // 4}I", padded)) & 0xFFFFFFFF
        records += struct.pack(">4sIII", name.encode("latin-1"), checksum, offset + len(body), len(table))
        body += padded
    return header + records + body
