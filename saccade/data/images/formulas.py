"""Pictures of formulas as pix2tex reads them: dark on white, cropped to the ink, padded to multiples of 32 pixels.

Equal to pix2tex 0.1.4 without its image resizer, pixel for pixel. H rows, W columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.errors import UsageError

MULTIPLE = 32  # of the sides, in pixels
THRESHOLD = 128  # between ink and background
SCALES = (2**0.5, 2**-0.5, 0.5, 2**-1.5, 0.25)  # at which a formula is read besides its own size
SMALLEST = 8  # pixels of a side of such a picture

Grey = NDArray[np.uint8]


def read_formula(pixels: NDArray[np.uint8], max_height: int, max_width: int, name: str = "image") -> Grey:
    """Return the formula in a picture (H, W, 3) as grey levels (H', W'), reduced where it is larger than the limits."""
    grey = crop_formula(_grey(pixels), name)
    height, width = grey.shape
    excess = max(height / max_height, width / max_width)
    if excess > 1:
        reduced = int(height // excess), int(width // excess)
        if not min(reduced):
            rule = f"the formula in {name} must keep 1 x 1 pixels when it is reduced to {max_height} x {max_width}"
            raise UsageError(f"{rule}, but is {height} x {width}; cut it into parts")
        grey = _resize(grey, *reduced, "BILINEAR")
        grey = pad_to(grey, max(reduced[0], MULTIPLE), max(reduced[1], MULTIPLE))
    return crop_formula(grey, name)


def read_formula_sizes(pixels: NDArray[np.uint8], max_height: int, max_width: int, name: str = "image") -> list[Grey]:
    """Return the formula in a picture at its own size, as `read_formula` does, and larger and smaller."""
    images, grey = [read_formula(pixels, max_height, max_width, name)], _grey(pixels)
    inside = crop_formula(grey, name).shape
    fit = min(1.0, max_height / inside[0], max_width / inside[1])
    for scale in SCALES:
        height, width = (round(fit * scale * side) for side in grey.shape)
        ink = [fit * scale * side for side in inside]
        if min(height, width, *ink) < SMALLEST or ink[0] > max_height or ink[1] > max_width:
            continue
        resized = _resize(grey, height, width, "BILINEAR" if fit * scale > 1 else "LANCZOS")
        images.append(read_formula(np.repeat(resized[..., None], 3, axis=2), max_height, max_width, name))
    return images


def _grey(pixels: NDArray[np.uint8]) -> Grey:
    return np.asarray(_pillow().fromarray(pixels).convert("L"))


def _resize(grey: Grey, height: int, width: int, method: str) -> Grey:
    image = _pillow()
    return np.asarray(image.fromarray(grey).resize((width, height), image.Resampling[method]))


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise UsageError("pictures need Pillow, which is not installed: pip install 'saccade[images]'") from error
    return Image


def crop_formula(grey: Grey, name: str = "image") -> Grey:
    """Stretch the contrast, make the ink dark, crop to its bounding box and pad to multiples of 32 pixels."""
    darkest, brightest = int(grey.min()), int(grey.max())
    if darkest == brightest:
        raise UsageError(f"{name} must show a formula, but all its pixels have one grey level ({darkest})")
    levels = (grey - np.uint8(darkest)) / (brightest - darkest) * 255
    bright = bool(levels.mean() > THRESHOLD)  # the background
    ink = levels < THRESHOLD if bright else levels > THRESHOLD
    rows, columns = np.flatnonzero(ink.any(1)), np.flatnonzero(ink.any(0))
    box = levels[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    cropped = (box if bright else 255 - box).astype(np.float32).astype(np.uint8)
    height, width = (-(-side // MULTIPLE) * MULTIPLE for side in cropped.shape)
    return pad_to(cropped, height, width)


def pad_to(grey: Grey, height: int, width: int) -> Grey:
    """Add white rows at the bottom and white columns at the right."""
    missing = ((0, height - grey.shape[0]), (0, width - grey.shape[1]))
    return np.pad(grey, missing, constant_values=255)
