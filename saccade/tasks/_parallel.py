"""Parallel map: independent work on all cores, with one torch thread per item.

Small matrix products gain little from several cores, and the code between them gains nothing; batches in parallel do.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from threading import Barrier, Lock, Thread
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

_pools: dict[int, ThreadPoolExecutor] = {}
_creating = Lock()
os.register_at_fork(after_in_child=_pools.clear)  # threads do not survive a fork


def parallel_map(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """Yield the result for each item, in order, computed on worker threads with one torch thread each.

    The caller's number of threads does not change, and context variables (ablations, probes) apply to the workers.
    Fewer items than cores are computed one after the other by the caller, each on all cores.
    """
    cores = torch.get_num_threads()
    if cores == 1 or len(items) < cores:
        yield from map(function, items)
        return
    pool = _pool(cores)
    pending: deque[Future[Result]] = deque()
    try:
        for item in items:
            pending.append(pool.submit(copy_context().run, function, item))
            if len(pending) > 2 * cores:  # a slow consumer does not fill the memory
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()


def _pool(cores: int) -> ThreadPoolExecutor:
    """Return the pool with this number of workers; it is created once."""
    with _creating:
        if cores not in _pools:
            _pools[cores] = _create(cores)
        return _pools[cores]


def _create(cores: int) -> ThreadPoolExecutor:
    """Start all workers with one torch thread each.

    The number of torch threads belongs to each thread, but setting it also sets the default of new threads: a thread
    that does nothing else restores that default, so that no other thread is affected.
    """
    started = Barrier(cores + 1)

    def initialize() -> None:
        torch.get_num_threads()  # a new thread adopts the default at its first call
        torch.set_num_threads(1)
        started.wait()

    pool = ThreadPoolExecutor(cores, "parallel_map", initialize)
    for _ in range(cores):
        pool.submit(int)  # every submission starts a worker, as none is idle before the barrier
    started.wait()
    restore = Thread(target=torch.set_num_threads, args=(cores,))
    restore.start()
    restore.join()
    return pool
