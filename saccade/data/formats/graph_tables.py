"""Graph tables: a table of nodes and a table of edges."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from saccade.data.graphs.building import Columns, GraphBuilder, append, read_split
from saccade.data.graphs.graph import Graph, Graphs, Value
from saccade.data.settings import GraphSettings
from saccade.data.tables.problems import BadRows, Problem, Problems
from saccade.data.tables.rows import pick_columns, rows
from saccade.data.tables.sniffing import DataFile, sniff

IDS = ("id", "node", "node_id", "name")
LABELS = ("label", "class", "y", "category", "target", "labels")
SOURCES = (("source", "target"), ("src", "dst"), ("from", "to"), ("u", "v"), ("cited", "citing"))
SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")


def find_tables(folder: Path) -> tuple[Path, Path] | None:
    """Return the table of nodes and that of edges of a folder; None if it does not have one of each."""
    if not folder.is_dir():
        return None
    tables = sorted(path for path in folder.iterdir() if path.name.lower().endswith(SUFFIXES))
    pairs = [[path for path in tables if word in path.name.lower()] for word in ("node", "edge")]
    return (pairs[0][0], pairs[1][0]) if len(pairs[0]) == len(pairs[1]) == 1 else None


def read_tables(nodes: Path, edges: Path, settings: GraphSettings) -> Graphs:
    """Return the graph of two tables, whose nodes have labels."""
    problems = Problems()
    builder = GraphBuilder(problems, settings.directed)
    node_file, edge_file = (sniff(path, encoding=settings.encoding or None, header=True) for path in (nodes, edges))
    names = list(node_file.columns)
    identity = _usual(node_file, IDS, "the id of a node", "id")
    label = settings.label_column or _usual(node_file, LABELS, "the label of a node", "label", "--label-column NAME")
    pick_columns(nodes, names, [label])
    split = next((name for name in names if name.lower() in ("split", "set")), "")
    features = [name for name in names if name not in (identity, label, split)]
    columns: Columns = {name: [] for name in features}
    labels, splits = list[str](), list[str]()
    for row in rows(node_file, names, problems=problems):
        values = dict(zip(names, row.values, strict=True))
        if not builder.add_node(values[identity].strip(), nodes, row.line):
            continue
        append(columns, features, [values[name].strip() or None for name in features])
        labels.append(values[label].strip())
        splits.append(read_split(values[split], nodes, row.line, problems) if split else "")
    edge_columns = _read_edges(edge_file, builder, problems)
    problems.check()
    source, target = builder.ends()
    graph = Graph(
        tuple(builder.nodes),
        source,
        target,
        columns,
        edge_columns,
        settings.directed,
        node_labels=tuple(labels),
        splits=tuple(splits) if split else (),
        origin=nodes.name,
    )
    notes = (*node_file.notes, *edge_file.notes, *builder.notes())
    return Graphs((graph,), "node", notes, column=label, files=(str(nodes), str(edges)))


def _read_edges(file: DataFile, builder: GraphBuilder, problems: Problems) -> Columns:
    """Add the edges of a table to a graph; return their other columns."""
    names = list(file.columns)
    lowered = {name.lower(): name for name in names}
    ends = next((pair for pair in SOURCES if all(name in lowered for name in pair)), None)
    if ends is None:
        what, expected = f"columns {', '.join(names)}", "two columns called source and target"
        raise BadRows([Problem(file.path, 1, None, what, expected, "rename the columns of the edges")])
    source, target = (lowered[name] for name in ends)
    others = [name for name in names if name not in (source, target)]
    columns: Columns = {name: [] for name in others}
    for row in rows(file, names, problems=problems):
        values = dict(zip(names, row.values, strict=True))
        if builder.add_edge(values[source].strip(), values[target].strip(), file.path, row.line):
            cells: list[Value] = [values[name].strip() or None for name in others]
            append(columns, others, cells)
    return columns


def _usual(file: DataFile, usual: Sequence[str], role: str, name: str, option: str = "") -> str:
    """Return the column with one of the usual names."""
    by_name = {column.lower(): column for column in reversed(file.columns)}
    match = next((by_name[usual_name] for usual_name in usual if usual_name in by_name), "")
    if not match:
        what = f"columns {', '.join(file.columns) or '(none)'}"
        step = f"name it with {option}" if option else f"rename the column of {role} to '{name}'"
        raise BadRows([Problem(file.path, 1, None, what, f"one for {role}, such as '{name}'", step)])
    return match
