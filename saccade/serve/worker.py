"""Worker: one thread that computes the predictions of a model; requests that wait are computed as one batch."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from saccade.core.cancellation import Cancelled, cancellable, check_cancelled
from saccade.errors import SaccadeError
from saccade.serve.errors import ApiError, busy, failure

BATCH = 64  # examples of several requests that are computed together
log = logging.getLogger("saccade.serve")
Work = Callable[[Sequence[Any]], Iterator[Any]]


@dataclass(eq=False)
class _Job:
    work: Work
    items: Sequence[Any]
    key: Hashable
    results: asyncio.Future[list[Any]]
    cancelled: bool = False


class Worker:
    """Computes for one request or batch at a time, and lets `waiting` requests wait."""

    def __init__(self, waiting: int) -> None:
        self.capacity, self.taken = waiting + 1, 0
        self._jobs: deque[_Job] = deque()  # that wait; whoever changes it holds `_changed`
        self._changed, self._stopped = threading.Condition(), False
        self._thread = threading.Thread(target=self._run, name="worker", daemon=True)

    @property
    def waiting(self) -> int:
        return max(0, self.taken - 1)

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """End the thread once nothing waits."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """A place in the queue, or the refusal of the request."""
        if self.taken >= self.capacity:
            raise busy(f"{self.capacity} requests for this model wait, and no more can; try again in 1 s")
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1

    async def run(self, work: Work, items: Sequence[Any], key: Hashable) -> list[Any]:
        """Return the results of a computation, one for each item; jobs with the same key are computed together."""
        job = _Job(work, items, key, self._loop.create_future())
        with self._changed:
            self._jobs.append(job)
            self._changed.notify()
        try:
            return await job.results
        finally:  # a job that still waits is forgotten with its items: what it held is no longer counted
            job.cancelled = True
            with self._changed, contextlib.suppress(ValueError):
                self._jobs.remove(job)

    def _run(self) -> None:
        while self._compute_next():
            pass

    def _compute_next(self) -> bool:
        """Compute the jobs that are next, once there are some; false: the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._stopped)
            batch = self._take_batch()
        if batch:
            self._compute(batch)
        return bool(batch)

    def _take_batch(self) -> list[_Job]:
        """Take the first jobs, as far as they are of the same kind."""
        batch: list[_Job] = []
        count = 0
        while self._jobs:
            job = self._jobs[0]
            count += len(job.items)
            if batch and (job.key != batch[0].key or count > BATCH):
                break
            batch.append(self._jobs.popleft())
        return batch

    def _compute(self, batch: Sequence[_Job]) -> None:
        results = []
        try:
            with cancellable(lambda: all(job.cancelled for job in batch)):
                for result in batch[0].work([item for job in batch for item in job.items]):
                    results.append(result)
                    check_cancelled()
        except Cancelled:  # nobody waits for the results
            return
        except Exception as error:  # noqa: BLE001 - the request whose it is gets it
            if len(batch) > 1:  # the mistake of one request is not the error of another
                for job in batch:
                    self._compute([job])
                return
            self._post(batch[0], error)
            return
        start = 0
        for job in batch:
            self._post(job, results[start : start + len(job.items)])
            start += len(job.items)

    def _post(self, job: _Job, outcome: list[Any] | Exception) -> None:
        if isinstance(outcome, Exception) and not isinstance(outcome, SaccadeError | ApiError):
            log.error("a prediction failed", exc_info=outcome)
            outcome = failure()
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(_settle, job, outcome)


def _settle(job: _Job, outcome: list[Any] | Exception) -> None:
    if job.results.done():
        return
    if isinstance(outcome, Exception):
        job.results.set_exception(outcome)
    else:
        job.results.set_result(outcome)
