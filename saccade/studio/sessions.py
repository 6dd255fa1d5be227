"""Sessions: the models that are open and the predictions that are inspected, a few of each."""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from saccade import api
from saccade.core import AttentionMap, Prediction, Progress, ignore_progress
from saccade.errors import ModelFileError, UsageError, suggest
from saccade.look.explain import Explanation
from saccade.look.progress import layer_progress
from saccade.look.rollout import NAME as ROLLOUT
from saccade.look.rollout import rollout, rollout_layers
from saccade.look.view import MapView
from saccade.model import Model
from saccade.runs import folder as runs
from saccade.studio import live
from saccade.studio.checkpoints import BEST, parse_checkpoint

MODELS, UPLOADS = 3, 8  # that stay open
MEMORY = 512 << 20  # bytes of the predictions that stay open
OVERHEAD, LABEL = 1 << 16, 100  # bytes of a prediction beside its tensors, and of each label
GENERATED = "max_new_tokens"  # option of every model that continues a prompt
ALIGNMENT = "alignment"  # the map that aligns words, beside the layers
UPLOAD = "upload:"  # begins the name of an uploaded file, which a link can hold
T = TypeVar("T")


class RecentlyUsed(Generic[T]):
    """The entries used last, by name."""

    def __init__(self, capacity: int, size: Callable[[T], int] = lambda entry: 1) -> None:
        """Keep the entries whose sizes (by default their number) sum to at most `capacity`, and the last in any case.

        The size of an entry may grow while it is used.
        """
        self._capacity, self._size = capacity, size
        self._entries, self._sizes, self._lock = OrderedDict[str, T](), dict[str, int](), threading.Lock()

    def get(self, name: str) -> T | None:
        with self._lock:
            entry = self._entries.get(name)
            return None if entry is None else self._use(name, entry)

    def put(self, name: str, entry: T) -> T:
        with self._lock:
            return self._use(name, entry)

    def drop(self, name: str) -> None:
        """Forget an entry, if it is there."""
        with self._lock:
            self._entries.pop(name, None)
            self._sizes.pop(name, None)

    def _use(self, name: str, entry: T) -> T:
        self._entries[name], self._sizes[name] = entry, self._size(entry)
        self._entries.move_to_end(name)
        while sum(self._sizes.values()) > self._capacity and len(self._entries) > 1:
            oldest, _ = self._entries.popitem(last=False)
            del self._sizes[oldest]
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
    generated: bool = True
    """whether a model that generates was asked to; otherwise it read the prompt"""
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
    def nbytes(self) -> int:
        """Bytes of memory, about: the tensors behind the maps, rollout if it was computed, and the labels."""
        maps = [*self.prediction.attention.values()]
        maps += [] if self.prediction.alignment is None else [self.prediction.alignment]
        maps += [self.rollout] if "rollout" in self.__dict__ else []
        axes = {id(axis): len(axis) for attention in maps for axis in (attention.queries, attention.keys)}
        inputs = sum(len(value) for value in self.prediction.inputs.values() if isinstance(value, str | bytes))
        views = sum(view.nbytes for view in [*self._views.values()])  # other threads may add one
        return OVERHEAD + inputs + LABEL * sum(axes.values()) + views + sum(attention.nbytes for attention in maps)

    @property
    def explanation(self) -> Explanation:
        return self.model.explain(self.prediction)

    def attention(self, name: str) -> AttentionMap:
        """Return one of the maps; `alignment` is the word alignment, `rollout` all layers together."""
        if name == ALIGNMENT and self.prediction.alignment is not None:
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

    def __init__(self, root: Path, refs: Sequence[str] = (), task: str = "", memory: int = MEMORY) -> None:
        """Serve the runs of a folder and some more models; `task` allows runs of a task that is not built in.

        Predictions stay open until they take `memory` bytes.
        """
        self.root, self.refs, self.task = root, tuple(refs), task
        self._models, self._uploads = RecentlyUsed[Model](MODELS), RecentlyUsed[str](UPLOADS)
        self._inspections = RecentlyUsed[Inspection](memory, lambda inspection: inspection.nbytes)
        self._opening = dict[str, threading.Lock]()

    def names(self) -> list[str]:
        """Return the names of all models: those given at the start, runs, and cached models of the catalogue."""
        readable = [run.name for run in runs.list_runs(self.root) if _is_readable(run)]
        cached = [str(model["name"]) for model in api.list_models() if model["cached"]]
        return list(dict.fromkeys([*self.refs, *reversed(readable), *cached]))

    def generators(self) -> list[str]:
        """Return the names of the runs that generate images, the newest first."""
        return self.run_names(lambda task: task == "image_generation")

    def run_names(self, chosen: Callable[[str], bool]) -> list[str]:
        """Return the names of the runs of the chosen tasks, the newest first."""
        readable = [run for run in runs.list_runs(self.root) if _is_readable(run)]
        return [run.name for run in reversed(readable) if chosen(run.describe()["task"])]

    def policies(self) -> list[str]:
        """Return the names of the runs that can play episodes, the newest first."""
        readable = [run for run in runs.list_runs(self.root) if _is_readable(run)]
        return [run.name for run in reversed(readable) if live.replays(run.describe())]

    def model(self, name: str, checkpoint: str = "") -> Model:
        """Return a model by one of the names; a page can open nothing else. Only requests for the same model wait.

        `checkpoint`: of a run that of a step, `best` (also without a name), `last` or `mean`.
        """
        names = self.names()
        if name not in names:
            raise UsageError(f"no model '{name[:200]}'{suggest(name[:200], names)}")
        which = parse_checkpoint(self.root, name, checkpoint)
        key = name if which == BEST else f"{name}\n{which}"
        with self._opening.setdefault(key, threading.Lock()):
            model = self._models.get(key)
            if model is None:
                model = self._models.put(key, api.load(name, root=self.root, task=self.task, checkpoint=which))
            return model

    def forget(self, name: str) -> None:
        """Close a model: another run may get its name."""
        self._models.drop(name)

    def predict(
        self,
        name: str,
        inputs: Mapping[str, Any],
        options: Mapping[str, Any],
        *,
        checkpoint: str = "",
        generate: bool = True,
        progress: Progress = ignore_progress,
    ) -> Inspection:
        """Let a model predict, and keep the prediction with its attention.

        Without `generate` a model that continues a prompt only reads it, unless the options say how far to go on.
        """
        model = self.model(name, checkpoint)
        known = {setting.name for setting in model.options}
        if not generate and GENERATED in known:
            options = {GENERATED: 0, **options}
        if "attention" in known:
            options = {**options, "attention": True}
        with layer_progress(model.task, progress):
            (prediction,) = model.predict([inputs], **options)
        files = [entry.name for entry in model.inputs if entry.kind != "text" and is_upload(inputs.get(entry.name))]
        uploads = {file: self._keep(inputs[file]) for file in files}
        generated = bool(options.get(GENERATED, True))
        inspection = Inspection(secrets.token_urlsafe(9), name, model, prediction, uploads, generated)
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
