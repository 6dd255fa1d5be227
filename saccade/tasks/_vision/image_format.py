"""Image format: how images become the input of a network, and the sizes that suit the images of a data set.

Shapes: B rows, H x W pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.core.fields import name_of
from saccade.data.images.augment import centre
from saccade.data.images.decoding import stored_size, to_pixels
from saccade.data.images.pictures import Pictures
from saccade.data.images.resizing import Resize
from saccade.errors import DataError, UsageError

LARGEST = 64  # pixels of a side, where the settings do not say
MARGIN = 0.875  # of the stored image is read; the training images are cropped at random
SAMPLED = 64  # images that decide the size


@dataclass(frozen=True)
class ImageFormat:
    """How images become the input of a network: resized to a square, of which the centre is read."""

    size: int
    """side of the input"""
    stored: int
    """side to which images are resized, and from which training images are cropped"""
    interpolation: Literal["bilinear", "bicubic", "lanczos"] = "bicubic"
    mode: Literal["crop", "exact"] = "crop"
    """crop: resized until the shorter side fits, then cropped; exact: resized in both directions to fit"""

    @property
    def resize(self) -> Resize:
        # The centre of what is stored is the centre of the whole image if the margin is even.
        odd = self.mode == "crop" and (self.stored - self.size) % 2
        return Resize(self.mode, self.stored, crop=self.stored - 1 if odd else 0, interpolation=self.interpolation)

    def read(self, value: bytes | Tensor, name: str = "image") -> Tensor:
        """Return an input as pixels (3, size, size)."""
        try:
            resized = self.resize.apply(to_pixels(value, name), name_of(value, name))
        except DataError as error:
            raise UsageError(str(error)) from error
        pixels = np.array(resized)  # those of Pillow cannot be written
        return to_tensor(centre(pixels[None], self.size))[0]


def to_tensor(images: NDArray[np.uint8]) -> Tensor:
    """Return images (B, H, W, 3) as a tensor (B, 3, H, W) in the memory order that convolutions read fastest."""
    return torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2)


def to_array(pixels: Tensor) -> NDArray[np.uint8]:
    """Return pixels (B, 3, H, W) as images (B, H, W, 3)."""
    images: NDArray[np.uint8] = pixels.permute(0, 2, 3, 1).numpy()
    return images


def median_side(pictures: Pictures) -> int:
    """Return the median of the shorter sides of some pictures, by their headers.

    Those that cannot be read are skipped: decoding reports all of them together.
    """
    numbers = np.unique(np.linspace(0, len(pictures) - 1, min(SAMPLED, len(pictures))).astype(int))
    sides = [min(size) for size in (_size_of(pictures, number) for number in numbers.tolist()) if size is not None]
    return max(1, int(np.median(sides))) if sides else LARGEST


def _size_of(pictures: Pictures, number: int) -> tuple[int, int] | None:
    """Return the height and width of a picture; None: it cannot be read."""
    try:
        content = pictures.read(number)
    except DataError:
        return None
    return stored_size(content) if isinstance(content, bytes) else (content.shape[0], content.shape[1])


def default_size(side: int) -> int:
    """Return the side of the input for images of this side: at most 64, and a multiple of 8 if it is above 32."""
    side = min(LARGEST, side)
    return side if side <= 32 else side // 8 * 8
