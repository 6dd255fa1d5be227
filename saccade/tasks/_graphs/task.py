"""Graph task: base class of the tasks on graphs: their data, their network and attention along edges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from saccade.atomic_io import read_json
from saccade.core import (
    AttentionMap,
    AttentionMaps,
    Axis,
    Field,
    Graph,
    NodeAxis,
    Prediction,
    Task,
    Text,
    Weights,
)
from saccade.data.formats.graph_json import parse_graph
from saccade.data.graphs import graph as graphs
from saccade.data.graphs.molecules import molecule_graph
from saccade.data.graphs.schema import Schema
from saccade.data.graphs.smiles import BadSmiles
from saccade.data.settings import GraphSettings
from saccade.errors import DataError, UsageError
from saccade.models.graph.inputs import GraphInputs
from saccade.models.graph.predictor import GraphModelConfig, GraphPredictor
from saccade.nn.probe import RecordedRow, watch
from saccade.tasks._encoder.inputs import check_outputs
from saccade.tasks._graphs.attention import (
    LARGEST,
    GraphOptions,
    NodeWeights,
    check_node,
    node_axis,
    part_note,
    shown_nodes,
)
from saccade.tasks._graphs.examples import EncodedGraph, edge_width, encode_graph, join_graphs

ASSETS = "graphs.json"
NODES = 20_000  # of a batch at inference
SHOWN = 40  # nodes around a node that stand for a large graph
LISTED = 20  # labels named in a message


@dataclass(frozen=True)
class GraphConfig:
    """Settings that all tasks on graphs have."""

    data: GraphSettings = field(default_factory=GraphSettings)
    model: GraphModelConfig = field(default_factory=GraphModelConfig)


class GraphTask(Task):
    """A task on graphs; `outputs` and what the network predicts are chosen by the subclass."""

    pooled: ClassVar[bool] = True
    """whether a graph has the outputs, not its nodes"""
    Options: ClassVar[type[Any]] = GraphOptions
    unit: ClassVar[str] = "graphs"

    config: Any
    model: GraphPredictor

    def __init__(self, config: Any, described: Mapping[str, Any], outputs: int, l2: float = 0.0) -> None:
        self.config, self.schema = config, Schema.from_json(described["schema"])
        self.smiles = bool(described["smiles"])
        directed = bool(described.get("directed", config.data.directed))
        self.input_settings: GraphSettings = replace(config.data, directed=directed)
        """how an input is read: one that does not say whether it is directed is as the training data"""
        self.inputs: tuple[Field, ...] = (Text("smiles"),) if self.smiles else (Graph("graph"),)
        widths = (self.schema.node_width, edge_width(self.schema))
        self.model = GraphPredictor(config.model, *widths, outputs, pooled=self.pooled, l2=l2)

    @classmethod
    def read_assets(cls, assets: Path) -> dict[str, Any]:
        """Return what `prepare` wrote."""
        described: dict[str, Any] = read_json(assets / ASSETS)
        return described

    def networks(self) -> dict[str, nn.Module]:
        return {"model": self.model}

    def encode(self, graph: graphs.Graph) -> EncodedGraph:
        """Return a graph as arrays."""
        return encode_graph(graph, self.schema, self.config.model.positions)

    def read_input(self, inputs: Mapping[str, Any]) -> EncodedGraph:
        """Return the graph of one example."""
        try:
            graph = (
                molecule_graph(inputs["smiles"]) if self.smiles else parse_graph(inputs["graph"], self.input_settings)
            )
            return self.encode(graph)
        except BadSmiles as error:
            shown = str(inputs["smiles"])[:60]
            raise UsageError(f"smiles must be a molecule, but '{shown}' is not: {error}; correct it") from error
        except DataError as error:  # of a graph that was given, not of a file
            raise UsageError(str(error)) from error

    def run(self, examples: Sequence[EncodedGraph]) -> Iterator[tuple[GraphInputs, Tensor, list[EncodedGraph]]]:
        """Yield the outputs of graphs in batches, in order."""
        batch: list[EncodedGraph] = []
        for number, example in enumerate(examples):
            batch.append(example)
            if number + 1 == len(examples) or sum(map(len, batch)) + len(examples[number + 1]) > NODES:
                inputs = join_graphs(batch).to(self.device())
                with torch.no_grad():
                    yield inputs, check_outputs(self.model(inputs).float().cpu()), batch
                batch = []

    # Attention

    def attention(
        self, encoded: EncodedGraph, options: GraphOptions, tags: tuple[str, ...] = ()
    ) -> tuple[AttentionMaps, tuple[str, ...]]:
        """Return the attention maps of one graph where they are asked for, and a note where they show a part of it.

        `tags` are the predicted labels of the nodes, where these have some.
        """
        graph = encoded.graph
        check_node(graph, options.node)
        if not options.attention:
            return AttentionMaps(), ()
        with torch.no_grad(), watch(self.model) as recorder:
            self.model(join_graphs([encoded]).to(self.device()))
        rows: dict[str, Weights] = {name: RecordedRow(map, 0) for name, map in recorder.items()}
        part = shown_nodes(graph, options.node)
        notes: tuple[str, ...] = ()
        if part is None:
            axis = node_axis(graph, tags)
        else:
            rows = {name: NodeWeights(weights, torch.tensor(part)) for name, weights in rows.items()}
            part_tags = tuple(tags[node] for node in part) if tags else ()
            axis, notes = node_axis(graph.subgraph(part), part_tags, len(graph)), (part_note(graph, part),)
        return AttentionMaps(AttentionMap(name, weights, axis, axis) for name, weights in rows.items()), notes

    def trace(self, prediction: Prediction, layers: bool) -> tuple[Tensor, Axis, tuple[tuple[str, Tensor], ...]]:
        """Return the outputs of a prediction, the axis of its nodes, and the outputs by layer where asked."""
        encoded: EncodedGraph = prediction.trace
        shown = next((map.queries for map in prediction.attention.values()), None)
        if isinstance(shown, NodeAxis) and shown.part_of:
            part = f"the {len(shown)} nodes around '{shown.nodes[0]}' of {shown.part_of:,}"
            message = f"an explanation needs the attention of the whole graph, but that of {part} is shown"
            raise UsageError(f"{message}; give a graph of at most {LARGEST:,} nodes, without the option node")
        inputs = join_graphs([encoded]).to(self.device())
        outputs = self.model(inputs)
        by_layer = tuple(self.model.by_layer(inputs)) if layers else ()
        return outputs, node_axis(encoded.graph), by_layer

    def snapshot(self, examples: Sequence[EncodedGraph]) -> list[Prediction]:
        """Return the predictions for a few graphs with their attention."""
        inputs = [self.to_input(encoded.graph) for encoded in examples]
        return list(self.predict(inputs, GraphOptions(attention=True)))

    def to_input(self, graph: graphs.Graph) -> dict[str, Any]:
        """Return a graph as the input of a prediction."""
        return {"smiles": graph.text} if self.smiles else {"graph": graph.to_json()}


def edge_notes(schema: Schema, model: GraphModelConfig) -> list[str]:
    """Return a note for the user where the network reads no edge columns, and the data have some."""
    if model.architecture != "gat" or not schema.edge:
        return []
    several = len(schema.edge) > 1
    names = f"column{'s' if several else ''} {', '.join(column.name for column in schema.edge)}"
    what = f"edge {names} {'are' if several else 'is'} not used by model.architecture=gat"
    return [f"{what}; model.architecture=transformer reads {'them' if several else 'it'}"]


def check_labels(graphs: Sequence[tuple[str, str]], known: Mapping[str, int]) -> None:
    """Refuse a label (with its origin) that the training data do not have."""
    wrong = next(((label, origin) for label, origin in graphs if label not in known), None)
    if wrong is not None:
        listed = f"{', '.join(list(known)[:LISTED])}{', ...' if len(known) > LISTED else ''}"
        message = f"{wrong[1]}: label '{wrong[0]}', expected one of the training data: {listed}"
        raise DataError(f"{message}; correct it, or train a new run")
