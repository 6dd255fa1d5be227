"""Pictures of formulas as pix2tex reads them: dark on white, cropped to the ink, padded to multiples of 32 pixels.

Equal to pix2tex 0.1.4 without its image resizer, pixel for pixel. H rows, W columns.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from saccade.errors import UsageError

MULTIPLE = 32  # of the sides, in pixels
THRESHOLD = 128  # between ink and background

Grey = NDArray[np.uint8]


def read_formula(pixels: NDArray[np.uint8], max_height: int, max_width: int, name: str = "image") -> Grey:
    """Return the formula in a picture (H, W, 3) as grey levels (H', W'), reduced where it is larger than the limits."""
    try:
        from PIL import Image
    except ImportError as error:
        raise UsageError("pictures need Pillow, which is not installed: pip install 'saccade[images]'") from error
    grey = crop_formula(np.asarray(Image.fromarray(pixels).convert("L")), name)
    height, width = grey.shape
    excess = max(height / max_height, width / max_width)
    if excess > 1:
        reduced = int(width // excess), int(height // excess)
        if not min(reduced):
            rule = f"the formula in {name} must keep at least 1 x 1 pixels when it is reduced to {max_height} x {max_width}"
            raise UsageError(f"{rule}, but is {height} x {width}; cut it into parts")
        grey = np.asarray(Image.fromarray(grey).resize(reduced, Image.Resampling.BILINEAR))
        grey = pad_to(grey, max(grey.shape[0], MULTIPLE), max(grey.shape[1], MULTIPLE))
    return crop_formula(grey, name)


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
