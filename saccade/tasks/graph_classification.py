"""Graph classification: one label for a graph or a molecule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from saccade.core import (
    Evaluation,
    ForwardTrace,
    LabelOutput,
    Metric,
    Prediction,
    Progress,
    Role,
    Split,
    StepAxis,
)
from saccade.core.callback import ignore_progress
from saccade.data.formats.labelled import sort_labels
from saccade.data.graphs.graph import Graphs
from saccade.errors import DataError
from saccade.metrics import classification
from saccade.metrics.ranking import roc_auc
from saccade.tasks._graphs.attention import GraphOptions
from saccade.tasks._graphs.examples import EncodedGraph
from saccade.tasks._graphs.labelled import LabelledGraphConfig, LabelledGraphTask
from saccade.tasks._graphs.task import check_labels
from saccade.tasks._labels import confusion_table

MOST_LABELS = 1000


@dataclass(frozen=True)
class GraphClassificationConfig(LabelledGraphConfig):
    """All settings of a graph classifier except those of the training loop."""

    metric: Literal["accuracy", "roc_auc"] = "accuracy"
    """metric that selects the best checkpoint; both are reported"""


class Task(LabelledGraphTask):
    """A network over graphs with one output for each label."""

    Config: ClassVar[type[Any]] = GraphClassificationConfig
    loss_unit: ClassVar[str] = "nats"
    summary: ClassVar[str] = "assign a label to a graph or a molecule"
    needs: ClassVar[str] = "graphs or molecules with labels"
    metric = Metric("accuracy", True, "%")

    def __init__(self, config: Any, described: Mapping[str, Any]) -> None:
        super().__init__(config, described, len(described["labels"]))
        self.labels = tuple(described["labels"])
        self.label_ids = {label: number for number, label in enumerate(self.labels)}
        if config.metric == "roc_auc":
            self.metric = Metric("roc_auc", True)

    @classmethod
    def check(cls, graphs: Graphs) -> None:
        missing = next((graph for graph in graphs.graphs if not graph.label), None)
        if missing is not None:
            step = "add one, or remove the graph"
            raise DataError(f"{missing.origin}: no '{graphs.column}', expected a label of each graph; {step}")

    @classmethod
    def describe(cls, train: Graphs, valid: Graphs, data: Path) -> dict[str, Any]:
        labels = sort_labels({*train.labels(), *valid.labels()})
        if len(labels) < 2:
            raise DataError(f"{data}: every label is '{labels[0]}', expected at least two labels; add other graphs")
        if len(labels) > min(MOST_LABELS, max(20, len(train) // 2)):
            message = f"{data}: {len(labels):,} different labels of {len(train):,} graphs, expected labels that repeat"
            raise DataError(f"{message}; numbers need --task graph_regression")
        return {"labels": labels}

    def check_known(self, graphs: Graphs) -> None:
        check_labels([(graph.label, graph.origin) for graph in graphs.graphs], self.label_ids)

    def targets(self, graphs: Sequence[EncodedGraph]) -> Tensor:
        return torch.tensor([self.label_ids[encoded.graph.label] for encoded in graphs])

    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        graphs, logits, complete = self.scored(split, quick, progress)
        targets = self.targets(graphs)
        expected, predicted = targets.tolist(), logits.argmax(-1).tolist()
        scores = {"accuracy": classification.accuracy(predicted, expected)}
        if set(expected) == set(range(len(self.labels))):
            scores["roc_auc"] = roc_auc(logits.softmax(-1).numpy(), expected)
        elif self.metric.name == "roc_auc":
            absent = self.labels[min(set(range(len(self.labels))) - set(expected))]
            message = f"the area under the ROC curve needs graphs of every label, but none is '{absent}'"
            raise DataError(f"{message}; select by accuracy: metric=accuracy")
        values = {name: score.value for name, score in scores.items()}
        values |= {"loss": float(nn.functional.cross_entropy(logits, targets)), "graphs": len(graphs)}
        names = [[self.labels[number] for number in side] for side in (predicted, expected)]
        table = confusion_table(classification.confusion(names[0], names[1], self.labels))
        signatures = {name: score.signature for name, score in scores.items()}
        return Evaluation(values, signatures, [table], complete=complete)

    def prediction(
        self, example: Mapping[str, Any], encoded: EncodedGraph, row: Tensor, options: GraphOptions
    ) -> Prediction:
        probabilities = zip(self.labels, row.softmax(-1).tolist(), strict=True)
        ranked = dict(sorted(probabilities, key=lambda pair: -pair[1]))
        attention, notes = self.attention(encoded, options)
        output = LabelOutput((next(iter(ranked)),), ranked)
        return Prediction(example, output, ranked, attention, trace=encoded, notes=notes)

    def rerun(self, prediction: Prediction, *, layers: bool = False) -> ForwardTrace:
        logits, axis, by_layer = self.trace(prediction, layers)
        position = StepAxis(Role.LABEL, ("label",))
        chosen = (int(logits.argmax()),)
        return ForwardTrace(logits, chosen, position, (axis,), self.labels.__getitem__, by_layer)

    def sample(self) -> str:
        graphs = self.splits[Split.VALID].graphs[:3]
        predicted = [int(row.argmax()) for _, logits, _ in self.run(graphs) for row in logits]
        pairs = zip(graphs, predicted, strict=True)
        return "\n".join(f"{one.graph.origin}: {one.graph.label} -> {self.labels[number]}" for one, number in pairs)
