"""Graph: nodes and edges with their columns as they are in a file, before they become numbers."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Value = str | float | tuple[str, ...] | None
"""a category, a number, a list of words, or nothing"""
SPLITS = {
    "train": "train",
    "training": "train",
    "valid": "valid",
    "val": "valid",
    "validation": "valid",
    "dev": "valid",
}
SPLITS |= {"test": "test", "none": "", "": ""}


@dataclass(frozen=True, eq=False)
class Graph:
    """One graph; `source` and `target` are numbers of nodes, no edge is there twice."""

    nodes: tuple[str, ...]
    source: NDArray[np.int64]
    target: NDArray[np.int64]
    node_columns: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    edge_columns: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    directed: bool = False
    label: str = ""
    """of the graph; empty: none"""
    node_labels: tuple[str, ...] = ()
    """of each node, empty for one without a label; (): the nodes have none"""
    splits: tuple[str, ...] = ()
    """train, valid, test or empty for each node; (): the file does not divide them"""
    origin: str = ""
    """file and line"""
    split: str = ""
    """of the graph"""
    text: str = ""
    """SMILES of a molecule"""

    def __len__(self) -> int:
        return len(self.nodes)

    def both_ways(self) -> Graph:
        """Return the graph with each edge of an undirected one in both directions."""
        if self.directed:
            return self
        loops = self.source == self.target
        back = np.flatnonzero(~loops)
        source = np.concatenate((self.source, self.target[back]))
        target = np.concatenate((self.target, self.source[back]))
        columns = {
            name: [*values, *(values[edge] for edge in back.tolist())] for name, values in self.edge_columns.items()
        }
        return replace(self, source=source, target=target, edge_columns=columns, directed=True)

    def neighbourhood(self, node: int, most: int) -> Graph:
        """Return the graph of a node and the nodes around it, nearest first, at most some; the node is the first."""
        return self.subgraph(self.around(node, most))

    def around(self, node: int, most: int) -> list[int]:
        """Return a node and the nodes around it, breadth first, at most some."""
        ends, others = np.concatenate((self.source, self.target)), np.concatenate((self.target, self.source))
        order = np.argsort(ends, kind="stable")
        others = others[order]
        offsets = np.searchsorted(ends[order], np.arange(len(self) + 1))
        chosen, seen = [node], {node}
        for near in chosen:  # which grows
            for other in np.unique(others[offsets[near] : offsets[near + 1]]).tolist():
                if len(chosen) >= most:
                    return chosen
                if other not in seen:
                    seen.add(other)
                    chosen.append(other)
        return chosen

    def subgraph(self, nodes: Sequence[int]) -> Graph:
        """Return the graph of some nodes, in their order, and the edges between them."""
        number = np.full(len(self.nodes), -1)
        number[np.asarray(nodes, dtype=np.int64)] = np.arange(len(nodes))
        kept = np.flatnonzero((number[self.source] >= 0) & (number[self.target] >= 0))
        return replace(
            self,
            nodes=tuple(self.nodes[at] for at in nodes),
            source=number[self.source[kept]],
            target=number[self.target[kept]],
            node_columns={name: [values[at] for at in nodes] for name, values in self.node_columns.items()},
            edge_columns={name: [values[at] for at in kept.tolist()] for name, values in self.edge_columns.items()},
            node_labels=tuple(self.node_labels[at] for at in nodes) if self.node_labels else (),
            splits=tuple(self.splits[at] for at in nodes) if self.splits else (),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the graph in node-link format, without labels."""
        return {"directed": self.directed, "nodes": list(self._nodes_json()), "edges": list(self._edges_json())}

    def _nodes_json(self) -> Iterator[dict[str, Any]]:
        for at, name in enumerate(self.nodes):
            yield {"id": name, **{column: _plain(values[at]) for column, values in self.node_columns.items()}}

    def _edges_json(self) -> Iterator[dict[str, Any]]:
        for at, (a, b) in enumerate(zip(self.source.tolist(), self.target.tolist(), strict=True)):
            columns = {column: _plain(values[at]) for column, values in self.edge_columns.items()}
            yield {"source": self.nodes[a], "target": self.nodes[b], **columns}

    def content(self) -> str:
        """Return a text that is the same for equal graphs: what a hash of the data is computed from.

        It is the JSON of the graph and its labels, written node by node: all edges as objects take ten times as much.
        """
        parts = {"label": self.label, "labels": self.node_labels, "splits": self.splits, "split": self.split}
        out = io.StringIO()
        out.write(f'[{{"directed": {json.dumps(self.directed)}')
        for name, items in (("nodes", self._nodes_json()), ("edges", self._edges_json())):
            out.write(f', "{name}": [')
            out.writelines(f"{', ' if at else ''}{json.dumps(item)}" for at, item in enumerate(items))
            out.write("]")
        out.write(f"}}, {json.dumps(parts)}]")
        return out.getvalue()


def _plain(value: Value) -> Any:
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True, eq=False)
class Graphs:
    """The graphs of some files: one whose nodes have labels, or many that have a label each."""

    graphs: tuple[Graph, ...]
    level: str
    """node or graph: what has labels"""
    notes: tuple[str, ...] = ()
    smiles: bool = False
    """whether the graphs are molecules that were written as SMILES"""
    column: str = "label"
    """name of the column of the labels"""
    files: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.graphs)

    def of_split(self, name: str) -> Graphs:
        """Return the graphs of a split: train, valid or test."""
        return replace(self, graphs=tuple(graph for graph in self.graphs if graph.split == name))

    def labels(self) -> list[str]:
        """Return the labels of all graphs or of all nodes, empty where there is none."""
        if self.level == "graph":
            return [graph.label for graph in self.graphs]
        return [label for graph in self.graphs for label in graph.node_labels]
