"""Scaling of rotary frequencies, which extends a trained model to longer contexts.

Each kind is computed as transformers computes it, so that imported weights give the same numbers. Shapes: E head width.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True)
class RotaryScaling:
    """How the frequencies of a rotary positional embedding are changed."""

    kind: Literal["none", "linear", "dynamic", "yarn", "llama3"] = "none"
    """linear: position interpolation (https://arxiv.org/abs/2306.15595); dynamic: NTK-aware base for texts longer than
    the original context; yarn (https://arxiv.org/abs/2309.00071); llama3: as Llama 3.1"""
    factor: float = 1.0
    """how many times longer the context becomes"""
    original_positions: int = 0
    """context length before scaling (dynamic, yarn, llama3)"""
    attention_factor: float = 1.0
    """yarn: q and k are multiplied by it"""
    beta_fast: float = 32.0
    """yarn: frequencies with more rotations than this in the original context stay as they are"""
    beta_slow: float = 1.0
    """yarn: frequencies with fewer rotations than this are interpolated"""
    truncate: bool = True
    """yarn: round the limits of the frequencies between both to whole dimensions"""
    low_frequency_factor: float = 1.0
    """llama3: wavelengths longer than the original context divided by it are interpolated"""
    high_frequency_factor: float = 4.0
    """llama3: wavelengths shorter than the original context divided by it stay as they are"""

    def __post_init__(self) -> None:
        if self.factor <= 0 or self.attention_factor <= 0:
            raise ValueError(
                f"factor and attention_factor must be above 0, but are {self.factor} and {self.attention_factor}"
            )
        if self.kind in ("dynamic", "yarn", "llama3") and self.original_positions < 1:
            raise ValueError(f"original_positions must be at least 1 for {self.kind}, but is {self.original_positions}")
        if self.kind == "llama3" and not 0 < self.low_frequency_factor < self.high_frequency_factor:
            raise ValueError(
                "high_frequency_factor must be above low_frequency_factor, which must be above 0, but they are "
                f"{self.high_frequency_factor} and {self.low_frequency_factor}"
            )
        if self.kind == "yarn" and min(self.beta_fast, self.beta_slow) <= 0:
            raise ValueError(f"beta_fast and beta_slow must be above 0, but are {self.beta_fast} and {self.beta_slow}")

    def frequencies(self, width: int, base: float, length: int, device: torch.device) -> Tensor:
        """Return the angle per position of each pair of features, for a text of this length: (E/2,)."""
        if self.kind == "dynamic":
            base = self._dynamic_base(width, base, length)
        exponents = torch.arange(0, width, 2, device=device, dtype=torch.float32) / width
        frequencies = 1.0 / base**exponents
        if self.kind == "linear":
            return frequencies / self.factor
        if self.kind == "yarn":
            return self._yarn(frequencies, 1.0 / (self.factor * base**exponents), width, base)
        return self._llama3(frequencies) if self.kind == "llama3" else frequencies

    def depends_on(self, length: int) -> bool:
        """Whether a text of this length has frequencies of its own."""
        return self.kind == "dynamic" and length > self.original_positions

    def _dynamic_base(self, width: int, base: float, length: int) -> float:
        length = max(length, self.original_positions)
        stretch = self.factor * length / self.original_positions - (self.factor - 1)
        return base * math.pow(stretch, width / (width - 2))

    def _yarn(self, kept: Tensor, interpolated: Tensor, width: int, base: float) -> Tensor:
        """Blend both frequencies by a ramp over the dimensions between `beta_fast` and `beta_slow` rotations."""

        def dimension(rotations: float) -> float:
            return width * math.log(self.original_positions / (rotations * 2 * math.pi)) / (2 * math.log(base))

        low, high = dimension(self.beta_fast), dimension(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, width - 1)
        steps = torch.arange(len(kept), device=kept.device, dtype=torch.float32)
        ramp = ((steps - low) / (high - low or 0.001)).clamp(0, 1)
        keep = 1 - ramp
        return interpolated * (1 - keep) + kept * keep

    def _llama3(self, frequencies: Tensor) -> Tensor:
        """Interpolate long wavelengths, keep short ones, and blend those between."""
        original, low, high = self.original_positions, self.low_frequency_factor, self.high_frequency_factor
        wavelength = 2 * math.pi / frequencies
        scaled = torch.where(wavelength > original / low, frequencies / self.factor, frequencies)
        smooth = (original / wavelength - low) / (high - low)
        blended = (1 - smooth) * scaled / self.factor + smooth * scaled
        between = (wavelength >= original / high) & (wavelength <= original / low)
        return torch.where(between, blended, scaled)
