"""Prompt lookup: guess the next tokens from what followed the last tokens where they occurred before.

Speculative decoding without a second model (https://github.com/apoorvumang/prompt-lookup-decoding).
"""

from contextlib import suppress

LONGEST, SHORTEST = 4, 2  # tokens that must have occurred before


def guess(ids: list[int], count: int) -> list[int]:
    """Return up to `count` tokens that followed an earlier occurrence of the end of `ids`, the longest and latest."""
    if len(ids) <= SHORTEST:
        return []
    end, last, backwards = ids[-LONGEST:], ids[-1], ids[:-1]
    backwards.reverse()
    longest, best, at = SHORTEST - 1, 0, -1
    with suppress(ValueError):  # the last token occurs no more
        while longest < len(end):
            at = backwards.index(last, at + 1)
            stop = len(ids) - 1 - at  # of the occurrence
            while longest < len(end) and longest < stop and ids[stop - longest - 1 : stop] == end[-longest - 1 :]:
                longest, best = longest + 1, stop
    return ids[best : best + count] if best else []
