"""Completeness: whether a sound file ends where its container says, since a decoder returns what there is of a cut one.

An MP3 file says how long it is only where its first frame is a table of contents (Xing or Info).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from saccade.data.tables.sniffing import format_size

STREAMED = 0x7FFFFFFF - 1024  # sizes of chunks from here on mean that the size was not known when it was written
LAST_PAGE = 0x04  # flag of the last page of an Ogg stream
NO_SAMPLES = "a chunk of samples"
CONTENTS = re.compile(rb"Xing|Info")
FIRST_FRAME = 64  # bytes of a frame of MPEG audio within which its table of contents starts
TOLERATED = 0.01  # fraction of an MP3 file by which its own count may be wrong, as that of some encoders is
FIELD = re.compile(rb"^(\w+) -(?:i|r|s\d+) (\S+)", re.MULTILINE)  # of the header of a SPHERE file


def missing_part(data: bytes, format: str) -> str:
    """Return what a sound file of a format lacks at its end; empty if nothing, or if it cannot be known."""
    if format == "OGG":
        return "" if _has_last_page(data) else "its last page"
    end = _END_OF_SAMPLES[format](data) if format in _END_OF_SAMPLES else 0
    if end is None:
        return NO_SAMPLES
    return f"the last {format_size(end - len(data))} of its samples" if end > len(data) else ""


def sphere_fields(data: bytes) -> dict[str, str]:
    """Return the fields of the header of a NIST SPHERE file."""
    head = data[: _sphere_header(data)].partition(b"end_head")[0]
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in FIELD.findall(head)}


# Each of these returns the byte after the last sample; 0: not known, None: there are no samples.


def _end_of_wave(data: bytes) -> int | None:
    order = "big" if data[:4] == b"RIFX" else "little"
    large = 0
    for name, start, size in _chunks(data, 12, 4, order):
        if name == b"ds64":  # sizes of a file of more than 4 GB
            large = int.from_bytes(data[start + 8 : start + 16], "little")
        if name == b"data":
            size = large if large and size >= STREAMED else size
            return 0 if size >= STREAMED else start + size
    return None


def _end_of_aiff(data: bytes) -> int | None:
    return next((start + size for name, start, size in _chunks(data, 12, 4, "big") if name == b"SSND"), None)


def _end_of_caf(data: bytes) -> int | None:
    chunks = _chunks(data, 8, 8, "big", padded=False)
    size = next(((start, size) for name, start, size in chunks if name == b"data"), None)
    return None if size is None else 0 if size[1] >= STREAMED else sum(size)


def _end_of_w64(data: bytes) -> int | None:
    at = 40  # after the names of the file and of its content
    while at + 24 <= len(data):
        size = int.from_bytes(data[at + 16 : at + 24], "little")  # that of this header included
        if data[at : at + 4] == b"data":
            return 0 if size >= STREAMED else at + size
        at += max(24, -(-size // 8) * 8)
    return None


def _end_of_au(data: bytes) -> int | None:
    start, size = (int.from_bytes(data[at : at + 4], "big") for at in (4, 8))
    return None if len(data) < 24 else 0 if size >= STREAMED else start + size


def _end_of_sphere(data: bytes) -> int | None:
    fields = sphere_fields(data)
    sizes = [fields.get(name, "") for name in ("sample_count", "sample_n_bytes", "channel_count")]
    if not all(map(str.isdigit, sizes)):
        return 0
    count, width, channels = map(int, sizes)
    return _sphere_header(data) + count * width * channels


def _end_of_mp3(data: bytes) -> int | None:
    start = 0
    if data[:3] == b"ID3":  # seven bits of each byte are the size of the tag
        start = 10 + sum(byte << shift for byte, shift in zip(data[6:10], (21, 14, 7, 0), strict=False))
    contents = CONTENTS.search(data, start, start + FIRST_FRAME)
    if contents is None:
        return 0
    flags, at = int.from_bytes(data[contents.end() : contents.end() + 4], "big"), contents.end() + 4
    at += 4 if flags & 1 else 0  # number of frames
    size = int.from_bytes(data[at : at + 4], "big") if flags & 2 else 0
    return start + size if start + size - len(data) > TOLERATED * size else 0


_END_OF_SAMPLES = {
    **{"WAV": _end_of_wave, "AIFF": _end_of_aiff, "CAF": _end_of_caf, "W64": _end_of_w64, "AU": _end_of_au},
    **{"SPHERE": _end_of_sphere, "MP3": _end_of_mp3},
}


def _chunks(data: bytes, at: int, width: int, order: str, *, padded: bool = True) -> Iterator[tuple[bytes, int, int]]:
    """Yield name, first byte and size of each chunk from a byte on; sizes have `width` bytes."""
    while at + 4 + width <= len(data):
        size = int.from_bytes(data[at + 4 : at + 4 + width], "big" if order == "big" else "little")
        yield data[at : at + 4], at + 4 + width, size
        at += 4 + width + size + (size % 2 if padded else 0)


def _sphere_header(data: bytes) -> int:
    """Return the size of the header of a SPHERE file, which its second line has."""
    size = data[8:16].strip()
    return int(size) if size.isdigit() else len(data)


def _has_last_page(data: bytes) -> bool:
    """Whether the last page of an Ogg file is marked as such and complete: a header, sizes of segments, segments."""
    start = data.rfind(b"OggS")
    sizes = data[start + 27 : start + 27 + data[start + 26]] if len(data) > start + 26 else b""
    return bool(sizes) and bool(data[start + 5] & LAST_PAGE) and len(data) >= start + 27 + len(sizes) + sum(sizes)
