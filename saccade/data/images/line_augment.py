"""Augmentation of lines of text: random changes of a batch, as a pure function of the images, the settings and a seed.

Shapes: B images, H x W pixels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from saccade.data.images.augment import Images


@dataclass(frozen=True)
class LineAugment:
    """Random changes of training images of text; 0: none."""

    shift: float = 2.0
    """largest shift in pixels, in both directions; the border is repeated"""
    slant: float = 0.15
    """largest shear: pixels to the side for each pixel of height"""
    contrast: float = 0.3
    """largest relative change of contrast and brightness"""
    noise: float = 10.0
    """largest standard deviation of noise, of 255 levels of grey"""

    def __post_init__(self) -> None:
        for name, largest in (("shift", 100.0), ("slant", 1.0), ("contrast", 1.0), ("noise", 128.0)):
            if not 0 <= getattr(self, name) <= largest:
                raise ValueError(f"{name} must be from 0 to {largest:g}, but is {getattr(self, name)}")


def augment_lines(images: Images, config: LineAugment, seed: int) -> Images:
    """Return images (B, H, W, 3), each shifted, slanted, with another contrast and noise."""
    draw = np.random.default_rng(seed)
    values = images.astype(np.float32)
    if config.shift or config.slant:
        values = _shear(values, config, draw)
    if config.contrast:
        factor, offset = draw.uniform(-config.contrast, config.contrast, (2, len(images), 1, 1, 1)).astype(np.float32)
        mean = values.mean((1, 2, 3), keepdims=True)
        values = mean + (values - mean) * (1 + factor) + 128 * offset
    if config.noise:
        deviation = draw.uniform(0, config.noise, (len(images), 1, 1, 1)).astype(np.float32)
        values = values + deviation * draw.standard_normal((*values.shape[:3], 1), dtype=np.float32)
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def _shear(values: np.ndarray, config: LineAugment, draw: np.random.Generator) -> np.ndarray:
    """Shift and slant each image, bilinearly; beyond the border the nearest pixel is repeated."""
    count, height, width, _ = values.shape
    across, down = draw.uniform(-config.shift, config.shift, (2, count))
    slant = draw.uniform(-config.slant, config.slant, count)
    theta = np.zeros((count, 2, 3), dtype=np.float32)  # maps a position of the output to one of the input, -1 to 1
    theta[:, 0, 0] = theta[:, 1, 1] = 1
    theta[:, 0, 1], theta[:, 0, 2], theta[:, 1, 2] = slant * height / width, 2 * across / width, 2 * down / height
    pixels = torch.from_numpy(values).permute(0, 3, 1, 2)
    grid = F.affine_grid(torch.from_numpy(theta), list(pixels.shape), align_corners=False)
    moved = F.grid_sample(pixels, grid, mode="bilinear", padding_mode="border", align_corners=False)
    return moved.permute(0, 2, 3, 1).numpy()
