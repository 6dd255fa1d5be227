"""Ends of recorded episodes: how many terminations per step the demonstrations have, and where that number is from.

N steps, E episodes, D numbers of an observation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from saccade.data.episodes import Episodes
from saccade.errors import UsageError

Kind = Literal["auto", "limit", "terminal"]
FULL = 0.9  # an episode of at least this fraction of the longest one ended at the time limit
JUMP = 4.0  # of an observation, in root mean square of the median change of each number
MARGIN = 0.25  # around the first observations of the environment, as a fraction of their range


@dataclass(frozen=True)
class TerminationRate:
    """Terminations per step of recorded episodes, and a note that says where the number is from."""

    value: float
    note: str


def termination_rate(episodes: Episodes, kind: Kind, first: NDArray[np.float64], limit: int) -> TerminationRate:
    """Return how often recorded episodes end in a terminal state.

    `first` (E, D) and `limit` are those of the environment: observations with which episodes start, and steps at most.
    auto: what the data say. Where they do not, it follows from the lengths of episodes (`_count_early`); where not even
    the ends are marked, an episode starts where the observation jumps to those that the environment starts with.
    """
    starts = episodes.starts if episodes.marked else inferred_starts(episodes.observations, first)
    if kind == "limit":
        return TerminationRate(0.0, "expert_ends=limit: avoiding a terminal state is rewarded, whatever is imitated")
    if kind == "terminal":
        if len(starts) < 2:
            raise UsageError(
                "expert_ends must be auto or limit for data that do not say where episodes end, but is terminal; mark "
                f"the ends in {episodes.origins.file(0)}"
            )
        return TerminationRate(len(starts) / len(episodes), f"expert_ends=terminal: all {len(starts):,} episodes do")
    if episodes.terminated is not None:
        ended = int(episodes.terminated.sum())
        return TerminationRate(ended / len(episodes), f"{ended:,} of {len(starts):,} episodes, as recorded")
    early, how = _count_early(np.diff(np.append(starts, len(episodes))), limit)
    seen = "" if episodes.marked else ", which start where the observation jumps"
    note = f"{early:,} of {len(starts):,} episodes{seen}: {how}; the data do not say, expert_ends can"
    return TerminationRate(early / len(episodes), note)


def _count_early(lengths: NDArray[np.int64], limit: int) -> tuple[int, str]:
    """Return how many episodes ended in a terminal state by their `lengths` (E,), and how that was decided.

    Where several episodes are exactly as long as the longest one, or it has all steps of the environment, a time limit
    ended those that are about as long. The last episode never counts: the recording may have ended before it did.
    """
    longest = int(lengths.max())
    if longest < limit and (lengths == longest).sum() < 2:
        return len(lengths) - 1, "all but the last, since no two of the longest have the same length"
    early = int((lengths[:-1] < FULL * longest).sum())
    return early, f"those shorter than {FULL:.0%} of the longest ones, which a time limit ended after {longest} steps"


def inferred_starts(observations: NDArray[np.float32], first: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the steps (E,) at which an observation (N, D) jumps to where the `first` ones of the environment are."""
    values = observations.astype(np.float64)
    low, high = first.min(0), first.max(0)
    margin = MARGIN * (high - low) + 1e-6
    inside = ((values[1:] >= low - margin) & (values[1:] <= high + margin)).all(1)
    changes = np.abs(np.diff(values, axis=0))
    scale = np.maximum(np.median(changes, axis=0), 1e-9)
    jumps = np.sqrt(np.square(changes / scale).mean(1)) > JUMP
    return np.append(0, np.flatnonzero(inside & jumps) + 1)
