"""Node classification: a label for each node of a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from saccade.atomic_io import write_json
from saccade.core import (
    Base,
    Batch,
    Evaluation,
    ForwardTrace,
    Metric,
    Prediction,
    Progress,
    Source,
    Split,
    TagOutput,
)
from saccade.core.callback import ignore_progress
from saccade.data.batching import key, shuffle
from saccade.data.fingerprints import hash_lines
from saccade.data.formats.graph_search import read_graphs
from saccade.data.formats.labelled import sort_labels
from saccade.data.graphs.graph import Graph, Graphs
from saccade.data.graphs.schema import Schema
from saccade.data.parts import evaluated_part, evaluation_note, part_of
from saccade.data.splitting import SplitSettings, hold_out
from saccade.errors import DataError, UsageError
from saccade.metrics import classification
from saccade.models.graph.gat import GATConfig
from saccade.models.graph.inputs import GraphInputs
from saccade.models.graph.predictor import GraphModelConfig
from saccade.tasks._graphs.attention import GraphOptions
from saccade.tasks._graphs.examples import EncodedGraph, join_graphs
from saccade.tasks._graphs.task import ASSETS, SHOWN, GraphConfig, GraphTask, check_labels, edge_notes
from saccade.tasks._labels import confusion_table


@dataclass(frozen=True)
class NodeConfig(GraphConfig):
    """All settings of a node classifier except those of the training loop."""

    model: GraphModelConfig = field(
        default_factory=lambda: GraphModelConfig(architecture="gat", gat=GATConfig(output_heads=8))
    )
    batch_size: int = 0
    """nodes whose loss is computed in a step, always with the whole graph around them; 0: all training nodes"""
    l2: float = 5e-4
    """L2 penalty of all weights, as part of the loss"""

    def __post_init__(self) -> None:
        for name in ("batch_size", "l2"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, but is {getattr(self, name)}")


@dataclass(frozen=True, eq=False)
class NodeBatch:
    """A graph, and the nodes of it whose loss is computed, with their labels."""

    inputs: GraphInputs
    nodes: Tensor  # (T,)
    targets: Tensor  # (T,)
    rows: list[str]

    @property
    def count(self) -> int:
        return len(self.nodes)

    @property
    def units(self) -> int:
        return len(self.inputs.nodes)

    def to(self, device: Any) -> NodeBatch:
        return replace(
            self, inputs=self.inputs.to(device), nodes=self.nodes.to(device), targets=self.targets.to(device)
        )


class NodeBatches(Source):
    """Batches of some nodes of one graph; every epoch has all of them, in another order."""

    def __init__(self, task: Task, nodes: NDArray[np.int64], batch_size: int, seed: int) -> None:
        self._task, self._nodes, self._seed = task, nodes, seed
        self._size = min(batch_size or len(nodes), len(nodes))

    @property
    def per_epoch(self) -> int:
        return -(-len(self._nodes) // self._size)

    def at(self, step: int) -> list[Batch]:
        epoch, position = divmod(step, self.per_epoch)
        places = np.arange(position * self._size, min((position + 1) * self._size, len(self._nodes)), dtype=np.uint64)
        chosen = shuffle(places, len(self._nodes), key(self._seed, epoch)).astype(np.int64)
        return [self._task.batch(self._nodes[chosen])]


class Task(GraphTask):
    """A network over a graph with one output for each label and node."""

    Config: ClassVar[type[Any]] = NodeConfig
    loss_unit: ClassVar[str] = "nats"
    summary: ClassVar[str] = "assign a label to each node of a graph"
    needs: ClassVar[str] = "a graph whose nodes have labels"
    unit: ClassVar[str] = "nodes"
    pooled: ClassVar[bool] = False
    metric = Metric("accuracy", True, "%")

    def __init__(self, config: Any, described: Mapping[str, Any]) -> None:
        super().__init__(config, described, len(described["labels"]), config.l2)
        self.labels = tuple(described["labels"])
        self.label_ids = {label: number for number, label in enumerate(self.labels)}
        self.splits: dict[str, NDArray[np.int64]] = {}
        """nodes by split: train, valid, and test where the data have one"""

    # Data

    @classmethod
    def train_defaults(cls, config: Any) -> list[str]:
        gat = {"kind": "adamw", "lr": "0.005", "schedule": "constant", "warmup": "1", "beta2": "0.999"}
        small = {"kind": "adamw", "lr": "0.003"}
        chosen = gat if config.model.architecture == "gat" else small
        loop = ["train.steps=600", "train.evaluate_every=5"]
        return [*loop, *(f"train.optim.{k}={v}" for k, v in chosen.items())]

    @classmethod
    def prepare(
        cls, config: Any, data: Path, assets: Path, *, base: Base = None, progress: Progress = ignore_progress
    ) -> list[str]:
        if config.data.valid or config.data.folds:
            name = "valid" if config.data.valid else "folds"
            message = f"data.{name} must not be given for nodes of one graph, but is {getattr(config.data, name)}"
            raise UsageError(f"{message}; add a column `split` with train, valid or test for each node")
        graphs = read_graphs(data, config.data, "node")
        graph = graphs.graphs[0]
        train = split_nodes(graphs, config.data)["train"]
        labels = sort_labels({graph.node_labels[node] for node in train})
        if len(labels) < 2:
            raise DataError(f"{data}: every label is '{labels[0]}', expected at least two labels; add other nodes")
        schema, notes = Schema.of(graphs.graphs)
        described = {"schema": schema.to_json(), "labels": labels, "smiles": False, "directed": graph.directed}
        write_json(assets / ASSETS, described)
        width = f"{schema.node_width} features of a node, {schema.edge_width} of an edge"
        return [*graphs.notes, *notes, *edge_notes(schema, config.model), f"labels: {len(labels)}; {width}"]

    @classmethod
    def open(cls, config: Any, assets: Path) -> Self:
        return cls(config, cls.read_assets(assets))

    def load_data(self, data: Path, *, eval_only: bool = False, progress: Progress = ignore_progress) -> list[str]:
        graphs = read_graphs(data, self.config.data, "node")
        graph = graphs.graphs[0]
        part, scored = _to_score(graph)
        nodes = {"valid": scored} if eval_only else split_nodes(graphs, self.config.data)
        self.data_notes = ()
        used = [node for part in nodes.values() for node in part.tolist()]
        check_labels([(graph.node_labels[n], f"{graph.origin}: node {graph.nodes[n]}") for n in used], self.label_ids)
        self.encoded, self.splits = self.encode(graph), nodes
        self.graph_inputs = join_graphs([self.encoded])
        if eval_only:
            if part is not None:
                self.data_notes = (evaluation_note(part, len(scored), len(graph), "nodes"),)
            return [f"nodes: {len(scored):,} are scored", *self.data_notes]
        self.fingerprint = hash_lines([graph.content(), *(str(part.tolist()) for part in nodes.values())])
        counts = ", ".join(f"{len(part):,} for {name}" for name, part in nodes.items())
        return [f"nodes: {len(graph):,}, edges: {len(graph.source):,}; labelled nodes: {counts}"]

    def source(self, split: Split, seed: int) -> Source:
        return NodeBatches(self, self.splits[split.value], self.config.batch_size, seed)

    def batch(self, nodes: NDArray[np.int64]) -> NodeBatch:
        """Return a batch of some nodes."""
        graph = self.encoded.graph
        names = [f"{graph.origin}: node {graph.nodes[node]}" for node in nodes.tolist()]
        return NodeBatch(self.graph_inputs, torch.from_numpy(nodes), self._targets(nodes), names)

    def _targets(self, nodes: NDArray[np.int64]) -> Tensor:
        labels = self.encoded.graph.node_labels
        return torch.tensor([self.label_ids[labels[node]] for node in nodes.tolist()])

    # Training and inference

    def losses(self, batch: NodeBatch, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        yield "model", networks["model"](batch.inputs, batch.targets, batch.nodes)

    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        ((_, logits, _),) = self.run([self.encoded])
        nodes = self.splits[split.value]
        expected = self._targets(nodes).tolist()
        predicted = logits[nodes].argmax(-1).tolist()
        score = classification.accuracy(predicted, expected)
        values = {
            "accuracy": score.value,
            "loss": float(nn.functional.cross_entropy(logits[nodes], self._targets(nodes))),
        }
        values["nodes"] = len(nodes)
        tested = not quick and split == Split.VALID and "test" in self.splits
        if tested:
            test = self.splits["test"]
            right = classification.accuracy(logits[test].argmax(-1).tolist(), self._targets(test).tolist())
            values |= {"test_accuracy": right.value, "test_nodes": len(test)}
        names = [[self.labels[number] for number in side] for side in (predicted, expected)]
        table = confusion_table(classification.confusion(names[0], names[1], self.labels))
        complete = "test" not in self.splits or split != Split.VALID
        return Evaluation(values, {"accuracy": score.signature}, [table], complete=complete)

    def predict(self, inputs: Sequence[Mapping[str, Any]], options: GraphOptions) -> Iterator[Prediction]:
        encoded = [self.read_input(example) for example in inputs]
        examples = iter(inputs)
        for batch_inputs, logits, batch in self.run(encoded):
            starts = batch_inputs.offsets.tolist()
            for number, graph in enumerate(batch):
                rows = logits[starts[number] : starts[number + 1]].softmax(-1)
                yield self._prediction(next(examples), graph, rows, options)

    def _prediction(
        self, example: Mapping[str, Any], encoded: EncodedGraph, rows: Tensor, options: GraphOptions
    ) -> Prediction:
        best, labels = rows.max(-1)
        tags = tuple(self.labels[label] for label in labels.tolist())
        output = TagOutput(encoded.graph.nodes, tags, tuple(best.tolist()))
        attention, notes = self.attention(encoded, options, tags)
        scores = {"mean probability": float(best.mean())}
        return Prediction(example, output, scores, attention, trace=encoded, notes=notes)

    def rerun(self, prediction: Prediction, *, layers: bool = False) -> ForwardTrace:
        logits, axis, by_layer = self.trace(prediction, layers)
        chosen = tuple(logits.argmax(-1).tolist())
        return ForwardTrace(logits, chosen, axis, (axis,), self.labels.__getitem__, by_layer)

    def attention_snapshot(self) -> list[Prediction]:
        nodes = self.splits["valid"]
        shown = dict.fromkeys((int(nodes[0]), int(nodes[len(nodes) // 2])))
        parts = [self.encoded.graph.neighbourhood(node, SHOWN) for node in shown]
        return self.snapshot([self.encode(part) for part in parts])

    def sample(self) -> str:
        nodes, graph = self.splits["valid"][:3], self.encoded.graph
        ((_, logits, _),) = self.run([self.encoded])
        found = zip(nodes.tolist(), logits[nodes].argmax(-1).tolist(), strict=True)
        return "\n".join(f"{graph.nodes[node]}: {graph.node_labels[node]} -> {self.labels[n]}" for node, n in found)


def split_nodes(graphs: Graphs, settings: Any) -> dict[str, NDArray[np.int64]]:
    """Return the labelled nodes for training, validation and, where the data say so, for the test."""
    graph = graphs.graphs[0]
    labelled = [node for node, label in enumerate(graph.node_labels) if label]
    parts = {
        name: [n for n in labelled if graph.splits and graph.splits[n] == name] for name in ("train", "valid", "test")
    }
    pool = parts["train"] if graph.splits else labelled
    if not pool:
        raise DataError(f"{graphs.files[0]}: no labelled node of split train, expected some; correct the column")
    if not parts["valid"]:
        keys, strata = [graph.nodes[node] for node in pool], [graph.node_labels[node] for node in pool]
        fraction = SplitSettings(settings.valid_fraction)
        held_out = hold_out(keys, strata, fraction, Path(graphs.files[0]), unit="labelled node")
        pairs = list(zip(pool, held_out, strict=True))
        parts["train"], parts["valid"] = ([n for n, out in pairs if out == wanted] for wanted in (False, True))
    return {name: np.array(nodes, dtype=np.int64) for name, nodes in parts.items() if nodes}


def _to_score(graph: Graph) -> tuple[int | None, NDArray[np.int64]]:
    """Return the part and the nodes that an evaluation on other data scores; None: all that have a label."""
    labelled = [node for node, label in enumerate(graph.node_labels) if label]
    parts = {node: part_of(graph.splits[node]) if graph.splits else None for node in labelled}
    part = evaluated_part(set(parts.values()))
    return part, np.array([node for node in labelled if part in (None, parts[node])], dtype=np.int64)
