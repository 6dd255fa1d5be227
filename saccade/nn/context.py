"""Values that belong to a context (a thread, an asyncio task), so that two requests served by one model never mix."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Generic, TypeVar

Value = TypeVar("Value")


class ContextValue(Generic[Value]):
    """A ContextVar with a default; reading it costs one comparison while no context has set it."""

    def __init__(self, name: str, default: Value) -> None:
        self._default, self._variable = default, ContextVar(name, default=default)
        self._open = 0  # blocks that set a value in any context
        self._lock = Lock()

    def get(self) -> Value:
        if not self._open:  # a plain number: torch.compile can trace it, and never sees the ContextVar
            return self._default
        return self._variable.get()

    def enter(self, value: Value) -> None:
        """Set the value at the beginning of a block."""
        self._variable.set(value)
        with self._lock:
            self._open += 1

    def leave(self, value: Value) -> None:
        """Restore the previous value at the end of a block."""
        self._variable.set(value)
        with self._lock:
            self._open -= 1

    @contextmanager
    def set(self, value: Value) -> Iterator[None]:
        """Set the value while the block runs."""
        before = self._variable.get()
        self.enter(value)
        try:
            yield
        finally:
            self.leave(before)
