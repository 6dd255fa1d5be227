"""Encoded graphs: the features, edges and positions of graphs as arrays, and several of them as one input.

Shapes: N nodes, M edges, F node features, A edge features, P positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from saccade.data.fingerprints import hash_lines
from saccade.data.graphs.graph import Graph
from saccade.data.graphs.schema import Schema
from saccade.data.graphs.structure import laplacian, random_walk
from saccade.models.graph.inputs import GraphInputs
from saccade.nn.edges import Edges


@dataclass(frozen=True, eq=False)
class EncodedGraph:
    """One graph as arrays; edges go both ways where they have no direction, and every node has one to itself."""

    graph: Graph
    nodes: NDArray[np.float32]  # (N, F)
    source: NDArray[np.int64]  # (M,)
    target: NDArray[np.int64]  # (M,)
    edge_features: NDArray[np.float32]  # (M, A); the last one is 1 for the edge of a node to itself
    positions: NDArray[np.float32]  # (N, P)

    def __len__(self) -> int:
        return len(self.nodes)


def edge_width(schema: Schema) -> int:
    """Return the number of edge features of encoded graphs."""
    return schema.edge_width + 1


def encode_graph(graph: Graph, schema: Schema, positions: tuple[str, int]) -> EncodedGraph:
    """Return a graph as arrays, with structural positions of a kind and number."""
    both = graph.both_ways()
    count, own = len(graph), np.arange(len(graph))
    nodes = schema.encode_nodes(both)
    features = np.pad(schema.encode_edges(both), ((0, 0), (0, 1)))
    loops = both.source == both.target
    features[loops, -1] = 1
    missing = np.setdiff1d(own, both.source[loops])
    added = np.zeros((len(missing), features.shape[1]), np.float32)
    added[:, -1] = 1
    kind, number = positions
    ends = (both.source, both.target)
    points = np.zeros((count, 0), np.float32)
    if kind == "random_walk":
        points = random_walk(ends, count, number, graph.origin)
    elif kind == "laplacian":
        points = laplacian(ends, count, number, graph.origin)
    source, target = (np.concatenate((side, missing)) for side in ends)
    return EncodedGraph(graph, nodes, source, target, np.concatenate((features, added)), points)


def join_graphs(graphs: Sequence[EncodedGraph]) -> GraphInputs:
    """Return several graphs as one, whose parts have no edge between them."""
    sizes = [len(graph) for graph in graphs]
    starts = np.concatenate(([0], np.cumsum(sizes)))
    shifted = list(zip(graphs, starts[:-1].tolist(), strict=True))
    source = torch.from_numpy(np.concatenate([graph.source + start for graph, start in shifted]))
    target = torch.from_numpy(np.concatenate([graph.target + start for graph, start in shifted]))
    edges, order = Edges.of(source, target, int(starts[-1]))
    return GraphInputs(
        torch.from_numpy(np.concatenate([graph.nodes for graph in graphs])),
        edges,
        torch.from_numpy(np.concatenate([graph.edge_features for graph in graphs]))[order],
        torch.from_numpy(np.concatenate([graph.positions for graph in graphs])),
        torch.from_numpy(starts),
    )


def fingerprint(graphs: Sequence[EncodedGraph]) -> str:
    """Return a hash of some graphs with their labels."""
    return hash_lines(encoded.graph.content() for encoded in graphs)
