"""Models: what the server has loaded, each with its threads, and how requests find it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from saccade import __version__
from saccade.core.generation import TextEngine, TextRequest, raise_errors
from saccade.core.task import Task
from saccade.errors import DataError, UsageError, suggest
from saccade.look import features
from saccade.model import Model
from saccade.serve.errors import ApiError
from saccade.serve.generator import Generator
from saccade.serve.metrics import Gauge
from saccade.serve.worker import Worker


class ServedModel:
    """A loaded model: an engine if it continues texts, an encoder if it gives vectors, and a worker for its task."""

    def __init__(self, name: str, model: Model, *, rows: int | None, waiting: int) -> None:
        self.name, self.model, self.created = name, model, int(time.time())
        self.worker = Worker(waiting)
        self.generator = _generator(model, rows, waiting)
        self.chats = self.generator is not None and _chats(self.generator.engine)
        self.encoder = _encoder(model)
        identity = f"{__version__} {name} {model.name} {model.parameters()} {self.created}"
        self.fingerprint = f"saccade-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"

    @property
    def task(self) -> str:
        return type(self.model.task).__module__.rpartition(".")[2]

    @property
    def path(self) -> str:
        """The address of its task."""
        return f"/v1/tasks/{quote(self.name)}"

    def to_json(self) -> dict[str, Any]:
        """Return the entry of /v1/models."""
        endpoints = ["/v1/completions"] if self.generator else []
        endpoints += ["/v1/chat/completions"] if self.chats else []
        endpoints += ["/v1/embeddings"] if self.encoder else []
        context = {"context": self.generator.engine.context} if self.generator else {}
        return {
            "id": self.name,
            "object": "model",
            "created": self.created,
            "owned_by": "saccade",
            "task": self.task,
            "endpoints": [*endpoints, self.path],
            **context,
        }

    @property
    def alive(self) -> bool:
        """Whether its threads run."""
        return self.worker.alive and (self.generator is None or self.generator.alive)

    def start(self) -> None:
        """Start the threads; called in the event loop."""
        self.worker.start()
        if self.generator is not None:
            self.generator.start()

    def stop(self) -> None:
        self.worker.stop()
        if self.generator is not None:
            self.generator.stop()

    def gauges(self) -> Iterator[Gauge]:
        labels = {"model": self.name}
        waiting = self.worker.waiting + (self.generator.waiting if self.generator else 0)
        yield "saccade_queue_length", labels, waiting
        if self.generator is not None:
            yield "saccade_rows", labels, self.generator.engine.rows
            yield "saccade_rows_in_use", labels, self.generator.rows_in_use


def _generator(model: Model, rows: int | None, waiting: int) -> Generator | None:
    if type(model.task).engine is Task.engine:  # the task does not continue texts
        return None
    engine = model.engine(rows)
    engine.add(TextRequest(engine.encode(""), max_new_tokens=2))  # what is compiled on first use is compiled now
    while len(engine):
        raise_errors(engine.step())
    return Generator(engine, waiting)


def _chats(engine: TextEngine) -> bool:
    """Return whether a model has a chat template."""
    try:
        engine.encode_chat([{"role": "user", "content": "a"}])
    except DataError:  # it has one, and a tokenizer without this letter
        return True
    except UsageError:
        return False
    return True


def _encoder(model: Model) -> Any:
    try:
        return features.encoder_of(model.task)
    except UsageError:  # the task has no encoder of texts
        return None


def names_of(refs: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the names under which models are served: as given, else the names of runs, folders and files."""
    if names and len(names) != len(refs):
        raise UsageError(
            f"--name must be given for each of the {len(refs)} models or for none, but is for {len(names)}"
        )
    chosen = list(names) or [Path(ref).resolve().name if Path(ref).exists() else ref for ref in refs]
    twice = next((name for name in chosen if chosen.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"every model must have its own name, but two are called '{twice}'; give each a --name")
    unusable = next((name for name in chosen if not name.isprintable() or not name.strip("/. ")), None)
    if unusable is not None:
        raise UsageError(f"the name of a model must be printable, but is {unusable!r}; give it a --name")
    return chosen


def find(models: Mapping[str, ServedModel], name: str) -> ServedModel:
    """Return a model by its name."""
    if name not in models:
        message = f"no model '{name[:200]}'{suggest(name[:200], list(models))}"
        raise ApiError(404, message, param="model", code="model_not_found")
    return models[name]
