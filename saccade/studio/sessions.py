"""Sessions: the models that are open and the predictions that are inspected, a few of each."""

from __future__ import annotations

import hashlib
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
from saccade.look.rollout import NAME as ROLLOUT
from saccade.look.rollout import rollout, rollout_layers
from saccade.look.view import MapView
from saccade.model import Model
from saccade.runs import folder as runs
from saccade.studio import live

MODELS, INSPECTIONS, UPLOADS = 3, 12, 8  # that stay open
UPLOAD = "upload:"  # begins the name of an uploaded file, which a link can hold
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
    uploads: Mapping[str, str] = field(default_factory=dict)
    """names of the files among the inputs"""
    _views: dict[tuple[str, bool], MapView] = field(default_factory=dict)

    @cached_property
    def rollout(self) -> AttentionMap:
        """Attention rollout through all layers of the first sequence."""
        return rollout(self.layers)

    @property
    def layers(self) -> list[AttentionMap]:
        """The layers that rollout multiplies; none where there is no rollout."""
        return rollout_layers(self.prediction)

    @property
    def explanation(self) -> Explanation:
        return self.model.explain(self.prediction)

    def attention(self, name: str) -> AttentionMap:
        """Return one of the maps; `alignment` is the word alignment, `rollout` all layers together."""
        if name == "alignment" and self.prediction.alignment is not None:
            return self.prediction.alignment
        if name == ROLLOUT and self.layers:
            return self.rollout
        if name not in self.prediction.attention:
            raise UsageError(f"no attention '{name}'{suggest(name, list(self.prediction.attention))}")
        return self.prediction.attention[name]

    def view(self, name: str, *, words: bool) -> MapView:
        if (name, words) not in self._views:
            self._views[name, words] = MapView(self.attention(name), words)
        return self._views[name, words]


def is_upload(value: object) -> bool:
    """Whether an input is an uploaded file: a data URL."""
    return isinstance(value, str) and value.startswith("data:")


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
        self._uploads = RecentlyUsed[str](UPLOADS)
        self._opening = dict[str, threading.Lock]()

    def names(self) -> list[str]:
        """Return the names of all models: those given at the start, runs, and cached models of the catalogue."""
        readable = [run.name for run in runs.list_runs(self.root) if _is_readable(run)]
        cached = [str(model["name"]) for model in api.list_models() if model["cached"]]
        return list(dict.fromkeys([*self.refs, *reversed(readable), *cached]))

    def generators(self) -> list[str]:
        """Return the names of the runs that generate images, the newest first."""
        readable = [run for run in runs.list_runs(self.root) if _is_readable(run)]
        return [run.name for run in reversed(readable) if run.describe()["task"] == "image_generation"]

    def policies(self) -> list[str]:
        """Return the names of the runs that can play episodes, the newest first."""
        readable = [run for run in runs.list_runs(self.root) if _is_readable(run)]
        return [run.name for run in reversed(readable) if live.replays(run.describe())]

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
        files = [entry.name for entry in model.inputs if entry.kind != "text" and is_upload(inputs.get(entry.name))]
        uploads = {file: self._keep(inputs[file]) for file in files}
        inspection = Inspection(secrets.token_urlsafe(9), name, model, prediction, uploads)
        return self._inspections.put(inspection.id, inspection)

    def _keep(self, url: str) -> str:
        """Keep an uploaded file by the hash of its content, so that a link can name it; return its name."""
        name = UPLOAD + hashlib.sha256(url.encode()).hexdigest()[:32]
        self._uploads.put(name, url)
        return name

    def upload(self, name: str) -> str:
        """Return an uploaded file as a data URL."""
        url = self._uploads.get(name)
        if url is None:
            raise UsageError("this file is no longer in the memory of the studio; choose it again")
        return url

    def inspection(self, id: str) -> Inspection:
        inspection = self._inspections.get(id)
        if inspection is None:
            raise UsageError("this prediction is no longer in memory; predict again")
        return inspection
