"""Parameters of an address, checked."""

from __future__ import annotations

from typing import Any

from saccade.errors import UsageError


def number(params: Any, name: str, default: int | None = None) -> int:
    """Return a parameter that is a whole number of at most nine digits."""
    text = params.get(name, "" if default is None else str(default))
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise UsageError(f"{name} must be a whole number, but is '{text[:40]}'")
    return int(text)


def head_number(params: Any, name: str = "head") -> int | None:
    """Return the number of a head; None: the mean over all heads."""
    return None if params.get(name, "mean") == "mean" else number(params, name)
