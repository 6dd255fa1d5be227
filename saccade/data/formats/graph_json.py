"""Node-link graphs: {"nodes": [{"id": ...}], "edges": [{"source": ..., "target": ...}]}, one or one per line."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from saccade.data.graphs.building import Columns, GraphBuilder, read_split
from saccade.data.graphs.graph import Graph, Graphs, Value
from saccade.data.settings import GraphSettings
from saccade.data.tables.json_files import check_unicode, is_json_name, json_head, load_json, preview
from saccade.data.tables.problems import BadRows, Problem, Problems
from saccade.data.tables.rows import Lines
from saccade.data.tables.sniffing import sniff
from saccade.errors import UsageError

LARGEST = 1 << 30  # characters of a file
SHAPE = '{"nodes": [{"id": ...}], "edges": [{"source": ..., "target": ...}]}'
LABELS = ("label", "class", "y")
ENDS = (("source", "target"), ("from", "to"))


def is_node_link(path: Path, encoding: str | None = None) -> bool:
    """Whether a file is a graph in node-link format, or has one in its first line."""
    name = path.name.lower().removesuffix(".gz")
    if not path.is_file() or not (is_json_name(name) or name.endswith(".jsonl")):
        return False
    head = json_head(path, encoding)
    if name.endswith(".jsonl"):
        head = head.partition("\n")[0]
    return head.startswith("{") and '"nodes"' in head and ('"edges"' in head or '"links"' in head)


def read_node_link(path: Path, settings: GraphSettings) -> Graphs:
    """Return the graph of a .json file, whose nodes have labels, or the graphs of a .jsonl file, one per line."""
    problems = Problems()
    if not path.name.lower().removesuffix(".gz").endswith(".jsonl"):
        shape = load_json(
            path, settings.encoding or "utf-8", max_characters=LARGEST, expected="a graph", shape=f"as {SHAPE}"
        )
        return parse_node_link(shape, path, settings)
    graphs = []
    lines = Lines(sniff(path, encoding=settings.encoding or None))
    for line in lines:
        lines.recent.clear()
        if not line.strip():
            continue
        try:
            value = json.loads(line.strip())
            check_unicode(line, value)
        except (ValueError, RecursionError) as error:
            step = "correct the line"
            problems.add(Problem(path, lines.number, getattr(error, "colno", None), "invalid JSON", SHAPE, step))
            continue
        graph, _ = _checked(value, path, lines.number, settings, problems)
        if graph is not None:
            graphs.append(graph)
    problems.check()
    return Graphs(tuple(graphs), "graph", (), column=settings.label_column or "label", files=(str(path),))


def parse_node_link(value: object, path: Path, settings: GraphSettings) -> Graphs:
    """Return the graph of a JSON value that was read from a file."""
    problems = Problems()
    graph, notes = _checked(value, path, None, settings, problems)
    problems.check()
    assert graph is not None
    level = "node" if any(graph.node_labels) else "graph"
    return Graphs((graph,), level, tuple(notes), column=settings.label_column or "label", files=(str(path),))


def parse_graph(value: Mapping[str, Any], settings: GraphSettings) -> Graph:
    """Return a graph that a user passed as the input of a model, read as the graphs of its training."""
    problems = Problems(limit=1)
    graph, _ = _checked(value, Path("graph"), None, settings, problems)
    if problems.count or graph is None:
        raise UsageError(str(BadRows(problems.kept)))
    return graph


def _checked(
    value: object, path: Path, line: int | None, settings: GraphSettings, problems: Problems
) -> tuple[Graph | None, list[str]]:
    """Return the graph of a JSON value, and notes; problems are collected, and give None."""
    before = problems.count
    edges_key = "edges" if isinstance(value, Mapping) and "edges" in value else "links"
    lists = [value.get(key) for key in ("nodes", edges_key)] if isinstance(value, Mapping) else [None]
    if not isinstance(value, Mapping) or not all(isinstance(part, list) for part in lists):
        what = f"{preview(value)[:60]}" if not isinstance(value, Mapping) else "no list of nodes, or none of edges"
        problems.add(Problem(path, line, None, what, SHAPE, "write each graph so"))
        return None, []
    directed = bool(value.get("directed", settings.directed))
    builder = GraphBuilder(problems, directed)
    nodes, edges = list(value["nodes"]), list(value[edges_key])
    if not nodes:
        problems.add(Problem(path, line, None, "a graph without nodes", "at least one node", "remove it"))
    columns = _read_nodes(nodes, builder, path, line)
    edge_columns = _read_edges(edges, builder, path, line)
    label_name = settings.label_column or next((name for name in LABELS if name in columns), "")
    labels = [_text(cell) for cell in columns.pop(label_name, [])]
    splits = [read_split(_text(cell), path, line, problems) for cell in columns.pop("split", [])]
    split = read_split(_text(value.get("split", "")), path, line, problems)
    if problems.count > before:
        return None, []
    source, target = builder.ends()
    inner = value.get("graph")
    own: Mapping[str, Any] = inner if isinstance(inner, Mapping) else {}
    names = [settings.label_column] if settings.label_column else LABELS
    label = next((part[name] for part in (value, own) for name in names if name in part), "")
    graph = Graph(
        tuple(builder.nodes),
        source,
        target,
        columns,
        edge_columns,
        directed,
        label=_text(label),
        node_labels=tuple(labels),
        splits=tuple(splits),
        origin=path.name if line is None else f"{path.name}:{line}",
        split=split,
    )
    return graph, builder.notes()


def _read_nodes(nodes: Sequence[Any], builder: GraphBuilder, path: Path, line: int | None) -> Columns:
    """Add nodes to a graph; return their other keys as columns."""
    columns: Columns = {}
    for number, node in enumerate(nodes):
        fields = node if isinstance(node, Mapping) else {"id": node}
        identity = fields.get("id", fields.get("name", number))
        if not isinstance(identity, str | int | float) or isinstance(identity, bool):
            what = f"node {number + 1} has the id {preview(identity)}"
            builder.problems.add(Problem(path, line, None, what, "a name or a number", "correct it"))
        elif builder.add_node(_text(identity), path, line):
            _append(columns, fields, ("id",), len(builder.nodes) - 1, (path, line), builder.problems)
    return columns


def _read_edges(edges: Sequence[Any], builder: GraphBuilder, path: Path, line: int | None) -> Columns:
    """Add edges to a graph; return their other keys as columns."""
    columns: Columns = {}
    for number, edge in enumerate(edges):
        fields = edge
        if isinstance(edge, list) and len(edge) == 2:
            fields = {"source": edge[0], "target": edge[1]}
        keys = next((keys for keys in ENDS if isinstance(fields, Mapping) and all(key in fields for key in keys)), None)
        if keys is None:
            what = f"edge {number + 1} is {preview(edge)}"
            expected = '{"source": ..., "target": ...}, the ids of two nodes'
            builder.problems.add(Problem(path, line, None, what, expected, "correct it"))
        elif builder.add_edge(_text(fields[keys[0]]), _text(fields[keys[1]]), path, line):
            _append(columns, fields, (*keys, "key"), len(builder.pairs) - 1, (path, line), builder.problems)
    return columns


def _append(
    columns: Columns,
    fields: Mapping[str, Any],
    without: Sequence[str],
    row: int,
    place: tuple[Path, int | None],
    problems: Problems,
) -> None:
    """Add the other keys of a node or an edge to the columns; one that is missing in others is empty there."""
    for name, value in fields.items():
        if name in without:
            continue
        if isinstance(value, Mapping):
            what = f"'{name}' is {preview(value)}"
            problems.add(Problem(*place, None, what, "a text, a number or a list of texts", "write it as several keys"))
            continue
        if isinstance(value, float) and not math.isfinite(value):
            problems.add(
                Problem(*place, None, f"'{name}' is {value}", "a finite number", "correct it, or leave it out")
            )
            continue
        cells = columns.setdefault(name, [])
        cells += [None] * (row - len(cells))
        cells.append(_value(value))
    for cells in columns.values():
        cells += [None] * (row + 1 - len(cells))


def _value(value: Any) -> Value:
    if isinstance(value, list):
        return tuple(_text(item) for item in value)
    if isinstance(value, bool) or value is None:
        return None if value is None else str(int(value))
    try:
        return float(value) if isinstance(value, int | float) else str(value)
    except OverflowError:  # not finite, which is refused
        return math.inf


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value).strip()
