"""Small models that demonstrations train by the ordinary command, on generated data."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from saccade import api
from saccade.lectures._row import Demonstration
from saccade.model import Model

Written = tuple[Path, Path | None]
"""training data and validation data, which may be the same file; None: a part of the training data"""


@dataclass(frozen=True)
class Trained:
    """A trained model, its scores on validation data, its losses and the command that trains it."""

    model: Model
    metrics: Mapping[str, float]
    history: Sequence[Mapping[str, float]]
    command: str
    path: Path
    """run folder"""

    def losses(self, name: str = "loss") -> list[tuple[float, float]]:
        """Return the loss of each step."""
        return [(record["step"], record[name]) for record in self.history if name in record and "lr_scale" in record]

    def scores(self, name: str) -> list[tuple[float, float]]:
        """Return a score of each evaluation."""
        return [
            (record["step"], record[name]) for record in self.history if name in record and "lr_scale" not in record
        ]

    def show(self, demonstration: Demonstration, *names: str) -> None:
        """Add the command, and the scores of these names."""
        demonstration.note(f"$ {self.command}")
        rows = [(name, self.metrics[name]) for name in names]
        demonstration.table("scores on validation data", ("score", "value"), rows)


@cache
def _root() -> Path:
    """Return a temporary folder for all models of this process, which is removed at its end."""
    folder = tempfile.mkdtemp(prefix="saccade-lectures-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def new_folder() -> Path:
    """Return an empty folder that is removed at the end of this process."""
    return Path(tempfile.mkdtemp(dir=_root()))


def train_model(
    write: Callable[[Path], Written], task: str, steps: int, *overrides: str, evaluations: int = 1
) -> Trained:
    """Train a model by the ordinary command, on data that `write` puts into a temporary folder."""
    folder = new_folder()
    (folder / "data").mkdir()
    data, valid = write(folder / "data")
    shown = [_shorten(entry) for entry in (*overrides, *([f"data.valid={valid}"] if valid else []))]
    loop = [f"train.steps={steps}", f"train.evaluate_every={steps // evaluations}", "train.device=cpu"]
    given = [*overrides, *([f"data.valid={valid}"] if valid else []), *loop]
    run = api.train(data, task=task, root=folder, name="run", overrides=given, progress=False)
    command = " ".join(("saccade train", data.name, "--task", task, *shown, f"train.steps={steps}"))
    return Trained(api.load(run, device="cpu"), dict(run.metrics), run.history, command, run.path)


def _shorten(override: str) -> str:
    """Return an override for a command line: a path as its name."""
    name, _, value = override.partition("=")
    return f"{name}={Path(value).name}" if value.startswith("/") else override
