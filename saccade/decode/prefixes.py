"""Prefixes: which tokens each row of a cache has, so that the common beginning of prompts is computed once."""

from __future__ import annotations

from collections.abc import Sequence


class Prefixes:
    """The tokens in each row of a cache that can be reused, in multiples of `chunk`; 0: none.

    A runner whose numbers depend on how tokens are split into pieces reuses whole chunks of prompts only: a request
    gets the same numbers whatever was computed before it.
    """

    def __init__(self, rows: int, chunk: int) -> None:
        self._chunk = chunk
        self._ids: list[list[int]] = [[] for _ in range(rows)]
        self._open = [True] * rows  # whether what follows can be reused
        self._used = [0] * rows  # when the row was last started
        self._clock = 0

    def match(self, ids: list[int], free: Sequence[int]) -> tuple[int, int, int]:
        """Return the row to use, the row that has the longest beginning of these ids, and its length.

        At least one token is left to compute. The row used is the one with that beginning if it is free, else the one
        that was not used for the longest time.
        """
        counts = [self.common(ids, cached) for cached in self._ids]
        best = max(counts)
        at = max(free, key=lambda row: (counts[row] == best, -self._used[row]))
        return at, at if counts[at] == best else counts.index(best), best

    def start(self, row: int, ids: Sequence[int]) -> None:
        """Begin a row with tokens that it has."""
        self._clock += 1
        self._ids[row], self._open[row], self._used[row] = list(ids), True, self._clock

    def extend(self, row: int, ids: Sequence[int], *, generated: bool = False) -> None:
        """Note that tokens follow in a row; generated ones are reused only where every split gives the same numbers."""
        if generated and self._chunk != 1:
            self._open[row] = False
        if self._open[row]:
            self._ids[row] += ids

    def common(self, ids: list[int], cached: list[int]) -> int:
        """Return how many of the first ids need not be computed in a row with `cached` ones; one is always computed."""
        if not self._chunk:
            return 0
        limit = max(0, min(len(cached), len(ids) - 1))
        count = common_length(ids[:limit], cached[:limit])
        return count - count % self._chunk


def common_length(first: list[int], second: list[int]) -> int:
    """Return how many tokens two lists of the same length begin with together, by comparing slices."""
    if first == second:
        return len(first)
    low, high = 0, len(first) - 1  # the first `low` are the same, and at most `high`
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
