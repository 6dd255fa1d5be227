"""Background jobs: a computation that a page starts, follows, cancels and finds again after it was reloaded."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from saccade.core import Progress
from saccade.core.cancellation import Cancelled, cancellable
from saccade.errors import SaccadeError, UsageError
from saccade.studio.sessions import RecentlyUsed

KEPT = 8  # jobs whose results are known
Work = Callable[[Progress], dict[str, Any]]
logger = logging.getLogger(__name__)


@dataclass
class Job:
    """A computation in a thread of its own."""

    id: str
    state: str = "running"
    """running, done, failed or cancelled"""
    fraction: float = 0.0
    error: str = ""
    result: dict[str, Any] | None = None
    _cancel: threading.Event = field(default_factory=threading.Event)

    def run(self, work: Work) -> None:
        """Compute the result."""
        try:
            with cancellable(self._cancel.is_set):
                self.result = work(self._report)
            self.fraction, self.state = 1.0, "done"
        except Cancelled:
            self.state = "cancelled"
        except SaccadeError as error:
            self.error, self.state = str(error), "failed"
        except Exception:
            logger.exception("a background job failed")
            self.error = "an error of the program, not of the data; the terminal of the studio has its message"
            self.state = "failed"

    def cancel(self) -> None:
        self._cancel.set()

    def to_json(self) -> dict[str, Any]:
        return {"job": self.id, "state": self.state, "fraction": self.fraction, "error": self.error}

    def _report(self, fraction: float) -> None:
        self.fraction = fraction


class Jobs:
    """The jobs of a studio: one runs at a time."""

    def __init__(self) -> None:
        self._jobs, self._running, self._lock = RecentlyUsed[Job](KEPT), Job("", "done"), threading.Lock()

    def start(self, work: Work) -> Job:
        """Start a job; another that is running is named, and not stopped."""
        with self._lock:
            if self._running.state == "running":
                percent = round(100 * self._running.fraction)
                raise UsageError(f"another computation is running ({percent} %); wait for it, or cancel it")
            name = secrets.token_urlsafe(9)
            job = self._running = self._jobs.put(name, Job(name))
        threading.Thread(target=job.run, args=(work,), daemon=True).start()
        return job

    def running(self) -> str:
        """Return the name of the job that is running; empty: none is."""
        return self._running.id if self._running.state == "running" else ""

    def get(self, id: str) -> Job:
        job = self._jobs.get(id)
        if job is None:
            raise UsageError("this computation is no longer in memory; start it again, what is in the cache is quick")
        return job
