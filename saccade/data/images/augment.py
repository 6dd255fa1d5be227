"""Augmentation: random changes of a batch of images, as a pure function of the images, the settings and a seed.

Shapes: B images, H x W pixels, L labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

Images = NDArray[np.uint8]  # (B, H, W, 3)


@dataclass(frozen=True)
class Augment:
    """Random changes of training images; 0 or false: none."""

    flip: bool = True
    """mirror every second image"""
    shift: int = 0
    """largest shift in pixels, in both directions, below the size; the border is reflected"""
    zoom: float = 0.0
    """crop a random part, of at least 1 - zoom of the area, and enlarge it"""
    colour: float = 0.0
    """largest relative change of brightness, contrast and saturation"""
    operations: int = 0
    """operations per image, chosen at random from rotation, shear, colour, posterize, solarize, ... (RandAugment)"""
    magnitude: float = 0.5
    """strength of these operations, 0 to 1"""
    erase: float = 0.0
    """side of an erased square, as a fraction of the image (Cutout)"""
    mixup: float = 0.0
    """mix pairs of images and labels, with weights of a beta distribution of this parameter"""
    cutmix: float = 0.0
    """replace a rectangle by that of another image, with an area of a beta distribution of this parameter"""

    def __post_init__(self) -> None:
        for name in ("shift", "operations", "mixup", "cutmix"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, but is {getattr(self, name)}")
        for name, largest in (("zoom", 0.95), ("colour", 1.0), ("magnitude", 1.0), ("erase", 0.9)):
            if not 0 <= getattr(self, name) <= largest:
                raise ValueError(f"{name} must be from 0 to {largest:g}, but is {getattr(self, name)}")


@dataclass(frozen=True)
class Mixture:
    """Weights of the labels of mixed images: image i has label i by `weight`, and that of `partner` by 1 - weight."""

    partner: Tensor  # (B,)
    weight: Tensor  # (B,)


def augment(images: Images, size: int, config: Augment, seed: int) -> Images:
    """Return images (B, size, size, 3), changed at random; without changes the centre of each."""
    draw = np.random.default_rng(seed)
    images = _crop(images, size, config, draw)
    if config.zoom or config.operations:
        images = _warp_and_recolour(images, config, draw)
    if config.colour:
        images = _jitter(images, config.colour, draw)
    if config.erase:
        images = _erase(images, config.erase, draw)
    return images


def centre(images: Images, size: int) -> Images:
    """Return the centre (B, size, size, 3) of images."""
    top, left = (images.shape[1] - size) // 2, (images.shape[2] - size) // 2
    return images[:, top : top + size, left : left + size]


def _crop(images: Images, size: int, config: Augment, draw: np.random.Generator) -> Images:
    """Return a random crop, shifted beyond the reflected border where `shift` says so, and mirrored."""
    (count, height, width, _), shift = images.shape, config.shift
    tops = draw.integers(0, height - size + 2 * shift, count, endpoint=True)
    lefts = draw.integers(0, width - size + 2 * shift, count, endpoint=True)
    mirrored = np.flatnonzero(draw.random(count) < 0.5) if config.flip else np.zeros(0, np.int64)
    if shift:
        images = _reflect_border(images, shift)
    whole, images = images, np.empty((count, size, size, 3), np.uint8)
    for row, (top, left) in enumerate(zip(tops.tolist(), lefts.tolist(), strict=True)):
        images[row] = whole[row, top : top + size, left : left + size]
    images[mirrored] = _mirror(images[mirrored])
    return images


def _reflect_border(images: Images, border: int) -> Images:
    """Return images with a border on all sides, in which they are reflected: (B, H + 2 border, W + 2 border, 3)."""
    count, height, width, _ = images.shape
    out = np.empty((count, height + 2 * border, width + 2 * border, 3), np.uint8)
    middle = out[:, border:-border]
    middle[:, :, border:-border] = images
    middle[:, :, :border] = _mirror(images[:, :, 1 : border + 1])
    middle[:, :, -border:] = _mirror(images[:, :, -border - 1 : -1])
    out[:, :border] = middle[:, border:0:-1]
    out[:, -border:] = middle[:, -2 : -border - 2 : -1]
    return out


def _mirror(images: Images) -> Images:
    """Return images with their columns in reverse order: (B, H, W, 3); torch does this ten times as fast as NumPy."""
    pixels = torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2)
    return pixels.flip(3).permute(0, 2, 3, 1).numpy()


def _erase(images: Images, fraction: float, draw: np.random.Generator) -> Images:
    """Return images with a grey square, whose centre may be anywhere."""
    count, height, width, _ = images.shape
    half = fraction * height / 2
    rows, columns = draw.uniform(0, height, (count, 1)), draw.uniform(0, width, (count, 1))
    inside = (np.abs(np.arange(height) + 0.5 - rows) < half)[:, :, None]
    inside = inside & (np.abs(np.arange(width) + 0.5 - columns) < half)[:, None, :]
    return np.where(inside[..., None], np.uint8(128), images)


def _jitter(images: Images, strength: float, draw: np.random.Generator) -> Images:
    """Change brightness, contrast and saturation of each image."""
    factors = draw.uniform(1 - strength, 1 + strength, (3, len(images), 1, 1, 1)).astype(np.float32)
    out = images.astype(np.float32) * factors[0]
    mean = out.mean((1, 2, 3), keepdims=True)
    out = mean + (out - mean) * factors[1]
    grey = out.mean(3, keepdims=True)
    out = grey + (out - grey) * factors[2]
    return _to_bytes(out)


# RandAugment (https://arxiv.org/abs/1909.13719). Geometric operations are matrices, multiplied and applied at once.

Matrix = NDArray[np.float64]  # maps a position of the output to one of the input, both from -1 to 1


def _rotate(strength: float) -> Matrix:
    angle = math.radians(30 * strength)
    return np.array([[math.cos(angle), -math.sin(angle), 0], [math.sin(angle), math.cos(angle), 0], [0, 0, 1]])


def _matrix(row: int, column: int, most: float) -> Callable[[float], Matrix]:
    def matrix(strength: float) -> Matrix:
        out = np.eye(3)
        out[row, column] += most * strength
        return out

    return matrix


WARPS: tuple[Callable[[float], Matrix], ...] = (
    _rotate,
    _matrix(0, 1, 0.3),  # shear
    _matrix(1, 0, 0.3),
    _matrix(0, 2, 0.6),  # shift
    _matrix(1, 2, 0.6),
)


def _contrast(image: Images, strength: float) -> NDArray[np.float32]:
    pixels = image.astype(np.float32)
    out: NDArray[np.float32] = pixels.mean() + (pixels - pixels.mean()) * np.float32(1 + 0.9 * strength)
    return out


def _saturation(image: Images, strength: float) -> NDArray[np.float32]:
    grey = image.mean(2, keepdims=True, dtype=np.float32)
    out: NDArray[np.float32] = grey + (image - grey) * np.float32(1 + 0.9 * strength)
    return out


def _brightness(image: Images, strength: float) -> NDArray[np.float32]:
    return image * np.float32(1 + 0.9 * strength)


def _posterize(image: Images, strength: float) -> NDArray[np.float32]:
    bits = round(4 * abs(strength))
    return ((image >> bits) << bits).astype(np.float32)


def _solarize(image: Images, strength: float) -> NDArray[np.float32]:
    return np.where(image >= 256 * (1 - abs(strength)), 255 - image, image).astype(np.float32)


def _autocontrast(image: Images, strength: float) -> NDArray[np.float32]:
    pixels = image.astype(np.float32)
    low, high = pixels.min((0, 1)), pixels.max((0, 1))
    out: NDArray[np.float32] = (pixels - low) * (255 / np.maximum(high - low, 1))
    return out


RECOLOURS: tuple[Callable[[Images, float], NDArray[np.float32]], ...] = (
    _contrast,
    _saturation,
    _brightness,
    _posterize,
    _solarize,
    _autocontrast,
)


def _warp_and_recolour(images: Images, config: Augment, draw: np.random.Generator) -> Images:
    """Zoom into a random part and apply the random operations of each image."""
    count = len(images)
    matrices = np.tile(np.eye(3), (count, 1, 1))
    if config.zoom:
        side = np.sqrt(draw.uniform(1 - config.zoom, 1, count))
        matrices[:, 0, 0] = matrices[:, 1, 1] = side
        matrices[:, :2, 2] = draw.uniform(-1, 1, (count, 2)) * (1 - side[:, None])
    choices = draw.integers(len(WARPS) + len(RECOLOURS), size=(count, config.operations))
    strengths = draw.uniform(-1, 1, (count, config.operations)) * config.magnitude
    images = images.copy()
    for row, (chosen, strength) in enumerate(zip(choices.tolist(), strengths.tolist(), strict=True)):
        for operation, value in zip(chosen, strength, strict=True):
            if operation < len(WARPS):
                matrices[row] = matrices[row] @ WARPS[operation](value)
            else:
                images[row] = _to_bytes(RECOLOURS[operation - len(WARPS)](images[row], value))
    return _warp(images, matrices)


def _warp(images: Images, matrices: Matrix) -> Images:
    """Resample each image at the positions of its matrix, bilinearly; the border is reflected."""
    moved = np.flatnonzero((matrices != np.eye(3)).any((1, 2)))
    if not len(moved):
        return images
    pixels = torch.from_numpy(images[moved]).permute(0, 3, 1, 2).float()
    theta = torch.from_numpy(matrices[moved, :2].astype(np.float32))
    grid = F.affine_grid(theta, list(pixels.shape), align_corners=False)
    out = F.grid_sample(pixels, grid, mode="bilinear", padding_mode="reflection", align_corners=False)
    images[moved] = _to_bytes(out.permute(0, 2, 3, 1).numpy())
    return images


def _to_bytes(values: NDArray[np.float32]) -> Images:
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def mix(images: Images, config: Augment, seed: int) -> tuple[Images, Mixture | None]:
    """Mix the images of a batch with each other by mixup or cutmix; where both are on, one of them at random.

    mixup: https://arxiv.org/abs/1710.09412; cutmix: https://arxiv.org/abs/1905.04899.
    """
    if not (config.mixup or config.cutmix) or len(images) < 2:
        return images, None
    draw = np.random.default_rng([seed, 1])
    partner = draw.permutation(len(images))
    if config.cutmix and (not config.mixup or draw.random() < 0.5):
        mixed, weight = _cut(images, partner, float(draw.beta(config.cutmix, config.cutmix)), draw)
    else:
        weight = float(draw.beta(config.mixup, config.mixup))
        mixed = _to_bytes(weight * images + (1 - weight) * images[partner])
    weights = torch.full((len(images),), weight)
    return mixed, Mixture(torch.from_numpy(partner), weights)


def _cut(images: Images, partner: NDArray[np.int64], weight: float, draw: np.random.Generator) -> tuple[Images, float]:
    """Replace one rectangle in all images; returns the fraction of the area that is left."""
    height, width = images.shape[1:3]
    side = math.sqrt(1 - weight)
    tall, wide = round(side * height), round(side * width)
    top, left = int(draw.integers(height - tall + 1)), int(draw.integers(width - wide + 1))
    mixed = images.copy()
    area = np.s_[:, top : top + tall, left : left + wide]
    mixed[area] = images[partner][area]
    return mixed, 1 - tall * wide / (height * width)
