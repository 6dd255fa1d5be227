"""Kinds of pictures, recognized by their first bytes whatever the file name says, and names that pictures have."""

from __future__ import annotations

import codecs
import posixpath
from dataclasses import dataclass

from saccade.data.tables.kinds import PAGES, binary_kind

SUPPORTED = "JPEG, PNG, GIF, WebP, BMP, TIFF, PPM"
SUFFIXES = frozenset(
    (
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".apng", ".gif", ".webp", ".bmp", ".dib", ".tif", ".tiff"),
        *(".ppm", ".pgm", ".pbm", ".pnm"),
    )
)
# Pictures by their names that are not decoded.
OTHER_SUFFIXES = frozenset(
    (
        *(".heic", ".heif", ".avif", ".jp2", ".j2k", ".jxl", ".svg", ".psd", ".ico", ".exr", ".hdr", ".tga", ".eps"),
        *(".cr2", ".cr3", ".nef", ".arw", ".dng", ".orf", ".raf", ".rw2", ".dcm"),
    )
)
BMP_HEADERS = (12, 16, 40, 52, 56, 64, 108, 124)  # sizes of the header after the first 14 bytes
CONVERT = "convert it to JPEG or PNG, for example with ImageMagick: magick INPUT OUTPUT.png"
# Pictures in boxes, named by the brand of the first one.
BRANDS = {b"avif": "an AVIF picture", b"avis": "an AVIF picture"}
BRANDS |= dict.fromkeys((b"heic", b"heix", b"hevc", b"heim", b"heis", b"mif1", b"msf1"), "a HEIC picture")
OTHER_SIGNATURES = (
    (b"\x00\x00\x00\x0cjP  ", "a JPEG 2000 picture"),
    (b"\xff\x4f\xff\x51", "a JPEG 2000 picture"),
    (b"\x00\x00\x00\x0cJXL ", "a JPEG XL picture"),
    (b"\xff\x0a", "a JPEG XL picture"),
    (b"8BPS", "a Photoshop picture"),
    (b"\x00\x00\x01\x00", "an icon"),
    (b"v/1\x01", "an OpenEXR picture"),
)


@dataclass(frozen=True)
class PictureFormat:
    """A format that is decoded: its name, and the class of Pillow that reads it."""

    name: str
    plugin: str


JPEG = PictureFormat("JPEG", "JpegImagePlugin.JpegImageFile")
PNG = PictureFormat("PNG", "PngImagePlugin.PngImageFile")
GIF = PictureFormat("GIF", "GifImagePlugin.GifImageFile")
WEBP = PictureFormat("WebP", "WebPImagePlugin.WebPImageFile")
BMP = PictureFormat("BMP", "BmpImagePlugin.BmpImageFile")
TIFF = PictureFormat("TIFF", "TiffImagePlugin.TiffImageFile")
PPM = PictureFormat("PPM", "PpmImagePlugin.PpmImageFile")
SIGNATURES = (
    (b"\xff\xd8\xff", JPEG),
    (b"\x89PNG\r\n\x1a\n", PNG),
    (b"GIF87a", GIF),
    (b"GIF89a", GIF),
    (b"II*\x00", TIFF),
    (b"MM\x00*", TIFF),
)


def picture_format(data: bytes) -> PictureFormat | None:
    """Return the format of an encoded picture by its first bytes; None for everything else."""
    for signature, format in SIGNATURES:
        if data.startswith(signature):
            return format
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return WEBP
    if data[:2] == b"BM" and int.from_bytes(data[14:18], "little") in BMP_HEADERS:
        return BMP
    if data[:1] == b"P" and data[1:2] in b"123456" and data[2:3].isspace():
        return PPM
    return None


def unsupported(data: bytes) -> tuple[str, str, str]:
    """Return what bytes are that are not a picture in a format that is decoded, what was expected, and what to do."""
    expected = f"a picture ({SUPPORTED})"
    if not data:
        return "an empty file", expected, "download or save it again, or remove it"
    name = BRANDS.get(data[8:12], "") if data[4:8] == b"ftyp" else ""
    name = name or next((name for signature, name in OTHER_SIGNATURES if data.startswith(signature)), "")
    start = data[:256].lstrip().lower()
    if name or start.startswith(b"<svg") or (start.startswith(b"<?xml") and b"<svg" in data[:4096].lower()):
        return f"looks like {name or 'an SVG drawing'}", expected, CONVERT
    if start.startswith(PAGES):
        step = "the download may have failed: open it in a browser, then download it again or remove it"
        return "looks like a web page or XML", expected, step
    kind = binary_kind(data[:4096])
    if kind is not None:
        return f"looks like {kind[0]}", expected, kind[1] or "remove it"
    if not any(data[:4096]):
        return "zero bytes", expected, "download or save it again, or remove it"
    text = _is_text(data[:4096])
    return "looks like text" if text else "an unknown kind of file", expected, "remove it or name another file"


def _is_text(head: bytes) -> bool:
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head)  # a character may be cut at the end
    except UnicodeDecodeError:
        return False
    return "\x00" not in text


def suffix_of(name: str) -> str:
    """Return the suffix of a file name in lower case, with its dot; much faster than pathlib for very many names."""
    return posixpath.splitext(name)[1].lower()


def is_picture_name(name: str) -> bool:
    """Whether a file is a picture in a format that is decoded, by its name."""
    return suffix_of(name) in SUFFIXES


def is_other_picture_name(name: str) -> bool:
    """Whether a file is a picture in a format that is not decoded, by its name."""
    return suffix_of(name) in OTHER_SUFFIXES
