"""Decoding: the bytes of a picture as upright RGB pixels; a picture that cannot be decoded is refused with the reason.

H rows, W columns.
"""

from __future__ import annotations

import importlib
import io
import logging
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from saccade.core.fields import name_of
from saccade.data.images.kinds import SUPPORTED, picture_format, unsupported
from saccade.data.tables.problems import BadRows, Problem
from saccade.errors import DataError, UsageError

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

MAX_PIXELS = 64_000_000  # of one picture; decoding needs up to 14 bytes for each
LARGE = 4_000_000  # pixels above which a picture counts towards those decoded at once
MAX_BYTES = 1 << 28  # of an encoded picture
ORIENTATION = 0x0112  # tag of EXIF
SHORT = 3  # type of its value
DAMAGE = (
    *(OSError, SyntaxError, ValueError, EOFError, struct.error, IndexError, KeyError, TypeError, AttributeError),
    *(AssertionError, ArithmeticError, NotImplementedError, RuntimeError, MemoryError, UserWarning),
)
"""exceptions with which Pillow answers damaged files"""

Pixels = NDArray[np.uint8]
logging.getLogger("PIL").addHandler(logging.NullHandler())  # what Pillow logs about a damaged file, it raises as well


class _PixelBudget:
    """Limits how many pixels of large pictures are decoded at once, so that their memory does not add up."""

    def __init__(self, pixels: int) -> None:
        self._free, self._changed = pixels, threading.Condition()

    @contextmanager
    def take(self, pixels: int) -> Iterator[None]:
        """Wait until so many pixels are free, and take them."""
        with self._changed:
            self._changed.wait_for(lambda: self._free >= pixels)
            self._free -= pixels
        try:
            yield
        finally:
            with self._changed:
                self._free += pixels
                self._changed.notify_all()


_large_pictures = _PixelBudget(MAX_PIXELS)


def decode(data: bytes, name: str) -> Pixels:
    """Return the pixels (H, W, 3) of an encoded picture, turned upright; transparent ones are shown on white.

    `name` is that of the file, for messages.
    """
    return np.asarray(decode_image(data, name))


def decode_image(data: bytes, name: str) -> Image:
    """Return an encoded picture as an upright RGB picture of Pillow."""
    format = picture_format(data)
    if format is None:
        raise _refuse(name, *unsupported(data))
    try:
        image = _open(data, format.plugin)
        frames = _frames(image)
        width, height = image.size
    except DAMAGE as error:
        raise _damaged(name, format.name, error) from error
    if frames > 1:
        what = f"{frames} frames in a {format.name} file"
        raise _refuse(name, what, "a picture of one frame", "save one of the frames as a file of its own")
    if not width or not height:
        raise _refuse(name, f"{width} x {height} pixels", "at least 1 x 1", "download or save the picture again")
    if width * height > MAX_PIXELS:
        what = f"{width:,} x {height:,} pixels ({width * height / 1e6:,.0f} million)"
        step = "make the picture smaller, for example: magick INPUT -resize 2000x2000 OUTPUT"
        raise _refuse(name, what, f"at most {MAX_PIXELS // 10**6} million", step)
    try:
        with _large_pictures.take(width * height) if width * height > LARGE else nullcontext():
            return _to_rgb(image)
    except _UnsupportedPixels as error:
        step = "save it with 8 bits per channel, for example as PNG"
        raise _refuse(name, str(error), "grey, RGB or CMYK of 8 or 16 bits", step) from error
    except DAMAGE as error:
        raise _damaged(name, format.name, error) from error


def stored_size(data: bytes) -> tuple[int, int] | None:
    """Return the height and width in the header of an encoded picture; None: it has none that can be read."""
    format = picture_format(data)
    try:
        width, height = (0, 0) if format is None else _open(data, format.plugin).size
    except DAMAGE:  # which decoding reports
        return None
    return (height, width) if height and width else None


def to_pixels(value: bytes | Tensor, name: str) -> Pixels:
    """Return the pixels (H, W, 3) of an input of a model: an encoded picture, or a uint8 tensor (C, H, W)."""
    if isinstance(value, bytes):
        try:
            return decode(value, name_of(value, name))
        except DataError as error:
            raise UsageError(str(error)) from error
    channels = value.shape[0] if value.dim() == 3 else 0
    if not 1 <= channels <= 4 or not value.numel():
        rule = f"{name} must be a uint8 array of 1 to 4 channels and at least 1 x 1 pixels"
        raise UsageError(f"{rule}, but its shape is {tuple(value.shape)} (C, H, W)")
    pixels: Pixels = value.cpu().permute(1, 2, 0).numpy()
    if channels in (2, 4):  # the last channel is alpha
        alpha = pixels[..., -1:].astype(np.uint16)
        mixed = pixels[..., :-1] * alpha + 255 * (255 - alpha)
        pixels = ((mixed + 127) // 255).astype(np.uint8)
    return np.ascontiguousarray(np.broadcast_to(pixels, (*pixels.shape[:2], 3)))


class _UnsupportedPixels(Exception):
    """The pixels of a picture are not grey levels or colours of 8 or 16 bits; the message says what they are."""


def _open(data: bytes, plugin: str) -> ImageFile:
    """Parse the header of a picture by the class of Pillow that reads its format.

    `Image.open` would try all formats, some of which start other programs, and warn about large pictures.
    """
    module, _, name = plugin.partition(".")
    try:
        opener: Any = getattr(importlib.import_module(f"PIL.{module}"), name)
    except ImportError as error:
        raise UsageError("pictures need Pillow, which is not installed: pip install 'saccade[images]'") from error
    with _bombs_as_damage():
        image: ImageFile = opener(io.BytesIO(data))
    return image


def _frames(image: ImageFile) -> int:
    """Return how many frames a picture has."""
    with _bombs_as_damage():
        return int(getattr(image, "n_frames", 1))


@contextmanager
def _bombs_as_damage() -> Iterator[None]:
    """Let a frame of too many pixels be damage; the size of the picture itself is checked later, and named."""
    from PIL.Image import DecompressionBombError

    try:
        yield
    except DecompressionBombError as error:
        raise ValueError("a frame of too many pixels") from error


def _to_rgb(image: ImageFile) -> Image:
    """Decode a picture and return it upright, in RGB."""
    from PIL import Image

    image.load()
    exif = image.info.get("exif")  # after decoding: in a PNG it may follow the pixels
    pixels: Image.Image = image
    if image.mode.startswith("I;16") or image.mode == "I":
        pixels = Image.fromarray(_from_16_bits(np.asarray(image)))
    elif image.mode in ("F", "LAB"):
        kind = "floating-point numbers" if image.mode == "F" else "LAB colours"
        raise _UnsupportedPixels(f"pixels of {kind}")
    elif image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        pixels = _on_white(image.convert("RGBA"))
    elif image.mode != "RGB":
        pixels = image.convert("RGB")
    # Pillow turns a TIFF upright by itself.
    turned = _orientation(exif) if image.format != "TIFF" and isinstance(exif, bytes) else 1
    if turned > 1:
        # EXIF 2 to 8: how the stored picture has to be transposed to be upright
        transpose = Image.Transpose
        steps = (
            *(transpose.FLIP_LEFT_RIGHT, transpose.ROTATE_180, transpose.FLIP_TOP_BOTTOM, transpose.TRANSPOSE),
            *(transpose.ROTATE_270, transpose.TRANSVERSE, transpose.ROTATE_90),
        )
        pixels = pixels.transpose(steps[turned - 2])
    return pixels


def _on_white(image: Any) -> Any:
    """Return an RGBA picture on a white background."""
    from PIL import Image

    background = Image.new("RGB", image.size, "white")
    background.paste(image, mask=image.getchannel("A"))
    return background


def _from_16_bits(grey: NDArray[Any]) -> Pixels:
    """Return the upper 8 of 16 bits of a grey picture (H, W) as RGB (H, W, 3), as Pillow does for colours."""
    if grey.min() < 0 or grey.max() > 0xFFFF:
        raise _UnsupportedPixels(f"pixels of 32 bits (from {grey.min():,} to {grey.max():,})")
    return np.repeat((grey >> 8).astype(np.uint8)[..., None], 3, axis=2)


def _orientation(exif: bytes) -> int:
    """Return the orientation (1 to 8) in the first directory of EXIF data; 1, upright, where it says nothing valid.

    Damaged EXIF data are frequent and concern the picture little: they are not a reason to refuse it.
    """
    data = exif.removeprefix(b"Exif\x00\x00")
    order = {b"II": "<", b"MM": ">"}.get(data[:2])
    try:
        if order is None:
            return 1
        (start,) = struct.unpack_from(f"{order}I", data, 4)
        (count,) = struct.unpack_from(f"{order}H", data, start)
        for entry in range(start + 2, start + 2 + 12 * count, 12):
            tag, kind, _, value = struct.unpack_from(f"{order}HHIH", data, entry)
            if tag == ORIENTATION and kind == SHORT and 1 <= value <= 8:
                return int(value)
    except struct.error:  # the data end before the directory does
        return 1
    return 1


def _refuse(name: str, what: str, expected: str, step: str) -> BadRows:
    return BadRows([Problem(Path(name), None, None, what, expected, step)])


def _damaged(name: str, format: str, error: Exception) -> BadRows:
    reason = str(error).strip() or type(error).__name__
    what = f"a damaged {format} picture ({reason})"
    return _refuse(name, what, f"a complete picture ({SUPPORTED})", "download or save it again, or remove it")
