"""Pictures that tests write: of one colour, of several kinds, and broken ones."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image


def encode(pixels, format="PNG", **options):
    """The bytes of a picture file; `pixels` are an array or a PIL image."""
    image = Image.fromarray(pixels) if isinstance(pixels, np.ndarray) else pixels
    stream = io.BytesIO()
    image.save(stream, format, **options)
    return stream.getvalue()


def colour(red, green=0, blue=0, size=(6, 5)):
    """A picture of one colour, as (H, W, 3)."""
    return np.full((*size, 3), (red, green, blue), np.uint8)


def header_only_png(width, height):
    """A PNG file whose header says any size, and that has few bytes."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(bytes(1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


@pytest.fixture
def write(tmp_path):
    """Write pictures of different colours below tmp_path, by their names."""

    def write_pictures(*names, first=0):
        for number, name in enumerate(names, first):
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode(colour(number % 256, number // 256, 7)))
        return tmp_path

    return write_pictures
