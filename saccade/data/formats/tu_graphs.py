"""TU graphs: the benchmark graphs of chemistry, proteins and networks, in both published text formats.

One file: the number of graphs, then for each a line 'nodes label' and for each node a line 'tag degree neighbours'.
A folder: NAME_A.txt (pairs of nodes), NAME_graph_indicator.txt, NAME_graph_labels.txt, and optional ones for nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from saccade.data.graphs.graph import Graph, Graphs, Value
from saccade.data.settings import GraphSettings
from saccade.data.tables.problems import BadRows, Problem, Problems
from saccade.data.tables.rows import Lines
from saccade.data.tables.sniffing import sniff

ADJACENCY, INDICATOR, LABELS = "_A.txt", "_graph_indicator.txt", "_graph_labels.txt"
NODE_LABELS, NODE_ATTRIBUTES, EDGE_LABELS = "_node_labels.txt", "_node_attributes.txt", "_edge_labels.txt"


def is_tu_file(path: Path) -> bool:
    """Whether a text file starts like TU graphs: a number, then a graph whose lines have the numbers they announce."""
    if not path.is_file() or not path.name.lower().removesuffix(".gz").endswith(".txt"):
        return False
    try:
        lines = iter(Lines(sniff(path)))
        first, second, third = (next(lines, "").split() for _ in range(3))
    except BadRows:
        return False
    shaped = len(first) == 1 and len(second) == 2 and len(third) >= 2
    if not shaped or not all(part.lstrip("-").isdecimal() for part in (*first, *second, *third)):
        return False
    return len(third) >= 2 + int(third[1])


def find_tu_folder(folder: Path) -> str:
    """Return the name of the TU dataset of a folder; empty if it has none."""
    if not folder.is_dir():
        return ""
    names = [path.name.removesuffix(ADJACENCY) for path in sorted(folder.glob(f"*{ADJACENCY}"))]
    return next((name for name in names if all((folder / (name + end)).is_file() for end in (INDICATOR, LABELS))), "")


def read_tu_file(path: Path, settings: GraphSettings) -> Graphs:
    """Return the graphs of one file."""
    reader = _Numbers(path, settings)
    (count,) = reader.next("the number of graphs", 1)
    graphs = []
    for number in range(count):
        at = f"graph {number + 1} of {count}"
        nodes, label = reader.next(f"'nodes label' of {at}", 2)
        line = reader.lines.number
        tags, pairs = list[Value](), set[tuple[int, int]]()
        for node in range(nodes):
            values = reader.next(f"'tag degree neighbours' of node {node} of {at}", None)
            tag, degree, *others = values
            if len(others) < degree:
                reader.refuse(f"{len(others)} neighbours", f"{degree}, as the line says")
            for other in others[:degree]:
                if not 0 <= other < nodes:
                    reader.refuse(f"neighbour {other}", f"0 to {nodes - 1}, the nodes of {at}")
                pairs.add((min(node, other), max(node, other)))
            tags.append((str(tag),))
        ends = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
        names = tuple(map(str, range(nodes)))
        origin = f"{path.name}:{line}"
        columns = {"tag": tags}
        graphs.append(Graph(names, ends[:, 0], ends[:, 1], columns, label=str(label), origin=origin))
    reader.end(f"{count} graphs")
    return Graphs(tuple(graphs), "graph", files=(str(path),))


class _Numbers:
    """The lines of a file of whole numbers."""

    def __init__(self, path: Path, settings: GraphSettings) -> None:
        self.path = path
        self.lines = Lines(sniff(path, encoding=settings.encoding or None))
        self._lines = iter(self.lines)

    def next(self, what: str, count: int | None) -> list[int]:
        """Return the numbers of the next line."""
        line = next(self._lines, None)
        self.lines.recent.clear()
        if line is None:
            self.refuse("the end of the file", what, after=1)
        parts = (line or "").split()
        try:
            numbers = [int(part) for part in parts[: count or 2]] + (
                [int(part) for part in parts[2 : 2 + int(parts[1])]] if count is None else []
            )
        except (ValueError, IndexError):
            numbers = []
        if len(numbers) < (count or 2) or (count and len(parts) != count):
            self.refuse(f"'{(line or '').strip()[:40]}'", f"whole numbers: {what}")
        if count and min(numbers[:1]) < 0:
            self.refuse(f"{numbers[0]}", f"a number of 0 or more: {what}")
        return numbers

    def refuse(self, what: str, expected: str, after: int = 0) -> None:
        line, step = self.lines.number + after, "download the file again, or correct it"
        raise BadRows([Problem(self.path, line, None, what, expected, step)])

    def end(self, what: str) -> None:
        """Refuse lines after the last graph."""
        line = next((line for line in self._lines if line.strip()), None)
        if line is not None:
            self.refuse(f"'{line.strip()[:40]}'", f"the end of the file after {what}")


def read_tu_folder(folder: Path, name: str, settings: GraphSettings) -> Graphs:
    """Return the graphs of a folder of files."""
    problems = Problems()
    indicator = [int(value) for (value,) in _table(folder, name + INDICATOR, problems, int)]
    labels = [str(value) for (value,) in _table(folder, name + LABELS, problems, int)]
    pairs = _table(folder, name + ADJACENCY, problems, int)
    columns: dict[str, list[list[float]]] = {}
    for end in (NODE_LABELS, NODE_ATTRIBUTES, EDGE_LABELS):
        if (folder / (name + end)).is_file():
            columns[end] = _table(folder, name + end, problems, float)
            count = len(pairs) if end == EDGE_LABELS else len(indicator)
            if len(columns[end]) != count:
                what = f"{len(columns[end]):,} lines"
                step = "download the folder again"
                problems.add(Problem(folder / (name + end), None, None, what, f"{count:,}", step))
    problems.check()
    _check_pairs(folder / (name + ADJACENCY), pairs, indicator, problems)
    wrong = next((line for line, graph in enumerate(indicator, 1) if not 1 <= graph <= len(labels)), None)
    if wrong is not None:
        what, expected = f"graph {indicator[wrong - 1]}", f"1 to {len(labels)}, the graphs that have a label"
        problems.add(Problem(folder / (name + INDICATOR), wrong, None, what, expected, "correct it"))
    problems.check()
    graphs = tuple(_graphs(folder, name, indicator, labels, pairs, columns))
    return Graphs(graphs, "graph", files=(str(folder),))


def _table(folder: Path, name: str, problems: Problems, kind: type) -> list[list[float]]:
    """Return the numbers of each line of a file, separated by commas."""
    path, table = folder / name, list[list[float]]()
    lines = Lines(sniff(path))
    for line in lines:
        lines.recent.clear()
        if not line.strip():
            continue
        try:
            table.append([kind(part) for part in line.split(",")])
        except ValueError:
            what, step = f"'{line.strip()[:40]}'", "correct the line"
            problems.add(Problem(path, lines.number, None, what, "numbers separated by commas", step))
    return table


def _check_pairs(path: Path, pairs: list[list[float]], indicator: list[int], problems: Problems) -> None:
    for line, pair in enumerate(pairs, 1):
        if len(pair) != 2 or not all(1 <= node <= len(indicator) for node in pair):
            what = ", ".join(str(int(node)) for node in pair)
            expected = f"two nodes from 1 to {len(indicator)}"
            problems.add(Problem(path, line, None, what, expected, "correct the line"))
        elif indicator[int(pair[0]) - 1] != indicator[int(pair[1]) - 1]:
            what = f"an edge between nodes {int(pair[0])} and {int(pair[1])} of two graphs"
            problems.add(Problem(path, line, None, what, "two nodes of one graph", "correct the line"))


def _graphs(
    folder: Path,
    name: str,
    indicator: list[int],
    labels: list[str],
    pairs: list[list[float]],
    columns: dict[str, list[list[float]]],
) -> Iterator[Graph]:
    members: list[list[int]] = [[] for _ in labels]
    for node, graph in enumerate(indicator):
        members[graph - 1].append(node)
    edges: list[dict[tuple[int, int], int]] = [{} for _ in labels]
    for number, (a, b) in enumerate(pairs):
        first, second = sorted((int(a) - 1, int(b) - 1))
        edges[indicator[first] - 1].setdefault((first, second), number)
    for graph, (nodes, label) in enumerate(zip(members, labels, strict=True)):
        place = {node: number for number, node in enumerate(nodes)}
        ends = np.array([(place[a], place[b]) for a, b in edges[graph]], dtype=np.int64).reshape(-1, 2)
        node_columns: dict[str, list[Value]] = {}
        if NODE_LABELS in columns:
            node_columns["tag"] = [(str(int(columns[NODE_LABELS][node][0])),) for node in nodes]
        for at in range(len(columns[NODE_ATTRIBUTES][0]) if NODE_ATTRIBUTES in columns else 0):
            node_columns[f"attribute{at + 1}"] = [columns[NODE_ATTRIBUTES][node][at] for node in nodes]
        edge_columns: dict[str, list[Value]] = {}
        if EDGE_LABELS in columns:
            edge_columns["kind"] = [(str(int(columns[EDGE_LABELS][number][0])),) for number in edges[graph].values()]
        yield Graph(
            tuple(str(node + 1) for node in nodes),
            ends[:, 0],
            ends[:, 1],
            node_columns,
            edge_columns,
            label=label,
            origin=f"{name}{LABELS}:{graph + 1}",
        )
