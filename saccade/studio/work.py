"""Model work: a bounded number of computations at once, in threads, so that pages and other models do not wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

PATIENCE = 0.2  # seconds
AT_ONCE = 8  # far fewer than there are threads: pages and lists always find one
T = TypeVar("T")


class Slots:
    """Places for computations; a request that finds none is refused at once, to be sent again."""

    def __init__(self, count: int = AT_ONCE) -> None:
        self._count, self._taken, self._lock = count, 0, threading.Lock()
        self._turn = threading.Lock()

    def take(self) -> None:
        with self._lock:
            if self._taken >= self._count:
                message = f"the studio is computing {self._count} answers; try again in a moment"
                raise HTTPException(429, message, {"retry-after": "1"})
            self._taken += 1

    def give_back(self) -> None:
        with self._lock:
            self._taken -= 1

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Let one of several long computations do a small piece of its work, such as a token, at a time.

        Many threads at once would slow everybody down; one that takes long is not waited for.
        """
        taken = self._turn.acquire(timeout=PATIENCE)
        try:
            yield
        finally:
            if taken:
                self._turn.release()

    async def run(self, work: Callable[[], T]) -> T:
        """Return the result of a computation, which has a slot while it runs."""
        self.take()
        try:
            return await run_in_threadpool(work)
        finally:
            self.give_back()
