"""A fake task for the tests of the loop: learn to add four numbers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from saccade.core import Callback, Evaluation, Metric, Prediction, Source, Split, Task, Text
from saccade.runs.weights import weights
from saccade.training.loop import Trainer
from saccade.training.optim import OptimConfig
from saccade.training.settings import TrainConfig

OPTIM = OptimConfig(kind="adamw", lr=0.05, warmup=2, clip=1e9)


@dataclass(frozen=True)
class Points:
    """Rows of numbers: `x` (B, 4) and their sums, `y` (B, 1)."""

    x: Tensor
    y: Tensor
    first: int

    @property
    def count(self) -> int:
        return len(self.x)

    @property
    def units(self) -> int:
        return self.x.numel()

    @property
    def rows(self) -> list[str]:
        return [f"point {self.first + index}" for index in range(len(self.x))]

    def to(self, device: Any) -> "Points":
        return Points(self.x.to(device), self.y.to(device), self.first)


@dataclass(frozen=True)
class PointSource(Source):
    """Six rows a step, in micro-batches of the given sizes."""

    sizes: tuple[int, ...]

    @property
    def per_epoch(self) -> int:
        return 7

    def at(self, step: int) -> Sequence[Points]:
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(6, 4, generator=generator)
        firsts = [sum(self.sizes[:index]) for index in range(len(self.sizes))]
        parts = zip(x.split(self.sizes), firsts, strict=True)
        return [Points(part, part.sum(1, keepdim=True), first) for part, first in parts]


class Regressor(nn.Sequential):
    """A linear layer with dropout that computes its loss when it is given targets."""

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        out = super().forward(x)
        return out if y is None else (out - y).square().mean()


class Lines(Task):
    """A linear model of the sum of its inputs."""

    Config = OptimConfig
    Options = OptimConfig
    summary = "add numbers"
    unit = "numbers"
    inputs = (Text("numbers"),)
    metric = Metric("loss", higher_is_better=False)

    def __init__(self, sizes: tuple[int, ...] = (6,), dropout: float = 0.0) -> None:
        torch.manual_seed(3)
        self.model = Regressor(nn.Dropout(dropout), nn.Linear(4, 1))
        self.sizes, self.values, self.config = sizes, iter(()), OPTIM  # any config does
        self.modes: list[bool] = []
        """whether the model was in train mode when it was evaluated"""

    @classmethod
    def prepare(cls, config: Any, data: Path, assets: Path, **_: Any) -> list[str]:
        return []

    @classmethod
    def open(cls, config: Any, assets: Path) -> "Lines":
        return cls()

    def load_data(self, data: Path, **_: Any) -> list[str]:
        return []

    def source(self, split: Split, seed: int) -> Source:
        return PointSource(self.sizes)

    def networks(self) -> dict[str, nn.Module]:
        return {"model": self.model}

    def losses(self, batch: Points, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        yield "model", networks["model"](batch.x, batch.y)

    def evaluate(self, split: Split, *, quick: bool = False, progress: Any = None) -> Evaluation:
        self.modes.append(self.model.training)
        return Evaluation({"loss": next(self.values, float(self.model[1].weight.detach().sum()))})

    def predict(self, inputs: Sequence[Mapping[str, Any]], options: Any) -> Iterator[Prediction]:
        raise NotImplementedError

    def sample(self) -> str:
        return "a sample"


class Recorder(Callback):
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.totals: list[tuple[float, int | None]] = []

    def log(self, message: str) -> None:
        self.messages.append(message)

    def on_step(self, record: dict[str, Any], progress: float, total: int | None) -> None:
        self.totals.append((progress, total))


def trainer(task: Task, folder: Path, callback: Callback | None = None, **settings: Any) -> Trainer:
    folder.mkdir(exist_ok=True)
    config = TrainConfig(**{"steps": 6, "device": "cpu", "optim": OPTIM, **settings})
    return Trainer(task, config, folder, callback or Callback())


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def flat(task: Task) -> Tensor:
    return torch.cat([value.flatten().float() for value in weights(task.networks()).values()])
