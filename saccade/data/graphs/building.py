"""Building: a graph from the names of its nodes and the pairs of names of its edges, with errors that name the line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from saccade.data.graphs.graph import SPLITS, Value
from saccade.data.tables.problems import Problem, Problems, did_you_mean

BITS = 31  # of the number of a node

Columns = dict[str, list[Value]]


@dataclass
class GraphBuilder:
    """Collects the nodes and edges of one graph; problems go to a list."""

    problems: Problems
    directed: bool = False
    nodes: dict[str, int] = field(default_factory=dict)
    pairs: dict[int, None] = field(default_factory=dict)
    """the two ends of each edge as one number, which takes a third of the memory of a pair"""
    repeated: int = 0
    """edges that were left out because they are there already"""

    def add_node(self, name: str, file: Path, line: int | None) -> bool:
        """Add a node; return whether it is new and has a name."""
        if not name.strip():
            what, step = "a node without an id", "give every node an id"
            self.problems.add(Problem(file, line, None, what, "a name or a number", step))
            return False
        if name in self.nodes:
            what = f"a second node with the id '{name[:60]}'"
            self.problems.add(Problem(file, line, None, what, "ids that are different", "remove or rename one of them"))
            return False
        self.nodes[name] = len(self.nodes)
        return True

    def add_edge(self, source: str, target: str, file: Path, line: int | None) -> bool:
        """Add an edge between two nodes; return whether it is new."""
        for name in (source, target):
            if name not in self.nodes:
                what = f"an edge of node '{name[:60]}', which is not among the {len(self.nodes):,} nodes"
                hint = did_you_mean(name, list(self.nodes)[:2000])
                step = f"add the node or remove the edge{hint}"
                self.problems.add(Problem(file, line, None, what, "the id of a node", step))
                return False
        a, b = self.nodes[source], self.nodes[target]
        pair = a << BITS | b if self.directed or a <= b else b << BITS | a
        if pair in self.pairs:
            self.repeated += 1
            return False
        self.pairs[pair] = None
        return True

    def ends(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the numbers of the nodes that the edges connect."""
        pairs = np.fromiter(self.pairs, np.int64, len(self.pairs))
        return pairs >> BITS, pairs & ((1 << BITS) - 1)

    def notes(self) -> list[str]:
        """Return a note for the user on edges that are there twice."""
        if not self.repeated:
            return []
        count = "1 edge" if self.repeated == 1 else f"{self.repeated:,} edges"
        return [f"{count} left out: between the same two nodes as an earlier one"]


def read_split(value: str, file: Path, line: int | None, problems: Problems) -> str:
    """Return the split that a cell names; another text is a problem."""
    name = value.strip().lower()
    if name not in SPLITS:
        expected, step = "train, valid, test or nothing", "correct it, or rename the column"
        problems.add(Problem(file, line, None, f"split '{value[:40]}'", expected, step))
    return SPLITS.get(name, "")


def append(columns: Columns, names: Sequence[str], values: Sequence[Value]) -> None:
    """Add one value to each column."""
    for name, value in zip(names, values, strict=True):
        columns.setdefault(name, []).append(value)
