"""Lengths: how long the sources and targets of a file are, next to data that others have published results on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from saccade import atomic_io

# Tokens in, tokens out, examples, as orders of magnitude.
PUBLISHED = (
    ("Gigaword", "10^1", "10^1", "10^6"),
    ("CNN/DailyMail", "10^2-10^3", "10^1", "10^5"),
    ("WikiSum", "10^2-10^6", "10^1-10^3", "10^6"),
)


@dataclass(frozen=True)
class Spread:
    """What is typical, what nine in ten do not exceed, and the longest."""

    median: int
    most: int
    max_length: int

    @classmethod
    def of(cls, lengths: Sequence[int]) -> Spread:
        half, most = (int(value) for value in np.percentile(lengths, (50, 90), method="inverted_cdf"))
        return cls(half, most, max(lengths))

    def order(self) -> str:
        """From the typical to the long ones in powers of ten: 10^2, or 10^2-10^3."""
        low, high = _power(self.median), _power(self.most)
        return low if low == high else f"{low}-{high}"


def table(lengths: Sequence[tuple[int, int]]) -> list[str]:
    """The lengths of pairs (source, target) in lines for people, above the published rows."""
    source, target = (Spread.of(side) for side in zip(*lengths, strict=True))
    sides = [("source", source), ("target", target)]
    measured = [f"{name:<14}{one.median:>10,}{one.most:>10,}{one.max_length:>10,}" for name, one in sides]
    rows = [("your data", source.order(), target.order(), _power(len(lengths))), *PUBLISHED]
    orders = [f"{name:<14}in {one}, out {other}, {count} examples" for name, one, other, count in rows]
    return [f"{'tokens':<14}{'median':>10}{'90%':>10}{'max_length':>10}", *measured, *orders]


def save_room(targets: Sequence[int], assets: Path) -> None:
    """Keep how long a target may become: half as long again as nine in ten are, and a little more."""
    atomic_io.write_json(assets / "lengths.json", {"target": Spread.of(targets).most * 3 // 2 + 10})


def load_room(assets: Path) -> int:
    """Most tokens of a target, as `save_room` kept it."""
    return int(atomic_io.read_json(assets / "lengths.json")["target"])


def _power(number: int) -> str:
    return f"10^{int(math.log10(max(1, number)))}"
