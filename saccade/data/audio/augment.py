"""Augmentation of features: SpecAugment and changes of speed, as a pure function of features, settings and a seed.

https://arxiv.org/abs/1904.08779. Shapes: B sounds, N frames, F bands.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.data.audio.log_mel import hz_to_mel, mel_to_hz


@dataclass(frozen=True)
class AudioAugment:
    """Random changes of training sounds; 0: none."""

    speed: float = 0.1
    """largest relative change of speed; as on a tape, the pitch changes with it"""
    time_masks: int = 2
    """masks over time of each sound, in which all bands are set to their mean"""
    time_mask: float = 0.1
    """largest width of a time mask, as a part of the sound"""
    frequency_masks: int = 2
    """masks over frequency of each sound"""
    frequency_mask: int = 8
    """largest width of a frequency mask in bands"""

    def __post_init__(self) -> None:
        for name, largest in (("speed", 0.5), ("time_mask", 1.0)):
            if not 0 <= getattr(self, name) <= largest:
                raise ValueError(f"{name} must be from 0 to {largest:g}, but is {getattr(self, name)}")
        for name in ("time_masks", "frequency_masks", "frequency_mask"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, but is {getattr(self, name)}")


def augment_features(
    features: Tensor, lengths: Tensor, config: AudioAugment, rate: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Return features (B, N, F), 0 after the `lengths` (B,), at other speeds and with masks, and their new lengths."""
    draw = np.random.default_rng(seed)
    if config.speed:
        speeds = 1 + draw.uniform(-config.speed, config.speed, len(features))
        features, lengths = change_speed(features, lengths, torch.from_numpy(speeds), rate)
    keep = torch.ones(features.shape, dtype=torch.bool)
    for _ in range(config.time_masks):
        widths = np.floor(draw.uniform(0, config.time_mask, len(features)) * lengths.numpy())
        keep &= _outside(features.shape[1], lengths.numpy(), widths, draw)[:, :, None]
    for _ in range(config.frequency_masks):
        bands = np.full(len(features), features.shape[2])
        widths = draw.integers(0, min(config.frequency_mask, features.shape[2]) + 1, len(features))
        keep &= _outside(features.shape[2], bands, widths, draw)[:, None, :]
    return features * keep, lengths


def _outside(size: int, lengths: np.ndarray, widths: np.ndarray, draw: np.random.Generator) -> Tensor:
    """Return which positions are outside of one random interval of each row: (B, size)."""
    first = np.floor(draw.uniform(0, 1, len(lengths)) * (lengths - widths + 1))[:, None]
    positions = np.arange(size)
    return torch.from_numpy((positions < first) | (positions >= first + widths[:, None]))


def change_speed(features: Tensor, lengths: Tensor, speeds: Tensor, rate: int) -> tuple[Tensor, Tensor]:
    """Return features (B, N, F) of sounds that are played at other speeds (B,): times are divided, frequencies scaled.

    Interpolated linearly in time and between the bands of the mel scale.
    """
    frames, bands = features.shape[1:]
    changed = (lengths / speeds).round().long().clamp_min(1)
    times = torch.arange(int(changed.max())) * speeds[:, None]  # (B, N'), where each frame is read
    mel = float(hz_to_mel(torch.tensor(rate / 2))) / (bands + 1)
    centres = mel_to_hz(mel * torch.arange(1, bands + 1, dtype=torch.float64))  # in Hz
    places = hz_to_mel(centres / speeds[:, None]) / mel - 1  # (B, F), where each band is read
    grid = torch.stack(
        torch.broadcast_tensors(_scaled(places, bands)[:, None, :], _scaled(times, frames)[:, :, None]), dim=-1
    )
    moved = F.grid_sample(features[:, None], grid.float(), mode="bilinear", padding_mode="border", align_corners=True)[
        :, 0
    ]
    real = torch.arange(moved.shape[1]) < changed[:, None]
    return moved * real[..., None], changed


def _scaled(positions: Tensor, size: int) -> Tensor:
    """Return positions 0 to size - 1 as -1 to 1."""
    return 2 * positions / max(1, size - 1) - 1
