"""Sessions: the models that are open and the answers that are looked at, a few of each."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

from saccade import api
from saccade.core.task import AttentionMap, Prediction, Task
from saccade.errors import UsageError, suggest
from saccade.look.maps import rollout
from saccade.look.view import View

MODELS, LOOKS = 3, 12  # that stay open
T = TypeVar("T")


class Kept(Generic[T]):
    """The things used last, by name."""

    def __init__(self, most: int) -> None:
        self._most, self._things, self._lock = most, OrderedDict[str, T](), threading.Lock()

    def get(self, name: str) -> T | None:
        with self._lock:
            if name in self._things:
                self._things.move_to_end(name)
            return self._things.get(name)

    def put(self, name: str, thing: T) -> T:
        with self._lock:
            self._things[name] = thing
            while len(self._things) > self._most:
                self._things.popitem(last=False)
        return thing


@dataclass
class Model:
    """An open model; one at a time works with it."""

    name: str
    task: Task
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass
class Look:
    """An answer of a model that is looked at."""

    id: str
    model: Model
    found: Prediction
    _views: dict[tuple[str, bool], View] = field(default_factory=dict)

    @cached_property
    def rollout(self) -> AttentionMap:
        """How much each input reaches each place through all layers of the text that is read first."""
        return rollout(self.layers)

    @property
    def layers(self) -> list[AttentionMap]:
        """The attentions of the text that is read first to itself, lowest layer first."""
        reads = [read for read in self.found.maps if read.queries == read.keys]
        return [read for read in reads if read.queries == reads[0].queries]

    def read(self, name: str) -> AttentionMap:
        """One of its maps; `alignment` shows which word comes from which, `rollout` all layers together."""
        if name == "alignment" and self.found.alignment is not None:
            return self.found.alignment
        if name == "rollout" and self.layers:
            return self.rollout
        for read in self.found.maps:
            if read.name == name:
                return read
        raise UsageError(f"no attention '{name}'{suggest(name, [read.name for read in self.found.maps])}")

    def view(self, name: str, *, words: bool) -> View:
        if (name, words) not in self._views:
            self._views[name, words] = View(self.read(name), words)
        return self._views[name, words]


class Sessions:
    """What is open, for all pages together."""

    def __init__(self, root: Path, given: Sequence[str] = ()) -> None:
        self.root, self.given = root, tuple(given)
        self._models, self._looks = Kept[Model](MODELS), Kept[Look](LOOKS)
        self._opening = threading.Lock()

    def names(self) -> list[str]:
        """What can be looked into: what was named at the start, runs of the folder, cached models of the catalogue."""
        runs = [run["name"] for run in api.list_runs(self.root) if "error" not in run]
        here = [str(model["name"]) for model in api.list_models() if model["cached"]]
        return list(dict.fromkeys([*self.given, *reversed(runs), *here]))

    def model(self, name: str) -> Model:
        """An open model by one of the names; nothing else can be opened from a page."""
        if name not in self.names():
            raise UsageError(f"no model '{name}'{suggest(name, self.names())}")
        with self._opening:
            found = self._models.get(name)
            if found is None:
                task = api.load(name, root=self.root)
                found = self._models.put(name, Model(name, task))
            return found

    def ask(self, name: str, text: str, words: Sequence[str]) -> Look:
        """Let a model answer, and keep the answer with its maps."""
        model = self.model(name)
        with model.lock:
            found = api.predict(model.task, text, words)
        return self.keep(model, found)

    def keep(self, model: Model, found: Prediction) -> Look:
        look = Look(secrets.token_urlsafe(9), model, found)
        return self._looks.put(look.id, look)

    def look(self, id: str) -> Look:
        found = self._looks.get(id)
        if found is None:
            raise UsageError("this answer is no longer kept; ask again")
        return found

    @contextmanager
    def working(self, id: str) -> Iterator[Look]:
        """An answer, with its model to oneself."""
        look = self.look(id)
        with look.model.lock:
            yield look
