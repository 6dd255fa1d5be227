"""Attention over an image as pixels: the image, and over each cell of the grid a colour as strong as its weight.

Shapes: R rows and C columns of a grid, H and W pixels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.core import GridAxis
from saccade.errors import UsageError

HEAT = ((204, 24, 48), (255, 214, 64))  # of a small weight and of the largest
MARK = (0, 200, 255)  # outline of the query
PLAIN = 236  # grey where there is no image
SMALL = 96  # pixels: an image that is smaller is enlarged without smoothing
Box = tuple[float, float, float, float]
"""top, left, bottom and right of a part of the image, as fractions of it"""


@dataclass(frozen=True)
class OverlayStyle:
    """How attention is drawn: over an image, or as a matrix."""

    opacity: float = 0.7
    """of the colour of the largest weight, 0 to 1"""
    smooth: bool = True
    """whether weights are interpolated between cells (bicubic); if not, each cell is a block"""
    at: tuple[int, int] | None = None
    """row and column of the query in a grid of queries; None: those before the grid, and the mean of its cells"""
    sqrt: bool = False
    """of a matrix: colours by the square root of a weight, which brings out small ones"""

    def __post_init__(self) -> None:
        if not 0 <= self.opacity <= 1:
            raise UsageError(f"opacity must be 0 to 1, but is {self.opacity:g}")


def fit(axis: GridAxis, area: float) -> tuple[int, int]:
    """Return the size (H, W) of a picture with an area, in the proportions of the image, or else of the grid."""
    height, width = (axis.rows, axis.columns) if axis.image is None else axis.image.shape[1:]
    ratio = math.sqrt(max(width, 1) / max(height, 1))
    return max(1, round(math.sqrt(area) / ratio)), max(1, round(math.sqrt(area) * ratio))


def overlay(axis: GridAxis, weights: Tensor, largest: float, size: tuple[int, int], style: OverlayStyle) -> Tensor:
    """Return the image of an axis with weights (R, C) over it: uint8 (3, H, W)."""
    fractions = scale(weights, largest, size, smooth=style.smooth)
    alpha = style.opacity * fractions
    return (picture(axis, size) * (1 - alpha) + colours(fractions) * alpha).round().clamp(0, 255).byte()


def picture(axis: GridAxis, size: tuple[int, int]) -> Tensor:
    """Return the image of an axis in a size, 0 to 255: (3, H, W)."""
    if axis.image is None:
        return torch.full((3, *size), float(PLAIN))
    pixels = axis.image.cpu().float()
    pixels = pixels[:1].expand(3, -1, -1) if len(pixels) < 3 else pixels[:3]
    if size[0] > pixels.shape[1] and max(pixels.shape[1:]) < SMALL:
        return F.interpolate(pixels[None], size, mode="nearest-exact")[0]
    return F.interpolate(pixels[None], size, mode="bilinear", antialias=True)[0]


def scale(weights: Tensor, largest: float, size: tuple[int, int], *, smooth: bool) -> Tensor:
    """Return weights (R, C) as fractions of the largest, one for each pixel: (H, W).

    Where there are more cells than pixels, the largest of them counts.
    """
    if not weights.numel() or largest <= 0:
        return torch.zeros(size)
    cells = (weights.detach().cpu().float() / largest)[None, None]
    fewer = (min(size[0], weights.shape[0]), min(size[1], weights.shape[1]))
    if fewer != tuple(weights.shape):
        cells = F.adaptive_max_pool2d(cells, fewer)
    mode = "bicubic" if smooth else "nearest-exact"
    return F.interpolate(cells, size, mode=mode)[0, 0].clamp(0, 1)


def colours(fractions: Tensor) -> Tensor:
    """Return the colour of each fraction of the largest weight, 0 to 255: (3, H, W)."""
    low, high = (torch.tensor(colour, dtype=torch.float32)[:, None, None] for colour in HEAT)
    return low + (high - low) * fractions


def heat(weights: Tensor, largest: float, size: tuple[int, int], style: OverlayStyle) -> Tensor:
    """Return the colours alone, with their opacity: uint8 (4, H, W)."""
    fractions = scale(weights, largest, size, smooth=style.smooth)
    return torch.cat((colours(fractions), 255 * style.opacity * fractions[None])).round().byte()


def outline(pixels: Tensor, box: Box, thickness: int = 1) -> Tensor:
    """Return pixels (3, H, W) with the outline of a part of the image."""
    _, height, width = pixels.shape
    top, bottom = (round(box[at] * height) for at in (0, 2))
    left, right = (round(box[at] * width) for at in (1, 3))
    bottom, right = max(bottom, top + 1), max(right, left + 1)
    edge = torch.zeros(height, width, dtype=torch.bool)
    edge[top:bottom, left:right] = True
    edge[top + thickness : bottom - thickness, left + thickness : right - thickness] = False
    return torch.where(edge, torch.tensor(MARK, dtype=pixels.dtype)[:, None, None], pixels)
