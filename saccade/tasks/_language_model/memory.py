"""Memory of the cache of keys and values: what rows need, and how many fit into this machine."""

from __future__ import annotations

import os

from saccade.errors import UsageError
from saccade.models.text.gpt import GPTConfig

PART = 0.6  # of the memory of the machine that a cache may need


def row_bytes(config: GPTConfig, capacity: int) -> int:
    """Return the bytes of one row of so many tokens, in float32."""
    return 2 * 4 * config.depth * (config.kv_heads or config.heads) * config.head_width * capacity


def machine_bytes() -> int:
    """Return the memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def rows_that_fit(config: GPTConfig, capacity: int, rows: int) -> int:
    """Return how many of some rows fit into memory, at least one."""
    return max(1, min(rows, int(PART * machine_bytes()) // max(1, row_bytes(config, capacity))))


def check_rows(config: GPTConfig, capacity: int, rows: int) -> None:
    """Refuse more rows than fit into memory."""
    fitting = rows_that_fit(config, capacity, rows)
    if fitting < rows:
        needed, present = rows * row_bytes(config, capacity) / 1e9, machine_bytes() / 1e9
        raise UsageError(
            f"rows must be at most {fitting} for a context of {capacity:,} tokens, but are {rows}: their cache needs "
            f"up to {needed:.1f} GB of the {present:.1f} GB of this machine; choose fewer rows"
        )
