"""Lengths: how long the sources and targets of a file are, compared with published datasets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from saccade import atomic_io

LENGTHS = "lengths.json"
MAX_RATE = 50.0  # tokens per second; fast speech has 25 letters
# Tokens in, tokens out, examples, as orders of magnitude.
PUBLISHED = (
    ("Gigaword", "10^1", "10^1", "10^6"),
    ("CNN/DailyMail", "10^2-10^3", "10^1", "10^5"),
    ("WikiSum", "10^2-10^6", "10^1-10^3", "10^6"),
)


@dataclass(frozen=True)
class LengthSummary:
    """The median, the 90th percentile and the maximum of some lengths."""

    median: int
    percentile_90: int
    longest: int

    @classmethod
    def of(cls, lengths: ArrayLike) -> LengthSummary:
        values = np.asarray(lengths)
        median, percentile_90 = (int(value) for value in np.percentile(values, (50, 90), method="inverted_cdf"))
        return cls(median, percentile_90, int(values.max()))

    def order(self) -> str:
        """Return the range from the median to the 90th percentile in powers of ten: 10^2, or 10^2-10^3."""
        low, high = _power(self.median), _power(self.percentile_90)
        return low if low == high else f"{low}-{high}"


def length_table(lengths: ArrayLike) -> list[str]:
    """Return a table of the lengths (N, 2) of sources and targets for the user, followed by published datasets."""
    values = np.asarray(lengths)
    source, target = LengthSummary.of(values[:, 0]), LengthSummary.of(values[:, 1])
    measured = [
        f"{name:<14}{side.median:>10,}{side.percentile_90:>10,}{side.longest:>10,}"
        for name, side in (("source", source), ("target", target))
    ]
    rows = [("your data", source.order(), target.order(), _power(len(values))), *PUBLISHED]
    orders = [f"{name:<14}in {inputs}, out {outputs}, {count} examples" for name, inputs, outputs, count in rows]
    return [f"{'tokens':<14}{'median':>10}{'90%':>10}{'longest':>10}", *measured, *orders]


def save_max_target_length(
    targets: Sequence[int] | ArrayLike, assets: Path, seconds: NDArray[np.float64] | None = None
) -> None:
    """Save the maximum length of a generated target: 1.5 x the 90th percentile + 10 tokens.

    `seconds`: lengths of the recordings, if the sources are such. The highest rate of tokens per second is then saved
    too, at most `MAX_RATE`: a wrong text of a short recording may have any.
    """
    limits: dict[str, float] = {"target": LengthSummary.of(targets).percentile_90 * 3 // 2 + 10}
    if seconds is not None:
        limits["per_second"] = min(MAX_RATE, float((np.asarray(targets) / seconds).max()))
    atomic_io.write_json(assets / LENGTHS, limits)


def load_max_target_length(assets: Path) -> int:
    """Return the maximum length of a generated target, as `save_max_target_length` stored it."""
    return int(atomic_io.read_json(assets / LENGTHS)["target"])


def load_token_rate(assets: Path) -> float:
    """Return the highest number of target tokens per second of sound; 0 where it was not saved."""
    return float(atomic_io.read_json(assets / LENGTHS).get("per_second", 0.0))


def _power(number: int) -> str:
    return f"10^{int(math.log10(max(1, number)))}"
