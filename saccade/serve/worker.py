"""Worker: one thread that computes the predictions of a model; requests that wait are computed as one batch."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
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
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="worker", daemon=True)

    @property
    def waiting(self) -> int:
        return max(0, self.taken - 1)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        self._jobs.put(None)

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
        self._jobs.put(job)
        try:
            return await job.results
        finally:
            job.cancelled = True

    def _run(self) -> None:
        following: _Job | None = None
        while True:
            job = following or self._jobs.get()
            if job is None:
                return
            batch, following = self._batch(job)
            batch = [job for job in batch if not job.cancelled]
            if batch:
                self._compute(batch)

    def _batch(self, first: _Job) -> tuple[list[_Job], _Job | None]:
        """Return jobs of the same kind that wait, and the one after them."""
        batch, count = [first], len(first.items)
        while not self._jobs.empty():
            job = self._jobs.get()
            if job is None:
                self._jobs.put(None)
                break
            if job.key != first.key or count + len(job.items) > BATCH:
                return batch, job
            batch.append(job)
            count += len(job.items)
        return batch, None

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
