"""Generated graphs for the tests of tasks: communities, rings and stars, and chains with numbers."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

KINDS = ("ring", "star")


def write_communities(folder: Path, nodes: int = 60, seed: int = 0) -> Path:
    """Write nodes.csv and edges.csv: two communities, with a few edges between them and a noisy feature."""
    draw = random.Random(seed)
    labels = [draw.choice(("left", "right")) for _ in range(nodes)]
    data = folder / "communities"
    data.mkdir(parents=True, exist_ok=True)
    with (data / "nodes.csv").open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(("id", "label", "hint", "word"))
        for node, label in enumerate(labels):
            hint = (1 if label == "left" else -1) + draw.gauss(0, 1)
            rows.writerow((f"n{node}", label, f"{hint:.3f}", draw.choice(("up", "down"))))
    with (data / "edges.csv").open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(("source", "target", "weight"))
        for a in range(nodes):
            for b in range(a):
                if draw.random() < (0.2 if labels[a] == labels[b] else 0.02):
                    rows.writerow((f"n{a}", f"n{b}", f"{draw.random():.2f}"))
    return data


def graph(kind: str, size: int, draw: random.Random) -> dict[str, Any]:
    """Return a ring or a star of some nodes in node-link format."""
    nodes = [{"id": node, "colour": draw.choice(("red", "blue"))} for node in range(size)]
    pairs = [(node, (node + 1) % size) if kind == "ring" else (0, node) for node in range(size)]
    edges = [{"source": a, "target": b, "kind": draw.choice("xy")} for a, b in pairs if a != b]
    return {"nodes": nodes, "edges": edges}


def write_graphs(folder: Path, numbers: bool = False) -> Path:
    """Write graphs.jsonl: rings and stars, or graphs whose number is that of their nodes with a colour."""
    draw = random.Random(1)
    path = folder / "graphs.jsonl"
    lines = []
    for _ in range(160):
        kind = draw.choice(KINDS)
        value = graph(kind, draw.randint(4, 9), draw)
        reds = sum(node["colour"] == "red" for node in value["nodes"])
        value["label"] = reds + 0.5 * len(value["nodes"]) if numbers else kind
        lines.append(json.dumps(value))
    path.write_text("".join(line + "\n" for line in lines))
    return path


def write_numbers(folder: Path) -> Path:
    """Write graphs with numbers."""
    return write_graphs(folder, numbers=True)


def community_input() -> dict[str, Any]:
    """Return a graph with the columns of the communities."""
    nodes = [{"id": f"a{n}", "hint": 0.5 * n - 1, "word": "up" if n % 2 else "down"} for n in range(5)]
    edges = [{"source": f"a{n}", "target": f"a{n + 1}", "weight": 0.3 * n} for n in range(4)]
    return {"nodes": nodes, "edges": edges}


def ring_input() -> dict[str, Any]:
    """Return a ring with the columns of the graphs."""
    return graph("ring", 5, random.Random(3))
