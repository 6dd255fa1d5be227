"""Listeners: forward hooks that only the context that added them can see, so that reading a model never changes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from types import MappingProxyType

from torch import nn

from saccade.nn.packed import original

Listener = Callable[..., None]

_listeners: ContextVar[Mapping[int, tuple[Listener, ...]]] = ContextVar("listeners", default=MappingProxyType({}))
_active = 0  # blocks that are open in any context
_counting = Lock()


@contextmanager
def listening(modules: Sequence[nn.Module], listener: Listener) -> Iterator[None]:
    """Call `listener` with whatever these modules emit while the block runs; a packed copy emits for its original."""
    global _active
    before = _listeners.get()
    added = {id(original(module)): (*before.get(id(original(module)), ()), listener) for module in modules}
    token = _listeners.set({**before, **added})
    with _counting:
        _active += 1
    try:
        yield
    finally:
        _listeners.reset(token)
        with _counting:
            _active -= 1


def emit(module: nn.Module, *values: object) -> None:
    """Pass values to the listeners of this module in this context; called by the module itself."""
    if not _active:  # a plain number: torch.compile can trace it
        return
    for listener in _listeners.get().get(id(original(module)), ()):
        listener(*values)
