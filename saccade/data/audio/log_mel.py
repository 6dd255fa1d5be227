"""Log-mel features: the energy of a sound in bands of the mel scale, every few milliseconds.

Shapes: T samples, N frames, F bands.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

FLOOR = 1e-7  # energy that counts as silence
MIN_DEVIATION = 0.5  # of the logarithm in a band; less is not amplified


@dataclass(frozen=True)
class LogMel:
    """How samples become features."""

    rate: int
    """samples per second"""
    bands: int = 40
    """bands of the mel scale"""
    window: float = 0.025
    """seconds of a frame"""
    hop: float = 0.01
    """seconds from the start of a frame to that of the next"""

    def __post_init__(self) -> None:
        for name, least in (("rate", 1000), ("bands", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, but is {getattr(self, name)}")
        if not 0 < self.hop <= self.window <= 1:
            raise ValueError(f"hop and window must be 0 < hop <= window <= 1, but are {self.hop} and {self.window}")

    @property
    def window_samples(self) -> int:
        return round(self.window * self.rate)

    @property
    def hop_samples(self) -> int:
        return round(self.hop * self.rate)

    @property
    def fft_size(self) -> int:
        """The window, padded to a power of two."""
        return 1 << (self.window_samples - 1).bit_length()

    def frames(self, samples: int) -> int:
        """Return the number of frames of this many samples: frame n starts at sample n x hop."""
        return -(-samples // self.hop_samples)


def log_mel(samples: Tensor, settings: LogMel) -> Tensor:
    """Return the logarithm of the energies (N, F) of samples (T,) in mel bands."""
    count = settings.frames(len(samples))
    total = (count - 1) * settings.hop_samples + settings.fft_size
    padded = F.pad(samples.float(), (0, max(0, total - len(samples))))[:total]
    frames = padded.unfold(0, settings.fft_size, settings.hop_samples)[:, : settings.window_samples]
    window = torch.hann_window(settings.window_samples)
    power = torch.fft.rfft(frames * window, n=settings.fft_size).abs().square()  # (N, fft_size / 2 + 1)
    energies = power @ mel_filters(settings.rate, settings.fft_size, settings.bands) / window.square().sum()
    features: Tensor = (energies + FLOOR).log()
    return features


def standardize(features: Tensor) -> Tensor:
    """Return features (N, F) with mean 0 and at most variance 1 in every band: loudness and microphone drop out."""
    mean, deviation = features.mean(0), features.std(0, correction=0)
    return (features - mean) / deviation.clamp_min(MIN_DEVIATION)


@lru_cache(maxsize=8)
def mel_filters(rate: int, fft_size: int, bands: int) -> Tensor:
    """Return triangular filters (fft_size / 2 + 1, F), equally wide on the mel scale and overlapping by half."""
    edges = mel_to_hz(torch.linspace(0.0, float(hz_to_mel(torch.tensor(rate / 2))), bands + 2, dtype=torch.float64))
    frequencies = torch.arange(fft_size // 2 + 1, dtype=torch.float64)[:, None] * rate / fft_size
    rising = (frequencies - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - frequencies) / (edges[2:] - edges[1:-1])
    return torch.minimum(rising, falling).clamp_min(0).float()


def hz_to_mel(frequency: Tensor) -> Tensor:
    """m = 2595 log10(1 + f / 700)."""
    return 2595 * torch.log10(1 + frequency / 700)


def mel_to_hz(mel: Tensor) -> Tensor:
    """f = 700 (10^(m / 2595) - 1)."""
    return 700 * (10 ** (mel / 2595) - 1)
