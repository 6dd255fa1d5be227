"""Invariant: what one file of `invariants/` declares; the folder is the registry."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass

from saccade.checks import invariants
from saccade.checks.report import Outcome
from saccade.checks.subject import Subject
from saccade.errors import UsageError, suggest


@dataclass(frozen=True)
class Invariant:
    """A property that every sound model has."""

    name: str
    summary: str
    run: Callable[[Subject], Outcome]


def all_invariants() -> list[Invariant]:
    """Return every invariant, in the order in which results are shown."""
    modules = [
        importlib.import_module(f"{invariants.__name__}.{entry.name}")
        for entry in pkgutil.iter_modules(invariants.__path__)
    ]
    modules.sort(key=lambda module: module.ORDER)
    return [Invariant(module.__name__.rpartition(".")[2], module.SUMMARY, module.run) for module in modules]


def choose(names: list[str] | tuple[str, ...]) -> list[Invariant]:
    """Return the invariants of these names; none given: all."""
    every = {invariant.name: invariant for invariant in all_invariants()}
    for name in names:
        if name not in every:
            raise UsageError(f"no invariant '{name}'{suggest(name, list(every))}")
    return [invariant for name, invariant in every.items() if not names or name in names]
