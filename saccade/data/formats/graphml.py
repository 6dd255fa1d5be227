"""GraphML files, read by networkx."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from saccade.data.formats.graph_json import parse_node_link
from saccade.data.graphs.graph import Graphs
from saccade.data.settings import GraphSettings
from saccade.data.tables.problems import BadRows, Problem
from saccade.errors import UsageError

POSITION = re.compile(r"line (\d+), column (\d+)")


def is_graphml(path: Path) -> bool:
    """Whether a file is GraphML by its name."""
    return path.is_file() and path.suffix.lower() == ".graphml"


def read_graphml(path: Path, settings: GraphSettings) -> Graphs:
    """Return the graph of a file, whose nodes have labels."""
    try:
        import networkx
    except ImportError as error:
        raise UsageError(f"{path}: GraphML needs networkx; pip install 'networkx>=3.4', or write it as JSON") from error
    try:
        graph: Any = networkx.read_graphml(path)
    except Exception as error:  # whatever the XML library raises
        match = POSITION.search(str(error))
        line, column = (int(match[1]), int(match[2]) + 1) if match else (None, None)
        what, step = f"not readable as GraphML ({error})", "correct the file, or write it as JSON (node-link)"
        raise BadRows([Problem(path, line, column, what[:200], "a GraphML document", step)]) from error
    data = networkx.node_link_data(graph, edges="edges")
    return parse_node_link(data, path, settings)
