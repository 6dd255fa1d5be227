"""Self-Attention GAN: a generator of images and a discriminator that tells them from real ones.

SAGAN (https://arxiv.org/abs/1805.08318): residual blocks, self-attention at one resolution, spectral norm in both
networks, hinge loss; with classes, conditional batch norm and a projection (https://arxiv.org/abs/1802.05637).
Shapes: B rows, Z noise, C channels, H x W cells, L labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.nn.ablation import patch_embeddings
from saccade.nn.grid_attention import GridAttention
from saccade.nn.linear import Linear
from saccade.nn.spectral import WEIGHTED, normalize_spectrally

SMALLEST = 4  # cells of the first feature map of a generator, each way, at least; fewer than twice as many


@dataclass(frozen=True)
class GanConfig:
    """Shape of generator and discriminator."""

    noise: int = 64
    """length of the noise vector"""
    generator_width: int = 16
    """channels of the generator at full resolution; doubled at every lower one"""
    discriminator_width: int = 16
    """channels of the discriminator at full resolution; doubled at every lower one"""
    max_width: int = 256
    """most channels at any resolution"""
    attention: int = 0
    """cells of the grid on which all cells attend to each other, each way; 0: half of the image"""
    heads: int = 1
    """heads of this attention"""

    def __post_init__(self) -> None:
        for name in ("noise", "generator_width", "discriminator_width", "max_width", "heads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, but is {getattr(self, name)}")
        if self.attention < 0:
            raise ValueError(f"attention must be 0 or more, but is {self.attention}")

    def channels(self, width: int, halvings: int) -> int:
        """Return the channels at a resolution that is halved so often."""
        return min(self.max_width, width << halvings)

    def grid(self, size: int) -> int:
        """Return the side of the grid of the attention, for images of a size."""
        sides = [size >> halvings for halvings in range(halvings_of(size) + 1)]
        chosen = self.attention or size // 2
        if chosen not in sides:
            listed = ", ".join(map(str, sides))
            raise ValueError(f"attention must be 0 or one of {listed} for images of {size} pixels, but is {chosen}")
        return chosen


def halvings_of(size: int) -> int:
    """Return how often a size can be halved down to the first feature map of a generator."""
    return max(0, (size // SMALLEST).bit_length() - 1)


def fitting_size(size: int) -> int:
    """Return the largest size up to this one that the networks can have: 16, 18, 20, ..., 28, 32, 40, 48, 56, 64."""
    step = 1 << halvings_of(size)
    return size // step * step


class ConditionalNorm(nn.Module):
    """Batch norm whose gain and bias depend on the label, if there are labels."""

    def __init__(self, channels: int, labels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels, affine=False)
        self.gain = nn.Parameter(torch.ones(max(1, labels), channels))
        self.bias = nn.Parameter(torch.zeros(max(1, labels), channels))

    def forward(self, x: Tensor, labels: Tensor | None) -> Tensor:
        gain, bias = (table[labels] if labels is not None else table for table in (self.gain, self.bias))
        result: Tensor = self.norm(x) * gain[:, :, None, None] + bias[:, :, None, None]
        return result


class UpBlock(nn.Module):
    """Residual block that doubles height and width; its first convolution is computed before."""

    def __init__(self, channels: int, out: int, labels: int) -> None:
        super().__init__()
        self.first_norm = ConditionalNorm(channels, labels)
        self.first = nn.Conv2d(channels, out, 3, padding=1)
        self.second_norm = ConditionalNorm(out, labels)
        self.second = nn.Conv2d(out, out, 3, padding=1)
        self.shortcut = nn.Conv2d(channels, out, 1)

    def forward(self, x: Tensor, labels: Tensor | None) -> Tensor:
        y = self.first(F.relu(self.first_norm(x, labels)))
        y = self.second(F.relu(self.second_norm(_double(y), labels)))
        result: Tensor = y + _double(self.shortcut(x))  # (B, out, 2 H, 2 W)
        return result


class DownBlock(nn.Module):
    """Residual block, after which height and width are halved if `halve`."""

    def __init__(self, channels: int, out: int, *, halve: bool, first: bool = False) -> None:
        super().__init__()
        self.halve, self.is_first = halve, first
        self.first = nn.Conv2d(channels, out, 3, padding=1)
        self.second = nn.Conv2d(out, out, 3, padding=1)
        self.shortcut = nn.Conv2d(channels, out, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x if self.is_first else F.relu(x))
        y = self.second(F.relu(y if not self.halve else F.avg_pool2d(y, 2)))
        result: Tensor = y + self.shortcut(F.avg_pool2d(x, 2) if self.halve else x)
        return result


def _double(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2.0)


class Generator(nn.Module):
    """Images from noise."""

    def __init__(self, config: GanConfig, size: int, channels: int, labels: int = 0) -> None:
        super().__init__()
        self.halvings, self.grid, self.labels = halvings_of(size), config.grid(size), labels
        self.side = size >> self.halvings
        widths = [config.channels(config.generator_width, halvings) for halvings in range(self.halvings, -1, -1)]
        self.entry = nn.ConvTranspose2d(config.noise, widths[0], self.side)
        self.blocks = nn.ModuleList(UpBlock(before, after, labels) for before, after in pairwise(widths))
        at = next(number for number in range(self.halvings + 1) if self.side << number == self.grid)
        self.generator_attention = GridAttention(widths[at], config.heads)
        self.norm = nn.BatchNorm2d(widths[-1])
        self.exit = nn.Conv2d(widths[-1], channels, 3, padding=1)
        _initialize(self)
        normalize_spectrally(self)

    def images(self, noise: Tensor, labels: Tensor | None = None) -> Tensor:
        """Return images (B, C, H, W) with values from -1 to 1."""
        cells = self.entry(noise[:, :, None, None]).flatten(2).transpose(1, 2)  # (B, cells, C)
        x = patch_embeddings(cells).transpose(1, 2).unflatten(2, (self.side, self.side))  # (B, C, H, W)
        for block in [None, *self.blocks]:
            if block is not None:
                x = block(x, labels)
            if x.shape[2] == self.grid:
                x = self.generator_attention(x)
        return torch.tanh(self.exit(F.relu(self.norm(x))))

    def forward(self, noise: Tensor, labels: Tensor | None, discriminator: Discriminator) -> Tensor:
        """Return the hinge loss: minus the mean score that the discriminator gives to the images."""
        return -discriminator.scores(self.images(noise, labels), labels).mean()


class Discriminator(nn.Module):
    """Scores of images: high for real ones."""

    def __init__(self, config: GanConfig, size: int, channels: int, labels: int = 0) -> None:
        super().__init__()
        self.grid, halvings = config.grid(size), halvings_of(size)
        widths = [config.channels(config.discriminator_width, number) for number in range(halvings + 1)]
        sides = [size >> min(number + 1, halvings) for number in range(halvings + 1)]
        blocks = [
            DownBlock(before, after, halve=number < halvings, first=number == 0)
            for number, (before, after) in enumerate(zip([channels, *widths], widths, strict=False))
        ]
        self.blocks = nn.ModuleList(blocks)
        self.attention_after = sides.index(min(sides, key=lambda side: abs(side - self.grid)))
        self.discriminator_attention = GridAttention(widths[self.attention_after], config.heads)
        self.head = Linear(widths[-1], 1)
        self.projection = nn.Embedding(labels, widths[-1]) if labels else None
        _initialize(self)
        normalize_spectrally(self)

    def scores(self, images: Tensor, labels: Tensor | None = None) -> Tensor:
        """Return the scores (B,) of images (B, C, H, W) with values from -1 to 1."""
        x = images
        for number, block in enumerate(self.blocks):
            x = block(x)
            if number == self.attention_after:
                x = self.discriminator_attention(x)
        vectors = F.relu(x).mean((2, 3)) * x[0, 0].numel() ** 0.5  # (B, C)
        scores: Tensor = self.head(vectors)[:, 0].float()
        if self.projection is not None and labels is not None:
            scores = scores + (self.projection(labels) * vectors).sum(1).float()
        return scores

    def forward(self, real: Tensor, real_labels: Tensor | None, fake: Tensor, fake_labels: Tensor | None) -> Tensor:
        """Return the hinge loss on real images (uint8) and generated ones (-1 to 1)."""
        images = torch.cat((normalized(real), fake))
        labels = None if real_labels is None or fake_labels is None else torch.cat((real_labels, fake_labels))
        of_real, of_fake = self.scores(images, labels).split((len(real), len(fake)))
        return F.relu(1 - of_real).mean() + F.relu(1 + of_fake).mean()


def normalized(pixels: Tensor) -> Tensor:
    """Return pixels from 0 to 255 as values from -1 to 1."""
    return pixels.float() / 127.5 - 1


def _initialize(network: nn.Module) -> None:
    """Draw orthogonal weights; all biases are 0."""
    for module in network.modules():
        if isinstance(module, WEIGHTED):
            nn.init.orthogonal_(module.weight)
            if isinstance(bias := getattr(module, "bias", None), Tensor):
                nn.init.zeros_(bias)
