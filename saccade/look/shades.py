"""Shades of a weight in a terminal: block characters, or a ramp of background colours."""

from __future__ import annotations

from collections.abc import Sequence

from saccade.look.labels import cells

BLOCKS = " ░▒▓█"
THRESHOLDS = (0.05, 0.25, 0.5, 0.75)  # fractions of the largest weight from which each block but the first is used
# From nearly black to light yellow: readable with any colour blindness, on light and dark terminals alike.
RAMP = ((16, 18, 40), (32, 62, 120), (40, 120, 140), (110, 180, 110), (250, 230, 90))


def shaded_row(weights: Sequence[float], largest: float, colour: bool) -> str:
    """Return a row of weights, two cells each."""
    fractions = [weight / largest if largest > 0 else 0.0 for weight in weights]
    if not colour:
        return "".join(2 * BLOCKS[sum(fraction >= step for step in THRESHOLDS)] for fraction in fractions)
    return "".join(f"\x1b[48;2;{';'.join(map(str, ramp(fraction)))}m  " for fraction in fractions) + "\x1b[0m"


def ramp(fraction: float) -> tuple[int, ...]:
    """Return the colour of a fraction of the largest weight."""
    position = min(max(fraction, 0.0), 1.0) * (len(RAMP) - 1)
    low = min(int(position), len(RAMP) - 2)
    return tuple(round(a + (b - a) * (position - low)) for a, b in zip(RAMP[low], RAMP[low + 1], strict=True))


def legend(largest: float, width: int, colour: bool) -> list[str]:
    """Return lines that explain the shades, if they fit."""
    if colour:
        bar = "".join(f"\x1b[48;2;{';'.join(map(str, ramp(number / 9)))}m " for number in range(10)) + "\x1b[0m"
        line, needed = f"0 {bar} {largest:.2f}", 17
    else:
        line = "  ".join(f"{block} {step * largest:.2f}" for block, step in zip(BLOCKS[1:], THRESHOLDS, strict=True))
        needed = cells(line)
    return ["", line] if needed <= width else []
