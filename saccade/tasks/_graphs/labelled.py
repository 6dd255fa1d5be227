"""Labelled graphs: base class of the tasks that predict something of a whole graph."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from saccade.atomic_io import write_json
from saccade.core import Base, Prediction, Progress, Source, Split
from saccade.core.callback import ignore_progress
from saccade.data.batching import BucketedBatches
from saccade.data.fingerprints import hash_lines
from saccade.data.formats.graph_search import read_graphs
from saccade.data.graphs.graph import Graphs
from saccade.data.graphs.schema import Schema
from saccade.data.graphs.splitting import split_graphs, training_graphs
from saccade.data.parts import evaluated_part, evaluation_note, part_of
from saccade.models.graph.inputs import GraphInputs
from saccade.models.graph.predictor import GraphModelConfig
from saccade.tasks._graphs.attention import GraphOptions
from saccade.tasks._graphs.examples import EncodedGraph, fingerprint, join_graphs
from saccade.tasks._graphs.task import ASSETS, SHOWN, GraphConfig, GraphTask, edge_notes

QUICK_GRAPHS = 2000  # of a quick evaluation


@dataclass(frozen=True)
class LabelledGraphConfig(GraphConfig):
    """Settings that the tasks on labelled graphs have."""

    model: GraphModelConfig = field(default_factory=GraphModelConfig)
    batch_size: int = 32
    """graphs per step"""
    micro_batches: int = 1
    """micro-batches per step, to save memory (gradient accumulation); with batch norms the result is not the same"""

    def __post_init__(self) -> None:
        for name in ("batch_size", "micro_batches"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, but is {getattr(self, name)}")


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """Graphs with their labels or numbers (G,)."""

    inputs: GraphInputs
    targets: Tensor
    rows: list[str]

    @property
    def count(self) -> int:
        return len(self.targets)

    @property
    def units(self) -> int:
        return len(self.targets)

    def to(self, device: Any) -> GraphBatch:
        return replace(self, inputs=self.inputs.to(device), targets=self.targets.to(device))


@dataclass(frozen=True, eq=False)
class GraphExamples:
    """The encoded graphs of one split; all count as equally long, so that a batch mixes small and large ones."""

    graphs: tuple[EncodedGraph, ...]

    def __len__(self) -> int:
        return len(self.graphs)

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.ones(len(self.graphs), dtype=np.int64)


class LabelledGraphTask(GraphTask):
    """A network with an output for each graph."""

    numeric: ClassVar[bool] = False
    """whether labels are numbers"""

    def __init__(self, config: Any, described: Mapping[str, Any], outputs: int) -> None:
        super().__init__(config, described, outputs)
        self.splits: dict[Split, GraphExamples] = {}

    @classmethod
    def train_defaults(cls, config: Any) -> list[str]:
        return ["train.optim.kind=adamw", "train.optim.lr=0.002", "train.optim.clip=1", "train.epochs=60"]

    # Data

    @classmethod
    def read(cls, settings: Any, data: Path) -> tuple[Graphs, Graphs]:
        """Return the graphs for training and for validation."""
        graphs = read_graphs(data, settings, "graph")
        cls.check(graphs)
        if settings.valid:
            valid = read_graphs(Path(settings.valid), settings, "graph")
            cls.check(valid)
            return training_graphs(graphs), valid
        return split_graphs(graphs, settings, numbers=cls.numeric)

    @classmethod
    @abc.abstractmethod
    def check(cls, graphs: Graphs) -> None:
        """Refuse graphs without a label, or with one of another kind."""

    @classmethod
    @abc.abstractmethod
    def describe(cls, train: Graphs, valid: Graphs, data: Path) -> dict[str, Any]:
        """Return what the labels are, as JSON."""

    @classmethod
    def prepare(
        cls, config: Any, data: Path, assets: Path, *, base: Base = None, progress: Progress = ignore_progress
    ) -> list[str]:
        train, valid = cls.read(config.data, data)
        schema, notes = Schema.of(train.graphs)
        directed = all(graph.directed for graph in train.graphs)
        described = {"schema": schema.to_json(), "smiles": train.smiles, "directed": directed}
        described |= cls.describe(train, valid, data)
        write_json(assets / ASSETS, described)
        width = f"{schema.node_width} features of a node, {schema.edge_width} of an edge"
        if config.data.folds:
            notes.append(f"cross-validation: part {config.data.fold} of {config.data.folds} is held out")
        return [*train.notes, *notes, *edge_notes(schema, config.model), width]

    @classmethod
    def open(cls, config: Any, assets: Path) -> Self:
        return cls(config, cls.read_assets(assets))  # type: ignore[call-arg]

    def load_data(self, data: Path, *, eval_only: bool = False, progress: Progress = ignore_progress) -> list[str]:
        self.data_notes = ()
        if eval_only:
            graphs = read_graphs(data, self.config.data, "graph")
            name = evaluated_part({part_of(graph.split) for graph in graphs.graphs})
            chosen = tuple(graph for graph in graphs.graphs if name is None or part_of(graph.split) == name)
            if name is not None and len(chosen) < len(graphs):
                self.data_notes = (evaluation_note(name, len(chosen), len(graphs), "graphs"),)
            parts = {Split.VALID: replace(graphs, graphs=chosen)}
            self.check(parts[Split.VALID])
        else:
            parts = dict(zip((Split.TRAIN, Split.VALID), self.read(self.config.data, data), strict=True))
        for part in parts.values():
            self.check_known(part)
        total, done = sum(map(len, parts.values())), 0
        self.splits = {}
        for split, part in parts.items():
            encoded = []
            for graph in part.graphs:
                encoded.append(self.encode(graph))
                done += 1
                progress(done / total)
            self.splits[split] = GraphExamples(tuple(encoded))
        if eval_only:
            return [f"graphs: {total:,}", *self.data_notes]
        self.fingerprint = hash_lines(fingerprint(examples.graphs) for examples in self.splits.values())
        train, valid = (self.splits[split] for split in (Split.TRAIN, Split.VALID))
        return [f"graphs: {len(train):,} for training, {len(valid):,} for validation"]

    def check_known(self, graphs: Graphs) -> None:
        """Refuse labels that the model does not know."""

    def source(self, split: Split, seed: int) -> Source:
        examples, config = self.splits[split], self.config
        return BucketedBatches(
            examples,
            lambda indices: self.collate([examples.graphs[row] for row in indices]),
            budget=config.batch_size,
            seed=seed,
            micro_batches=config.micro_batches,
        )

    def collate(self, graphs: Sequence[EncodedGraph]) -> GraphBatch:
        """Return a batch of some graphs."""
        rows = [encoded.graph.origin for encoded in graphs]
        return GraphBatch(join_graphs(graphs), self.targets(graphs), rows)

    @abc.abstractmethod
    def targets(self, graphs: Sequence[EncodedGraph]) -> Tensor:
        """Return the labels or numbers of some graphs (G,)."""

    # Training and inference

    def losses(self, batch: GraphBatch, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        yield "model", networks["model"](batch.inputs, batch.targets)

    def scored(self, split: Split, quick: bool, progress: Progress) -> tuple[list[EncodedGraph], Tensor, bool]:
        """Return the evaluated graphs, their outputs (G, V), and whether they are all of the split."""
        graphs = self.splits[split].graphs
        chosen = list(graphs[:: max(1, -(-len(graphs) // QUICK_GRAPHS)) if quick else 1])
        outputs, done = [], 0
        for _, logits, batch in self.run(chosen):
            outputs.append(logits)
            done += len(batch)
            progress(done / len(chosen))
        return chosen, torch.cat(outputs), len(chosen) == len(graphs)

    def predict(self, inputs: Sequence[Mapping[str, Any]], options: GraphOptions) -> Iterator[Prediction]:
        encoded = [self.read_input(example) for example in inputs]
        examples = iter(inputs)
        for _, outputs, batch in self.run(encoded):
            for graph, row in zip(batch, outputs, strict=True):
                yield self.prediction(next(examples), graph, row, options)

    @abc.abstractmethod
    def prediction(
        self, example: Mapping[str, Any], encoded: EncodedGraph, row: Tensor, options: GraphOptions
    ) -> Prediction:
        """Return the prediction for one graph from its outputs (V,)."""

    def attention_snapshot(self) -> list[Prediction]:
        graphs = self.splits[Split.VALID].graphs
        small = [graph for graph in graphs if len(graph) <= SHOWN] or list(graphs)
        shown = list({id(graph): graph for graph in (small[0], small[len(small) // 2])}.values())
        snapshot = []
        for encoded in shown:
            ((_, outputs, _),) = self.run([encoded])
            example = self.to_input(encoded.graph)
            snapshot.append(self.prediction(example, encoded, outputs[0], GraphOptions(attention=True)))
        return snapshot
