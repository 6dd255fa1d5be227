"""Settings, batches and options of image generation.

Shapes: B rows, K discriminator steps, Z noise, C channels, H x W pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from saccade.core import PredictOptions
from saccade.data.images.augment import Augment
from saccade.data.settings import ImageSettings
from saccade.errors import UsageError, suggest
from saccade.models.vision.gan import GanConfig, fitting_size

SMALLEST, LARGEST = 16, 64  # pixels of a side
MOST_SAMPLES = 400


@dataclass(frozen=True)
class GenerationConfig:
    """All settings of a generative adversarial network except those of the training loop."""

    data: ImageSettings = field(default_factory=ImageSettings)
    model: GanConfig = field(default_factory=GanConfig)
    augment: Augment = field(default_factory=lambda: Augment(flip=False))
    """random changes of the training images, which the generator learns to imitate too"""
    conditional: Literal["auto", "yes", "no"] = "auto"
    """whether the images of each class are generated on their own; auto: where the data have labels"""
    size: int = 0
    """height and width of the images in pixels, 16 to 64; 0: that of the images, at most 64"""
    colour: Literal["auto", "grey", "rgb"] = "auto"
    """auto: grey if all training images are"""
    batch_size: int = 64
    """real images, and as many generated ones, per update"""
    discriminator_steps: int = 1
    """updates of the discriminator for each one of the generator"""
    discriminator_lr: float = 0.0012
    """peak learning rate of AdamW for the discriminator (two time-scale update rule); that of the generator is
    train.optim.lr"""
    discriminator_matrix_lr: float = 0.02
    """peak learning rate of Muon for the discriminator; that of the generator is train.optim.matrix_lr"""

    def __post_init__(self) -> None:
        for name, least in (("batch_size", 2), ("discriminator_steps", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, but is {getattr(self, name)}")
        for name in ("discriminator_lr", "discriminator_matrix_lr"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, but is {getattr(self, name)}")
        if self.size:
            if not SMALLEST <= self.size <= LARGEST:
                raise ValueError(f"size must be 0 or from {SMALLEST} to {LARGEST}, but is {self.size}")
            if fitting_size(self.size) != self.size:
                smaller = fitting_size(self.size)
                raise ValueError(
                    f"size must be a number that can be halved down to 4 to 7 cells, but is {self.size}; try {smaller}"
                )
            self.model.grid(self.size)
        if self.augment.mixup or self.augment.cutmix:
            raise ValueError("augment.mixup and augment.cutmix must be 0 to generate images, but are not")


@dataclass(frozen=True)
class SampleOptions(PredictOptions):
    """Options of a generated image."""

    seed: int = 1
    """random seed of the noise; several images have the seeds that follow it"""
    label: str = ""
    """class of the image, for a conditional model; empty: drawn by the seed"""
    samples: int = 1
    """images to generate"""
    to_seed: int = -1
    """interpolate from the noise of seed to that of this seed; -1: do not"""
    position: float = 0.5
    """with to_seed, position of a single image between both, 0 to 1; several ones are spread evenly"""

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 1 << 53:
            raise ValueError(f"seed must be at least 0 and below 2^53, but is {self.seed}")
        if not -1 <= self.to_seed < 1 << 53:
            raise ValueError(f"to_seed must be -1 or a seed below 2^53, but is {self.to_seed}")
        if not 1 <= self.samples <= MOST_SAMPLES:
            raise ValueError(f"samples must be from 1 to {MOST_SAMPLES}, but is {self.samples}")
        if not 0 <= self.position <= 1:
            raise ValueError(f"position must be from 0 to 1, but is {self.position}")


@dataclass(frozen=True)
class GanBatch:
    """Real images with their labels, and the noise and labels of generated ones for each update.

    The last row of `noise` and `fake_labels` is for the update of the generator, those before for the discriminator.
    """

    pixels: Tensor
    """(B, 3, H, W)"""
    labels: Tensor
    """(B,); zeros without labels"""
    rows: list[str]
    noise: Tensor
    """(K + 1, B, Z)"""
    fake_labels: Tensor
    """(K + 1, B)"""

    @property
    def count(self) -> int:
        return len(self.pixels)

    @property
    def units(self) -> int:
        return len(self.pixels)

    def to(self, device: Any) -> GanBatch:
        tensors = {name: getattr(self, name).to(device) for name in ("pixels", "labels", "noise", "fake_labels")}
        return replace(self, **tensors)

    def part(self, number: int, parts: int) -> tuple[Tensor, Tensor]:
        """Return the real images and labels of one of several updates; a batch that is too small is used again."""
        chosen = slice(number % len(self.pixels), None, parts)
        return self.pixels[chosen], self.labels[chosen]


def noise_of(seed: int, length: int) -> Tensor:
    """Return the noise (Z,) of a seed."""
    return torch.randn(length, generator=torch.Generator().manual_seed(seed))


def label_of(seed: int, labels: int) -> int:
    """Return the label that a seed draws."""
    generator = torch.Generator().manual_seed(seed)
    return int(torch.randint(max(1, labels), (8,), generator=generator)[-1])


def interpolate(first: Tensor, last: Tensor, position: float) -> Tensor:
    """Return noise on the great circle between two vectors, whose lengths are interpolated too."""
    cosine = torch.nn.functional.cosine_similarity(first, last, dim=0).clamp(-1, 1)
    angle = torch.acos(cosine)
    if float(angle.sin()) < 1e-4:  # parallel, or the same
        return torch.lerp(first, last, position)
    weights = torch.sin((1 - position) * angle) / angle.sin(), torch.sin(position * angle) / angle.sin()
    direction = weights[0] * first / first.norm() + weights[1] * last / last.norm()
    between: Tensor = direction * torch.lerp(first.norm(), last.norm(), position)
    return between


def latent_vectors(options: SampleOptions, length: int) -> list[Tensor]:
    """Return the noise (Z,) of each image that the options ask for."""
    if options.to_seed < 0:
        return [noise_of(options.seed + number, length) for number in range(options.samples)]
    ends = noise_of(options.seed, length), noise_of(options.to_seed, length)
    if options.samples == 1:
        return [interpolate(*ends, options.position)]
    return [interpolate(*ends, number / (options.samples - 1)) for number in range(options.samples)]


def check_label(label: str, labels: Sequence[str]) -> None:
    """Refuse a label that the model does not have."""
    if label and not labels:
        raise UsageError(f"label must be empty, but is '{label}': this model was trained without labels")
    if label and label not in labels:
        raise UsageError(f"no label '{label}'{suggest(label, list(labels))}")
