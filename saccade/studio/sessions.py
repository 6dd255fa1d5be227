"""Sessions: the models that are open and the predictions that are inspected, a few of each."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from saccade import api
from saccade.core import AttentionMap, Prediction
from saccade.errors import ModelFileError, UsageError, suggest
from saccade.look.explain import Explanation
from saccade.look.maps import is_self_attention, rollout, same_axis
from saccade.look.view import MapView
from saccade.model import Model
from saccade.runs import folder as runs

MODELS, INSPECTIONS = 3, 12  # that stay open
T = TypeVar("T")


class RecentlyUsed(Generic[T]):
    """The entries used last, by name."""

    def __init__(self, capacity: int) -> None:
        self._capacity, self._entries, self._lock = capacity, OrderedDict[str, T](), threading.Lock()

    def get(self, name: str) -> T | None:
        with self._lock:
            if name in self._entries:
                self._entries.move_to_end(name)
            return self._entries.get(name)

    def put(self, name: str, entry: T) -> T:
        with self._lock:
            self._entries[name] = entry
            while len(self._entries) > self._capacity:
                self._entries.popitem(last=False)
        return entry


@dataclass
class Inspection:
    """A prediction of a model that a page inspects."""

    id: str
    name: str
    """of the model"""
    model: Model
    prediction: Prediction
    _views: dict[tuple[str, bool], MapView] = field(default_factory=dict)

    @cached_property
    def rollout(self) -> AttentionMap:
        """Attention rollout through all layers of the first sequence."""
        return rollout(self.layers)

    @property
    def layers(self) -> list[AttentionMap]:
        """The self-attention of the first sequence, lowest layer first."""
        maps = [attention for attention in self.prediction.attention.values() if is_self_attention(attention)]
        return [attention for attention in maps if same_axis(attention.queries, maps[0].queries)]

    @property
    def explanation(self) -> Explanation:
        return self.model.explain(self.prediction)

    def attention(self, name: str) -> AttentionMap:
        """Return one of the maps; `alignment` is the word alignment, `rollout` all layers together."""
        if name == "alignment" and self.prediction.alignment is not None:
            return self.prediction.alignment
        if name == "rollout" and self.layers:
            return self.rollout
        if name not in self.prediction.attention:
            raise UsageError(f"no attention '{name}'{suggest(name, list(self.prediction.attention))}")
        return self.prediction.attention[name]

    def view(self, name: str, *, words: bool) -> MapView:
        if (name, words) not in self._views:
            self._views[name, words] = MapView(self.attention(name), words)
        return self._views[name, words]


def _is_readable(run: runs.Run) -> bool:
    """Whether a run can be named and described; if not, the list of runs says why."""
    try:
        run.describe()
    except ModelFileError:
        return False
    return run.name.isprintable()


class Sessions:
    """Open models and inspections, for all pages together."""

    def __init__(self, root: Path, refs: Sequence[str] = (), task: str = "") -> None:
        """Serve the runs of a folder and some more models; `task` allows runs of a task that is not built in."""
        self.root, self.refs, self.task = root, tuple(refs), task
        self._models, self._inspections = RecentlyUsed[Model](MODELS), RecentlyUsed[Inspection](INSPECTIONS)
        self._opening = dict[str, threading.Lock]()

    def names(self) -> list[str]:
        """Return the names of all models: those given at the start, runs, and cached models of the catalogue."""
        readable = [run.name for run in runs.list_runs(self.root) if _is_readable(run)]
        cached = [str(model["name"]) for model in api.list_models() if model["cached"]]
        return list(dict.fromkeys([*self.refs, *reversed(readable), *cached]))

    def model(self, name: str) -> Model:
        """Return a model by one of the names; a page can open nothing else. Only requests for the same model wait."""
        names = self.names()
        if name not in names:
            raise UsageError(f"no model '{name[:200]}'{suggest(name[:200], names)}")
        with self._opening.setdefault(name, threading.Lock()):
            model = self._models.get(name)
            if model is None:
                model = self._models.put(name, api.load(name, root=self.root, task=self.task))
            return model

    def predict(self, name: str, inputs: Mapping[str, Any], options: Mapping[str, Any]) -> Inspection:
        """Let a model predict, and keep the prediction with its attention."""
        model = self.model(name)
        if any(setting.name == "attention" for setting in model.options):
            options = {**options, "attention": True}
        (prediction,) = model.predict([inputs], **options)
        inspection = Inspection(secrets.token_urlsafe(9), name, model, prediction)
        return self._inspections.put(inspection.id, inspection)

    def inspection(self, id: str) -> Inspection:
        inspection = self._inspections.get(id)
        if inspection is None:
            raise UsageError("this prediction is no longer in memory; predict again")
        return inspection
