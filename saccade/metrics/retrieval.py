"""Metrics of retrieval: how often one of the right candidates is among the best, and at which rank."""

from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, median

import numpy as np
from numpy.typing import ArrayLike

from saccade import __version__
from saccade.metrics.generation import Score

CUTOFFS = (1, 5, 10)
ROUNDING = 1e-9


@dataclass(frozen=True)
class Retrieval:
    """Recall at each cutoff, 0 to 100, and the median rank; beside them those of a random order."""

    recall: dict[int, Score]
    median_rank: Score
    chance_recall: dict[int, float]
    chance_rank: float


def score_retrieval(similarity: ArrayLike, relevant: ArrayLike) -> Retrieval:
    """Compare each query (a row) with each candidate (a column); `relevant` marks the right candidates of a query.

    A query succeeds where any of its right candidates is among the first k, such as one of a picture's five captions.
    Equal similarities count as if in random order, so that a constant similarity scores like chance. The transposed
    tables score the other direction.
    """
    scores, right = np.asarray(similarity), np.asarray(relevant, dtype=bool)
    if scores.ndim != 2 or scores.shape != right.shape:
        shapes = f"{scores.shape} and {right.shape}"
        raise ValueError(f"similarity and relevant must both have the shape (queries, candidates), but have {shapes}")
    if not scores.size:
        raise ValueError("similarity must hold at least one query and candidate, but is empty")
    if not right.any(1).all():
        raise ValueError(f"each query must have a right candidate, but row {int(np.argmin(right.any(1)))} has none")
    recalls: dict[int, list[float]] = {k: [] for k in CUTOFFS}
    ranks = []
    for row, marks in zip(scores, right, strict=True):
        if not np.isfinite(row).all():
            raise ValueError(f"similarity must be finite, but one is {row[~np.isfinite(row)][0]}")
        best = row[marks].max()
        higher, equal = int((row > best).sum()), int((row == best).sum())
        hits = int((row[marks] == best).sum())
        ranks.append(higher + _median_rank(hits, equal))
        for k, values in recalls.items():
            values.append(_hit_probability(k - higher, hits, equal))
    counts, candidates = right.sum(1).tolist(), right.shape[1]
    signature = f"ties:random|queries:{len(right)}|candidates:{candidates}|version:saccade-{__version__}"
    return Retrieval(
        recall={k: Score(100 * fmean(values), f"recall|at:{k}|{signature}") for k, values in recalls.items()},
        median_rank=Score(float(median(ranks)), f"rank|average:median|{signature}"),
        chance_recall={k: 100 * fmean(_hit_probability(k, count, candidates) for count in counts) for k in CUTOFFS},
        chance_rank=float(median(_median_rank(count, candidates) for count in counts)),
    )


def _hit_probability(drawn: int, hits: int, total: int) -> float:
    """Return the probability that at least one of `hits` is among the first `drawn` of `total` in random order."""
    if drawn <= 0:
        return 0.0
    misses = 1.0
    for position in range(min(drawn, total)):
        misses *= max(0, total - hits - position) / (total - position)
    return 1 - misses


@lru_cache(maxsize=4096)
def _median_rank(hits: int, total: int) -> float:
    """Return the median rank, from 1, of the first of `hits` among `total` in random order."""
    misses, rank = 1.0, 0
    while misses > 0.5 + ROUNDING:
        misses *= (total - hits - rank) / (total - rank)
        rank += 1
    # With half of the probability on each side, it is between two ranks.
    return rank + 0.5 if abs(misses - 0.5) <= ROUNDING else float(rank)
