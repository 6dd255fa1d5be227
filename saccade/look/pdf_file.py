"""A PDF file: numbered objects, compressed streams, one page."""

from __future__ import annotations

import zlib


def number(value: float) -> str:
    """Return a number as PDF writes it, without exponent."""
    return f"{value:.4f}".rstrip("0").rstrip(".") or "0"


def stream_of(data: bytes, header: str = "") -> bytes:
    """Return a compressed stream."""
    packed = zlib.compress(data, 9)
    start = f"<< {header} /Filter /FlateDecode /Length {len(packed)} >>\nstream\n".encode()
    return start + packed + b"\nendstream"


class PdfFile:
    """The objects of a file, and the resources of its page."""

    def __init__(self) -> None:
        self._objects: list[bytes] = []
        self.images: dict[str, int] = {}
        """objects by the names that the page uses"""
        self._opacities: dict[str, str] = {}

    def add(self, content: bytes) -> int:
        """Add an object and return its number."""
        self._objects.append(content)
        return len(self._objects)

    def opacity(self, fill: float, stroke: float) -> str:
        """Return the name of a graphics state with these opacities."""
        state = f"<< /ca {number(fill)} /CA {number(stroke)} >>"
        return self._opacities.setdefault(state, f"G{len(self._opacities)}")

    def finish(self, content: str, size: tuple[float, float], fonts: dict[str, int], title: str) -> bytes:
        """Return the file, with one page of that size in points."""
        stream = self.add(stream_of(content.encode()))
        named = {"Font": fonts, "XObject": self.images}
        resources = " ".join(
            f"/{kind} << {' '.join(f'/{name} {at} 0 R' for name, at in entries.items())} >>"
            for kind, entries in named.items()
        )
        states = " ".join(f"/{name} {state}" for state, name in self._opacities.items())
        pages = len(self._objects) + 2
        page = self.add(
            f"<< /Type /Page /Parent {pages} 0 R /MediaBox [0 0 {number(size[0])} {number(size[1])}] "
            f"/Contents {stream} 0 R /Resources << {resources} /ExtGState << {states} >> >> >>".encode()
        )
        self.add(f"<< /Type /Pages /Kids [{page} 0 R] /Count 1 >>".encode())
        preferences = "/ViewerPreferences << /DisplayDocTitle true >>"
        root = self.add(f"<< /Type /Catalog /Pages {pages} 0 R {preferences} >>".encode())
        name = ("\ufeff" + title).encode("utf-16-be").hex()
        about = self.add(f"<< /Title <{name}> /Producer (Saccade) >>".encode())
        parts, offsets, at = [b"%PDF-1.5\n%\xe2\xe3\xcf\xd3\n"], [], 15
        for count, content_of in enumerate(self._objects, 1):
            part = f"{count} 0 obj\n".encode() + content_of + b"\nendobj\n"
            offsets.append(at)
            at += len(part)
            parts.append(part)
        table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
        total = len(self._objects) + 1
        trailer = f"trailer\n<< /Size {total} /Root {root} 0 R /Info {about} 0 R >>\nstartxref\n{at}\n%%EOF\n"
        return b"".join([*parts, f"xref\n0 {total}\n0000000000 65535 f \n{table}{trailer}".encode()])
