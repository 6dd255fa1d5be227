"""Graph regression: a number for a graph or a molecule, such as a solubility."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from saccade.core import (
    Evaluation,
    ForwardTrace,
    Metric,
    NumberOutput,
    Prediction,
    Progress,
    Role,
    Split,
    StepAxis,
)
from saccade.core.callback import ignore_progress
from saccade.data.graphs.graph import Graphs
from saccade.data.tables.numbers import is_number
from saccade.errors import DataError
from saccade.metrics import classification
from saccade.metrics.ranking import mae, rmse
from saccade.tasks._graphs.attention import GraphOptions
from saccade.tasks._graphs.examples import EncodedGraph
from saccade.tasks._graphs.labelled import LabelledGraphConfig, LabelledGraphTask


@dataclass(frozen=True)
class GraphRegressionConfig(LabelledGraphConfig):
    """All settings of a graph regression except those of the training loop."""


class Task(LabelledGraphTask):
    """A network over graphs with one output, standardized by mean and standard deviation of the training numbers."""

    Config: ClassVar[type[Any]] = GraphRegressionConfig
    summary: ClassVar[str] = "predict a number for a graph or a molecule"
    needs: ClassVar[str] = "graphs or molecules with numbers"
    numeric: ClassVar[bool] = True
    metric = Metric("rmse", False)

    def __init__(self, config: Any, described: Mapping[str, Any]) -> None:
        super().__init__(config, described, 1)
        self.mean, self.deviation = float(described["mean"]), float(described["deviation"])
        self.name = str(described["name"])

    @classmethod
    def check(cls, graphs: Graphs) -> None:
        for graph in graphs.graphs:
            if not is_number(graph.label) or not math.isfinite(float(graph.label)):
                message = f"{graph.origin}: '{graphs.column}' is '{graph.label[:40]}', expected a finite number"
                raise DataError(f"{message}; correct it, or classify: --task graph_classification")

    @classmethod
    def describe(cls, train: Graphs, valid: Graphs, data: Path) -> dict[str, Any]:
        numbers = np.array([float(label) for label in train.labels()])
        return {"mean": float(numbers.mean()), "deviation": float(numbers.std()) or 1.0, "name": train.column}

    def targets(self, graphs: Sequence[EncodedGraph]) -> Tensor:
        numbers = torch.tensor([float(encoded.graph.label) for encoded in graphs])
        return (numbers - self.mean) / self.deviation

    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        graphs, outputs, complete = self.scored(split, quick, progress)
        predicted = (outputs[:, 0] * self.deviation + self.mean).tolist()
        expected = [float(encoded.graph.label) for encoded in graphs]
        scores = {"rmse": rmse(predicted, expected), "mae": mae(predicted, expected)}
        if len(set(expected)) > 1 and len(set(predicted)) > 1:
            scores["pearson"] = classification.pearson(predicted, expected)
        values = {name: score.value for name, score in scores.items()}
        signatures = {name: score.signature for name, score in scores.items()}
        return Evaluation({**values, "graphs": len(graphs)}, signatures, complete=complete)

    def prediction(
        self, example: Mapping[str, Any], encoded: EncodedGraph, row: Tensor, options: GraphOptions
    ) -> Prediction:
        number = float(row[0]) * self.deviation + self.mean
        attention, notes = self.attention(encoded, options)
        output = NumberOutput(number, self.name)
        return Prediction(example, output, {"value": number}, attention, trace=encoded, notes=notes)

    def rerun(self, prediction: Prediction, *, layers: bool = False) -> ForwardTrace:
        outputs, axis, by_layer = self.trace(prediction, layers)

        def scaled(value: Tensor) -> Tensor:
            return value * self.deviation + self.mean

        scaled_layers = tuple((name, scaled(value)) for name, value in by_layer)
        position = StepAxis(Role.LABEL, ("value",))
        return ForwardTrace(scaled(outputs), (0,), position, (axis,), lambda _: self.name, scaled_layers)

    def sample(self) -> str:
        graphs = self.splits[Split.VALID].graphs[:3]
        numbers = [float(row[0]) * self.deviation + self.mean for _, rows, _ in self.run(graphs) for row in rows]
        pairs = zip(graphs, numbers, strict=True)
        return "\n".join(f"{one.graph.origin}: {one.graph.label} -> {number:.4g}" for one, number in pairs)
