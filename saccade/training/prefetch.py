"""Prefetching: the batch of the next step is prepared on a thread while a step runs."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from saccade.core import Batch, Source


class Prefetcher:
    """Batches of a source on a device.

    Inside `with` and with `ahead`, the batch after the one that was asked for is prepared on one thread, if the source
    has no state; an environment is stepped only when its batch is needed. Order and content of the batches are those of
    the source.
    """

    def __init__(self, source: Source, device: torch.device, *, ahead: bool) -> None:
        self._source, self._device, self._ahead = source, device, ahead
        self.last: Sequence[Batch] = ()
        """the batches that were returned last"""
        self._thread: ThreadPoolExecutor | None = None
        self._next: tuple[int, Future[list[Batch]]] | None = None

    def __enter__(self) -> Prefetcher:
        if self._ahead and self._source.state() is None:
            self._thread = ThreadPoolExecutor(1, "prefetch")
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
        self._thread, self._next = None, None

    def at(self, step: int) -> Sequence[Batch]:
        """Return the micro-batches of a step, and start to prepare those of the next one."""
        batches = self._next[1].result() if self._next and self._next[0] == step else self._load(step)
        if self._thread is not None:
            self._next = (step + 1, self._thread.submit(self._load, step + 1))
        self.last = batches
        return batches

    def _load(self, step: int) -> list[Batch]:
        try:
            return [batch.to(self._device) for batch in self._source.at(step)]
        except Exception as error:
            error.add_note(f"while preparing the batch of step {step + 1}")
            raise
