"""Search: recognizes which graph format a path has, and reads it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from saccade.data.formats.graph_json import is_node_link, read_node_link
from saccade.data.formats.graph_tables import find_tables, read_tables
from saccade.data.formats.graphml import is_graphml, read_graphml
from saccade.data.formats.linqs import find_linqs, read_linqs
from saccade.data.formats.planetoid import find_planetoid, read_planetoid
from saccade.data.formats.smiles_tables import find_smiles, read_smiles
from saccade.data.formats.tu_graphs import find_tu_folder, is_tu_file, read_tu_file, read_tu_folder
from saccade.data.graphs.graph import Graphs
from saccade.data.settings import GraphSettings
from saccade.data.tables.files import find
from saccade.data.tables.numbers import is_number
from saccade.data.tables.problems import BadRows, Problem

Reader = Callable[[GraphSettings], Graphs]
FORMATS = (
    "nodes.csv and edges.csv, node-link .json or .jsonl, TU text, NAME.content and .cites, ind.NAME.x to .graph, "
    "a table of SMILES, .graphml"
)
FEW = 20  # different whole numbers that count as labels


def find_graphs(data: Path, settings: GraphSettings = GraphSettings()) -> Reader | None:
    """Return what reads the graphs of a path; None if they are something else."""
    if (tables := find_tables(data)) is not None:
        return partial(read_tables, *tables)
    if (files := find_linqs(data)) is not None:
        return partial(read_linqs, *files)
    if names := find_planetoid(data):
        return partial(read_planetoid, data, names)
    if name := find_tu_folder(data):
        return partial(read_tu_folder, data, name)
    if is_graphml(data):
        return partial(read_graphml, data)
    if is_node_link(data, settings.encoding or None):
        return partial(read_node_link, data)
    if (table := find_smiles(data, settings)) is not None:
        return partial(read_smiles, table)
    return partial(read_tu_file, data) if is_tu_file(data) else None


def read_graphs(data: Path, settings: GraphSettings, level: str) -> Graphs:
    """Return the graphs of a path, whose nodes or which themselves must have labels."""
    reader = find_graphs(data, settings)
    if reader is None:
        if not data.is_dir():
            find(data)  # raises for what does not exist
        raise BadRows([Problem(data, None, None, "no graph that is recognized", FORMATS, "write it as one of these")])
    graphs = reader(settings)
    if not any(graphs.labels()) or graphs.level != level:
        owner = "nodes" if level == "node" else "graphs"
        other = "; graphs with a label each need --task graph_classification" if graphs.level == "graph" else ""
        other = "; nodes with labels need --task node_classification" if graphs.level == "node" != level else other
        what, expected = f"no labels of {owner}", f"a label for the {owner} that are trained on"
        step = f"add a label{other}"
        raise BadRows([Problem(data, None, None, what, expected, step)])
    return graphs


def are_numbers(labels: list[str]) -> bool:
    """Whether labels are measurements: numbers, not few whole ones."""
    present = [label for label in labels if label]
    if not present or not all(map(is_number, present)):
        return False
    whole = all(float(label).is_integer() for label in present)
    return not whole or len(set(present)) > FEW


def guess_graph_task(data: Path, settings: GraphSettings) -> str:
    """Return the task that suits the graphs of a path; empty for data that are no graphs."""
    reader = find_graphs(data, settings)
    if reader is None:
        return ""
    graphs = reader(settings)
    if graphs.level == "node":
        return "node_classification"
    return "graph_regression" if are_numbers(graphs.labels()) else "graph_classification"
