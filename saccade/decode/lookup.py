"""Prompt lookup: guess the next tokens from what followed the last tokens where they occurred before.

Speculative decoding without a second model (https://github.com/apoorvumang/prompt-lookup-decoding).
"""

from collections.abc import Sequence

LONGEST, SHORTEST = 4, 2  # tokens that must have occurred before


def guess(ids: Sequence[int], count: int) -> list[int]:
    """Return up to `count` tokens that followed an earlier occurrence of the end of `ids`, the longest and latest."""
    for size in range(min(LONGEST, len(ids) - 1), SHORTEST - 1, -1):
        end = list(ids[-size:])
        for at in range(len(ids) - size - 1, -1, -1):
            if ids[at + size - 1] == end[-1] and list(ids[at : at + size]) == end:
                return list(ids[at + size : at + size + count])
    return []
