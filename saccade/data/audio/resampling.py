"""Resampling: band-limited interpolation with a windowed sinc (https://ccrma.stanford.edu/~jos/resample/).

Shapes: T samples, P phases, K taps.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

ZEROS = 24  # zero crossings of the sinc on each side
ROLLOFF = 0.945  # of the lower of the two Nyquist frequencies is passed
BETA = 8.6  # of the Kaiser window: side lobes below -85 dB
BLOCK = 1 << 16  # samples computed at once


def resample(samples: Tensor, rate: int, target_rate: int) -> Tensor:
    """Return samples (T,) at another rate: (ceil(T x target_rate / rate),)."""
    if rate == target_rate:
        return samples
    divisor = math.gcd(rate, target_rate)
    up, down = target_rate // divisor, rate // divisor
    offsets, weights = _filters(up, down)
    reach = weights.shape[1]
    count = -(-len(samples) * up // down)
    padded = torch.nn.functional.pad(samples, (reach, reach + 1))
    taps = torch.arange(reach)
    blocks = []
    for first in range(0, count, BLOCK):
        numbers = torch.arange(first, min(count, first + BLOCK))
        starts = numbers * down // up + offsets[numbers % up] + reach  # first sample that each output reads
        blocks.append((padded[starts[:, None] + taps] * weights[numbers % up]).sum(1))
    return torch.cat(blocks) if blocks else samples[:0]


@lru_cache(maxsize=8)
def _filters(up: int, down: int) -> tuple[Tensor, Tensor]:
    """Return for each of the phases of the output where its filter starts (P,), and the filter (P, K)."""
    cutoff = ROLLOFF * min(1.0, up / down)  # of the Nyquist frequency of the input
    half = math.ceil(ZEROS / cutoff)
    fraction = torch.arange(up, dtype=torch.float64) * down % up / up  # of a sample, behind the one before the output
    distance = torch.arange(-half + 1, half + 1, dtype=torch.float64) - fraction[:, None]  # (P, K)
    inside = (1 - (distance / half).square()).clamp_min(0)
    beta = torch.tensor(BETA, dtype=torch.float64)
    window = torch.special.i0(beta * inside.sqrt()) / torch.special.i0(beta)
    weights = cutoff * torch.sinc(cutoff * distance) * window * (distance.abs() <= half)
    return torch.full((up,), -half + 1), weights.float()
