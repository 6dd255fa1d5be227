"""Listeners: forward hooks that only the context that added them can see, so that reading a model never changes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

from torch import nn

from saccade.nn.context import ContextValue
from saccade.nn.packed import original

Listener = Callable[..., None]

_listeners = ContextValue[Mapping[int, tuple[Listener, ...]]]("listeners", {})


def listening(modules: Sequence[nn.Module], listener: Listener) -> AbstractContextManager[None]:
    """Call `listener` with whatever these modules emit while the block runs; a packed copy emits for its original."""
    before = _listeners.get()
    keys = {id(original(module)) for module in modules}
    return _listeners.set({**before, **{key: (*before.get(key, ()), listener) for key in keys}})


def is_listening() -> bool:
    """Whether this context has a listener."""
    return bool(_listeners.get())


def emit(module: nn.Module, *values: object) -> None:
    """Pass values to the listeners of this module in this context; called by the module itself."""
    listeners = _listeners.get()
    if listeners:
        for listener in listeners.get(id(original(module)), ()):
            listener(*values)
