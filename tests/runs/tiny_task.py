"""A task that is not built in: one linear layer of a width that the config sets, with an integer buffer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from saccade.core import Evaluation, Metric, Prediction, Pretrained, Source, Split, Text
from saccade.core import Task as Contract
from tests.training.fakes import Points, PointSource


@dataclass(frozen=True)
class Config:
    """Settings."""

    width: int = 8
    """hidden width"""
    gain: float = 1.0
    """scale of the output"""


class Network(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.input, self.head = nn.Linear(4, width), nn.Linear(width, 1)
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        self.calls += 1
        return (self.head(self.input(x).tanh()) - y).square().mean()


class Task(Contract):
    """Add four numbers."""

    Config: ClassVar[type[Any]] = Config
    Options: ClassVar[type[Any]] = Config
    summary: ClassVar[str] = "add numbers"
    inputs = (Text("numbers"),)
    metric = Metric("loss", higher_is_better=False)
    opened: ClassVar[list[Path]] = []

    def __init__(self, config: Config) -> None:
        self.config, self.model = config, Network(config.width)

    @classmethod
    def prepare(cls, config: Any, data: Path, assets: Path, **_: Any) -> list[str]:
        (assets / "vocabulary.txt").write_text("one\ntwo\n")
        return []

    @classmethod
    def open(cls, config: Any, assets: Path) -> "Task":
        cls.opened.append(assets)
        return cls(config)

    def load_data(self, data: Path, **_: Any) -> list[str]:
        return []

    def source(self, split: Split, seed: int) -> Source:
        return PointSource((6,))

    def networks(self) -> dict[str, nn.Module]:
        return {"model": self.model}

    def losses(self, batch: Points, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        yield "model", networks["model"](batch.x, batch.y)

    def evaluate(self, split: Split, *, quick: bool = False, progress: Any = None) -> Evaluation:
        return Evaluation({"loss": abs(float(self.model.calls) - 4)})  # step 4 is the best

    def predict(self, inputs: Sequence[Mapping[str, Any]], options: Any) -> Iterator[Prediction]:
        raise NotImplementedError

    def to_pretrained(self) -> Pretrained:
        return Pretrained(self.model, self.config, None, None, "tiny")
