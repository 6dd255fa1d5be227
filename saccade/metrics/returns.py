"""Returns: the sum of rewards of episodes, with its mean, standard deviation and bootstrap interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

RESAMPLES = 2000


@dataclass(frozen=True)
class ReturnScore:
    """The returns of several episodes, summarised."""

    mean: float
    deviation: float
    low: float
    high: float
    """bounds of the 95% bootstrap interval of the mean"""
    episodes: int

    def describe(self) -> str:
        """Return the score for the user: 487.2 ± 31.0 (95% interval 480.1 to 492.9, 100 episodes)."""
        interval = f"95% interval {self.low:.1f} to {self.high:.1f}, {self.episodes} episodes"
        return f"{self.mean:.1f} ± {self.deviation:.1f} ({interval})"


def summarise(returns: ArrayLike, seed: int = 1) -> ReturnScore:
    """Return mean, standard deviation, and the percentile bootstrap interval of the mean (Efron, 1979)."""
    values: NDArray[np.float64] = np.asarray(returns, dtype=np.float64)
    if not len(values):
        raise ValueError("there must be at least one episode")
    draw = np.random.default_rng(seed)
    means = values[draw.integers(len(values), size=(RESAMPLES, len(values)))].mean(1)
    low, high = (float(bound) for bound in np.percentile(means, [2.5, 97.5]))
    return ReturnScore(float(values.mean()), float(values.std()), low, high, len(values))
