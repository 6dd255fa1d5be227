"""Inputs of a network over graphs: several graphs as one, whose parts have no edge between them.

Shapes: N nodes, M edges, G graphs, F node features, A edge features, P positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from saccade.nn.edges import Edges


@dataclass(frozen=True, eq=False)
class GraphInputs:
    """The nodes and edges of some graphs; every node has an edge to itself."""

    nodes: Tensor  # (N, F)
    edges: Edges
    edge_features: Tensor  # (M, A)
    positions: Tensor  # (N, P): structural positions; P is 0 where there are none
    offsets: Tensor  # (G + 1,): first node of each graph, and the number of nodes

    @property
    def graphs(self) -> int:
        return len(self.offsets) - 1

    def to(self, device: Any) -> GraphInputs:
        parts = (self.edge_features.to(device), self.positions.to(device), self.offsets.to(device))
        return GraphInputs(self.nodes.to(device), self.edges.to(device), *parts)
