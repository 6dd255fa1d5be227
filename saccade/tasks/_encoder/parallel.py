"""Parallel map: independent pieces of work side by side, a core of the processor each.

Small products gain little from several cores at once, and what stands between them gains nothing; whole batches do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def parallel_map(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """What becomes of each item, in order; while it lasts, torch has one thread for each piece of work.

    Fewer items than cores are done one after the other, each on all of them.
    """
    cores = torch.get_num_threads()
    if cores == 1 or len(items) < cores:
        yield from map(work, items)
        return
    waiting: deque[Future[Result]] = deque()
    torch.set_num_threads(1)  # what a new thread begins with
    try:
        with ThreadPoolExecutor(cores, "spread") as pool:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) > 2 * cores:  # who reads slowly is not flooded
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
    finally:
        torch.set_num_threads(cores)
