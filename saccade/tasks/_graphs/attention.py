"""Attention over the nodes of a graph: all of them, or of a large graph those around one node.

Shapes: H heads, S shown nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from saccade.core import NodeAxis, PredictOptions, Role, Weights
from saccade.data.graphs.graph import Graph
from saccade.data.graphs.layout import layout
from saccade.data.tables.problems import did_you_mean
from saccade.errors import UsageError

LARGEST = 2000  # nodes of a graph whose attention is shown whole: a drawing needs the weights of all pairs
AROUND = 200  # nodes around a node that stand for a larger graph
COMPARED = 2000  # names among which a similar one is looked for


@dataclass(frozen=True)
class GraphOptions(PredictOptions):
    """Options of a prediction for a graph."""

    node: str = ""
    """show the attention of the 200 nodes around this one; empty: of all nodes, of more than 2,000 around the first"""


@dataclass(frozen=True)
class NodeWeights:
    """The weights of some nodes for each other, computed in the whole graph: no more than a row of it at once."""

    whole: Weights
    nodes: Tensor  # (S,)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(H, S, S)"""
        return self.whole.shape[0], len(self.nodes), len(self.nodes)

    def rows(self, first: int, last: int, *, step: int = 1, head: int | None = None) -> Tensor:
        """Return the weights of every `step`-th of the nodes first..last: (H, nodes, S)."""
        return self._of(self.nodes[max(0, first) : last : step], head)

    def select(self, queries: Tensor, *, head: int | None = None) -> Tensor:
        """Return the weights of some of the nodes: (H, nodes, S)."""
        return self._of(self.nodes[queries], head)

    @property
    def nbytes(self) -> int:
        """Bytes of what the weights of the whole graph are computed from."""
        return self.whole.nbytes

    def _of(self, nodes: Tensor, head: int | None) -> Tensor:
        heads = self.shape[0] if head is None else 1
        rows = [self.whole.rows(node, node + 1, head=head)[..., self.nodes] for node in nodes.tolist()]
        return torch.cat(rows, 1) if rows else torch.zeros(heads, 0, len(self.nodes))


def node_axis(graph: Graph, tags: tuple[str, ...] = (), part_of: int = 0) -> NodeAxis:
    """Return the nodes of a graph as an axis, with their predicted labels; a large graph has no places in the plane."""
    if len(graph) > LARGEST:
        return NodeAxis(Role.GRAPH, graph.nodes, tags=tags)
    pairs = tuple(zip(graph.source.tolist(), graph.target.tolist(), strict=True))
    points = tuple(layout(graph.source, graph.target, len(graph)))
    return NodeAxis(Role.GRAPH, graph.nodes, pairs, points, tags, part_of)


def check_node(graph: Graph, node: str) -> None:
    """Refuse a node that a graph does not have."""
    if node and node not in graph.nodes:
        hint = did_you_mean(node, graph.nodes[:COMPARED])
        step = f"choose one of them{hint}"
        raise UsageError(f"node must be one of the {len(graph):,} nodes of the graph, but is '{node[:60]}'; {step}")


def shown_nodes(graph: Graph, node: str) -> list[int] | None:
    """Return the nodes around a node whose attention is shown; None: all nodes."""
    if not node and len(graph) <= LARGEST:
        return None
    return graph.around(graph.nodes.index(node) if node else 0, AROUND)


def part_note(graph: Graph, nodes: list[int]) -> str:
    """Return the note that the attention of a part of a graph is shown."""
    around = f"attention of the {len(nodes):,} nodes around '{graph.nodes[nodes[0]]}' of {len(graph):,}"
    return f"{around}, computed in the whole graph; the option node chooses another one"
