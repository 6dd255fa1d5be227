"""TU graphs: the benchmark graphs of chemistry, proteins and networks, in both published text formats.

One file: the number of graphs, then for each a line 'nodes label' and for each node a line 'tag degree neighbours'.
A folder: NAME_A.txt (pairs of nodes), NAME_graph_indicator.txt, NAME_graph_labels.txt, and optional ones with labels
and attributes of nodes and edges.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from saccade.data.graphs.graph import Graph, Graphs, Value
from saccade.data.graphs.schema import text
from saccade.data.settings import GraphSettings
from saccade.data.tables.problems import BadRows, Problem, Problems
from saccade.data.tables.rows import Lines
from saccade.data.tables.sniffing import sniff

ADJACENCY, INDICATOR, LABELS = "_A.txt", "_graph_indicator.txt", "_graph_labels.txt"
NODE_LABELS, NODE_ATTRIBUTES = "_node_labels.txt", "_node_attributes.txt"
EDGE_LABELS, EDGE_ATTRIBUTES = "_edge_labels.txt", "_edge_attributes.txt"
GRAPH_ATTRIBUTES = "_graph_attributes.txt"
OPTIONAL = (NODE_LABELS, NODE_ATTRIBUTES, EDGE_LABELS, EDGE_ATTRIBUTES)


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
    if not shaped or not all(part.removeprefix("-").isdecimal() for part in (*first, *second, *third)):
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
        if not nodes:
            reader.refuse(f"{at} has 0 nodes", "at least one")
        tags, pairs = list[Value](), set[tuple[int, int]]()
        for node in range(nodes):
            values = reader.next(f"'tag degree neighbours' of node {node} of {at}", None)
            tag, degree, *others = values
            if degree < 0:
                reader.refuse(f"{degree} neighbours", "a number of 0 or more")
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
    indicator = [int(row[0]) for row in _table(folder / (name + INDICATOR), problems, int, 1)]
    labels = [str(row[0]) for row in _table(folder / (name + LABELS), problems, int, 1)]
    pairs = _table(folder / (name + ADJACENCY), problems, int, 2)
    columns: dict[str, list[list[float]]] = {}
    for end in OPTIONAL:
        path = folder / (name + end)
        if not path.is_file():
            continue
        columns[end] = _table(path, problems, float)
        count, what = (len(pairs), "edges") if end in (EDGE_LABELS, EDGE_ATTRIBUTES) else (len(indicator), "nodes")
        if len(columns[end]) != count and not problems.count:
            lines, expected = f"{len(columns[end]):,} lines", f"{count:,}, one for each of the {what}"
            problems.add(Problem(path, None, None, lines, expected, "download the folder again"))
    problems.check()
    _check_pairs(folder / (name + ADJACENCY), pairs, indicator, problems)
    _check_indicator(folder, name, indicator, labels, problems)
    problems.check()
    graphs = tuple(_graphs(name, indicator, labels, pairs, columns))
    ignored = folder / (name + GRAPH_ATTRIBUTES)
    notes = (f"{ignored.name} is not used: a graph has one label, that of {name}{LABELS}",) if ignored.is_file() else ()
    return Graphs(graphs, "graph", notes, files=(str(folder),))


def _table(path: Path, problems: Problems, kind: type[int] | type[float], width: int = 0) -> list[list[float]]:
    """Return the numbers of each line of a file, separated by commas; without a width as many as in the first line."""
    table, numbers = list[list[float]](), "whole numbers" if kind is int else "finite numbers"
    lines, as_first, empty = Lines(sniff(path)), "" if width else ", as in the first line", False
    for line in lines:
        lines.recent.clear()
        if not line.strip():
            empty = True
            continue
        try:
            row = [kind(part) for part in line.split(",")]
        except ValueError:
            row = []
        width = width or len(row)
        if empty:
            what, expected = f"'{line.strip()[:40]}' after an empty line", "a line for each node, edge or graph"
            problems.add(Problem(path, lines.number, None, what, expected, "remove the empty line"))
            break
        if not row or not all(map(math.isfinite, row)):
            what, expected = f"'{line.strip()[:40]}'", f"{numbers} separated by commas"
            problems.add(Problem(path, lines.number, None, what, expected, "correct the line"))
        elif len(row) != width:
            what = "1 number" if len(row) == 1 else f"{len(row)} numbers"
            problems.add(Problem(path, lines.number, None, what, f"{width}{as_first}", "correct the line"))
        else:
            table.append(row)
    return table


def _check_pairs(path: Path, pairs: list[list[float]], indicator: list[int], problems: Problems) -> None:
    for line, (a, b) in enumerate(pairs, 1):
        if not all(1 <= node <= len(indicator) for node in (a, b)):
            expected = f"two nodes from 1 to {len(indicator)}"
            problems.add(Problem(path, line, None, f"{a}, {b}", expected, "correct the line"))
        elif indicator[int(a) - 1] != indicator[int(b) - 1]:
            what = f"an edge between nodes {a} and {b} of two graphs"
            problems.add(Problem(path, line, None, what, "two nodes of one graph", "correct the line"))


def _check_indicator(folder: Path, name: str, indicator: list[int], labels: list[str], problems: Problems) -> None:
    """Report nodes of a graph that has no label, and graphs without nodes."""
    wrong = next((line for line, graph in enumerate(indicator, 1) if not 1 <= graph <= len(labels)), None)
    if wrong is not None:
        what, expected = f"graph {indicator[wrong - 1]}", f"1 to {len(labels)}, the graphs that have a label"
        problems.add(Problem(folder / (name + INDICATOR), wrong, None, what, expected, "correct it"))
        return
    for empty in sorted(set(range(1, len(labels) + 1)) - set(indicator)):
        what, expected = f"graph {empty} has no nodes", f"at least one line {empty} in {name}{INDICATOR}"
        problems.add(Problem(folder / (name + LABELS), empty, None, what, expected, "remove its label, or add nodes"))


def _graphs(
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
        lines = list(edges[graph].values())
        yield Graph(
            tuple(str(node + 1) for node in nodes),
            ends[:, 0],
            ends[:, 1],
            _columns("tag", columns.get(NODE_LABELS, []), columns.get(NODE_ATTRIBUTES, []), nodes),
            _columns("kind", columns.get(EDGE_LABELS, []), columns.get(EDGE_ATTRIBUTES, []), lines),
            label=label,
            origin=f"{name}{LABELS}:{graph + 1}",
        )


def _columns(
    name: str, labels: list[list[float]], attributes: list[list[float]], chosen: list[int]
) -> dict[str, list[Value]]:
    """Return the columns of some nodes or edges: their labels as categories, and their attributes as numbers."""
    columns: dict[str, list[Value]] = {}
    for number in range(len(labels[0]) if labels else 0):
        columns[f"{name}{number + 1 if number else ''}"] = [(text(labels[at][number]),) for at in chosen]
    for number in range(len(attributes[0]) if attributes else 0):
        columns[f"attribute{number + 1}"] = [attributes[at][number] for at in chosen]
    return columns
