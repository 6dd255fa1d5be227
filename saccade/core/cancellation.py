"""Cancellation: whoever computes a result says when it is no longer wanted; generation ends before its next step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_cancelled: ContextVar[Callable[[], bool] | None] = ContextVar("cancelled", default=None)


class Cancelled(Exception):
    """Raised between two steps of a generation whose result is no longer wanted."""


@contextmanager
def cancellable(cancelled: Callable[[], bool]) -> Iterator[None]:
    """End generations of the block with `Cancelled` as soon as `cancelled` returns true."""
    token = _cancelled.set(cancelled)
    try:
        yield
    finally:
        _cancelled.reset(token)


def check_cancelled() -> None:
    """Raise `Cancelled` if the result is no longer wanted; called before each step of a generation."""
    cancelled = _cancelled.get()
    if cancelled is not None and cancelled():
        raise Cancelled
