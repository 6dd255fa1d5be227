"""Resizing: how the pixels of a picture become those that a model reads.

H rows, W columns.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from saccade.data.images.decoding import MAX_PIXELS
from saccade.data.tables.problems import BadRows, Problem

if TYPE_CHECKING:
    from PIL.Image import Image

Mode = Literal["none", "short", "exact", "height", "crop"]
Interpolation = Literal["bilinear", "bicubic", "lanczos"]


@dataclass(frozen=True)
class Resize:
    """How pictures are resized."""

    mode: Mode = "none"
    """none: unchanged; short: the shorter side is `size`; exact: `size` x `size`; crop: short, then the square in the
    centre; height: the height is `size`. All but exact keep the aspect ratio."""
    size: int = 0
    max_width: int = 0
    """for height: wider pictures are compressed to this width; 0: any width"""
    interpolation: Interpolation = "bicubic"
    crop: int = 0
    """for crop: side of the square, at most `size`; 0: `size`"""

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("mode", self.mode, get_args(Mode)),
            ("interpolation", self.interpolation, get_args(Interpolation)),
        ):
            if value not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, but is {value!r}")
        if self.mode != "none" and self.size < 1:
            raise ValueError(f"size must be at least 1, but is {self.size}")
        if self.crop and (self.mode != "crop" or not 0 < self.crop <= self.size):
            raise ValueError(f"crop must be 0, or from 1 to size with mode crop, but is {self.crop}")
        if self.max_width < 0:
            raise ValueError(f"max_width must be at least 0, but is {self.max_width}")

    def shape(self, height: int, width: int) -> tuple[int, int]:
        """Return the height and width of a resized picture."""
        side = self.crop or self.size
        return (side, side) if self.mode == "crop" else self._scaled(height, width)

    def describe(self) -> dict[str, str | int]:
        """Return the settings as JSON; a square of the whole size has none of its own."""
        return {name: value for name, value in asdict(self).items() if name != "crop" or value}

    def apply(self, picture: NDArray[np.uint8] | Image, name: str = "picture") -> NDArray[np.uint8]:
        """Return the pixels (H', W', 3) of a picture (H, W, 3), resized; `name` is that of the file, for messages."""
        from PIL import Image

        before = picture.shape[:2] if isinstance(picture, np.ndarray) else picture.size[::-1]
        height, width = self._scaled(*before)
        if (height, width) != before:
            check_resized(before, (height, width), name)
            image = Image.fromarray(picture) if isinstance(picture, np.ndarray) else picture
            picture = image.resize((width, height), Image.Resampling[self.interpolation.upper()])
        pixels = np.asarray(picture)
        if self.mode == "crop":
            side = self.crop or self.size
            top, left = (height - side) // 2, (width - side) // 2
            pixels = pixels[top : top + side, left : left + side]
        return pixels

    def _scaled(self, height: int, width: int) -> tuple[int, int]:
        """Return the height and width of a picture before it is cropped."""
        if self.mode == "none":
            return height, width
        if self.mode == "exact":
            return self.size, self.size
        if self.mode == "height":
            scaled = max(1, round(width * self.size / height))
            return self.size, min(scaled, self.max_width) if self.max_width else scaled
        # The longer side is rounded down, as torchvision and transformers do.
        longer = int(self.size * max(height, width) / min(height, width))
        return (longer, self.size) if height > width else (self.size, longer)


def check_resized(before: tuple[int, int], after: tuple[int, int], name: str) -> None:
    """Refuse a picture so long and thin that it has too many pixels once its shorter side is resized.

    `before` and `after` are its height and width.
    """
    if after[0] * after[1] > MAX_PIXELS:
        what = f"{before[1]:,} x {before[0]:,} pixels, resized {after[1]:,} x {after[0]:,}"
        expected = f"at most {MAX_PIXELS // 10**6} million after resizing"
        raise BadRows([Problem(Path(name), None, None, what, expected, "cut the picture into parts, or remove it")])
