"""The colours of the weights of a matrix: one ramp from no weight to the largest, for light and for dark figures.

The pages of the studio have the same stops (static/studio.js).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from saccade.look.shades import Colour, ramp

LIGHT: tuple[Colour, ...] = ((255, 255, 255), (190, 212, 245), (98, 146, 222), (26, 86, 196), (10, 32, 92))
DARK: tuple[Colour, ...] = ((20, 23, 27), (30, 58, 104), (46, 104, 178), (109, 177, 255), (224, 240, 255))
LEVELS = 64  # colours of a figure


def levels(weights: Tensor, *, sqrt: bool) -> Tensor:
    """Return the level of each weight, of the largest or of its square root: int64, 0 to LEVELS - 1."""
    weights = weights.detach().float().cpu().nan_to_num().clamp_min(0)
    fractions = weights / max(float(weights.max()) if weights.numel() else 0.0, 1e-9)
    values: Tensor = (LEVELS - 1) * (fractions.sqrt() if sqrt else fractions)
    return values.round().long()


def scale(*, sqrt: bool, steps: int = 32) -> list[int]:
    """Return the levels of a colour scale from 0 to the largest weight, evenly spaced in the weight."""
    return [int(level) for level in levels(torch.linspace(0, 1, steps), sqrt=sqrt)]


def colours(stops: Sequence[Colour] = LIGHT) -> list[Colour]:
    """Return the colour of every level."""
    return [ramp(level / (LEVELS - 1), stops) for level in range(LEVELS)]


def css() -> str:
    """Return the classes l0, l1, ... of the levels for an SVG, in light and dark."""
    light, dark = (
        "".join(f".l{level}{{fill:#{bytes(colour).hex()}}}" for level, colour in enumerate(colours(stops)))
        for stops in (LIGHT, DARK)
    )
    return f"{light}@media(prefers-color-scheme:dark){{{dark}}}"
