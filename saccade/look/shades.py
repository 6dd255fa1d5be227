"""Shades in a terminal: weights as block characters or a ramp of background colours, pixels as half blocks."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from saccade.look.labels import cells
from saccade.look.overlay import HEAT

BLOCKS = " ░▒▓█"
THRESHOLDS = (0.05, 0.25, 0.5, 0.75)  # fractions of the largest weight from which each block but the first is used
HALF = "▀"  # its upper half has the colour of the text, its lower half that of the background
RESET = "\x1b[0m"
Colour = tuple[int, ...]
# From nearly black to light yellow: readable with any colour blindness, on light and dark terminals alike.
RAMP: tuple[Colour, ...] = ((16, 18, 40), (32, 62, 120), (40, 120, 140), (110, 180, 110), (250, 230, 90))


def shaded_row(weights: Sequence[float], largest: float, colour: bool) -> str:
    """Return a row of weights, two cells each."""
    fractions = [weight / largest if largest > 0 else 0.0 for weight in weights]
    if not colour:
        return "".join(2 * block(fraction) for fraction in fractions)
    return "".join(f"\x1b[48;2;{_code(ramp(fraction))}m  " for fraction in fractions) + RESET


def block(fraction: float) -> str:
    """Return the character for a fraction of the largest weight."""
    return BLOCKS[sum(fraction >= step for step in THRESHOLDS)]


def half_blocks(pixels: Tensor) -> list[str]:
    """Return pixels (3, H, W) as lines of H / 2 coloured half blocks; of an odd number of rows the last is repeated."""
    rows = pixels.permute(1, 2, 0).tolist()
    lines = []
    for top in range(0, len(rows), 2):
        line, before = "", ("", "")
        for upper, lower in zip(rows[top], rows[min(top + 1, len(rows) - 1)], strict=True):
            codes = (f"\x1b[38;2;{_code(upper)}m", f"\x1b[48;2;{_code(lower)}m")
            line += "".join(code for code, last in zip(codes, before, strict=True) if code != last) + HALF
            before = codes
        lines.append(line + RESET)
    return lines


def ramp(fraction: float, colours: Sequence[Colour] = RAMP) -> Colour:
    """Return the colour of a fraction of the largest weight."""
    position = min(max(fraction, 0.0), 1.0) * (len(colours) - 1)
    low = min(int(position), len(colours) - 2)
    return tuple(round(a + (b - a) * (position - low)) for a, b in zip(colours[low], colours[low + 1], strict=True))


def legend(largest: float, width: int, colour: bool, *, over_image: bool = False) -> list[str]:
    """Return lines that explain the shades, if they fit; over an image they have other colours."""
    if colour:
        colours = HEAT if over_image else RAMP
        bar = "".join(f"\x1b[48;2;{_code(ramp(number / 9, colours))}m " for number in range(10)) + RESET
        line, needed = f"0 {bar} {largest:.2f}", 17
    else:
        line = "  ".join(f"{sign} {step * largest:.2f}" for sign, step in zip(BLOCKS[1:], THRESHOLDS, strict=True))
        needed = cells(line)
    return ["", line] if needed <= width else []


def _code(colour: Sequence[int]) -> str:
    return ";".join(map(str, colour))
