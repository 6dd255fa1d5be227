"""Attention along edges: time against dense masks on Cora, and memory of `saccade train` on files of a large graph.

SACCADE_DATA=... python bench/graphs.py

Prints one JSON line per figure. Goals: an epoch along edges at least 8 times faster than with dense masks, where both
train the same network of the same weights; the command trains on nodes.csv and edges.csv of 100,000 nodes and
1,000,000 edges, each of which goes both ways, within 4 GB of resident memory, reading and evaluation included.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from saccade.data.formats.graph_search import read_graphs
from saccade.data.graphs.schema import Schema
from saccade.data.settings import GraphSettings
from saccade.models.graph.predictor import GraphModelConfig, GraphPredictor
from saccade.nn.masks import KernelMask, positions
from saccade.tasks._graphs.examples import edge_width, encode_graph, join_graphs

ROOT = Path(__file__).resolve().parents[1]
BLOCK = 10_000  # rows written at once
TRAIN = (sys.executable, "-m", "saccade", "train")
ARCHITECTURES = {"gat": [], "transformer": ["model.transformer.position=none"]}


def epoch(model: GraphPredictor, inputs: Any, targets: torch.Tensor, optimizer: torch.optim.Optimizer) -> float:
    """Return the seconds of one step of training on a whole graph."""
    began = time.perf_counter()
    torch.manual_seed(0)
    model(inputs, targets).backward()
    optimizer.step()
    optimizer.zero_grad()
    return time.perf_counter() - began


def measure_cora(data: Path, repeats: int) -> None:
    graph = read_graphs(data / "graph" / "cora", GraphSettings(), "node").graphs[0]
    schema, _ = Schema.of([graph])
    inputs = join_graphs([encode_graph(graph, schema, ("none", 0))])
    nodes = torch.arange(inputs.edges.nodes)
    dense = KernelMask(inputs.edges, positions(0, len(nodes), nodes.device), nodes)
    targets = torch.tensor([int(label) for label in graph.node_labels])
    for score in ("additive", "dot"):
        config = GraphModelConfig(architecture="gat")
        config = replace(config, gat=replace(config.gat, score=score))
        torch.manual_seed(1)
        model = GraphPredictor(config, schema.node_width, edge_width(schema), 7, pooled=False)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-5)
        kinds = {"edges": inputs, "dense": replace(inputs, edges=dense)}
        with torch.no_grad():
            model.eval()
            same = [model(kinds[kind]) for kind in kinds]
            model.train()
        torch.testing.assert_close(same[0], same[1], atol=1e-4, rtol=1e-4)
        times: dict[str, list[float]] = {kind: [] for kind in kinds}
        for repeat in range(repeats + 1):  # alternating, so that noise affects both; the first pays for allocations
            for kind in kinds:
                seconds = epoch(model, kinds[kind], targets, optimizer)
                if repeat:
                    times[kind].append(seconds)
        middle = {kind: statistics.median(values) for kind, values in times.items()}
        rounded = {f"{kind}_seconds": round(value, 4) for kind, value in middle.items()}
        show(figure="cora_epoch", score=score, **rounded, ratio=round(middle["dense"] / middle["edges"], 1), goal=8)


def write_tables(folder: Path, nodes: int, edges: int, features: int = 64, labels: int = 10) -> None:
    """Write nodes.csv and edges.csv of a random graph, whose edges have no direction and are all different."""
    draw = np.random.default_rng(0)
    folder.mkdir(parents=True)
    names = ",".join(f"feature{column}" for column in range(features))
    with (folder / "nodes.csv").open("w") as stream:
        stream.write(f"id,label,{names}\n")
        for first in range(0, nodes, BLOCK):
            rows = draw.normal(size=(min(BLOCK, nodes - first), features))
            labelled = zip(draw.integers(0, labels, len(rows)).tolist(), rows.tolist(), strict=True)
            lines = (
                f"n{first + row},class{label},{format_row(values)}\n" for row, (label, values) in enumerate(labelled)
            )
            stream.writelines(lines)
    chosen = np.zeros(0, np.int64)
    while len(chosen) < edges:
        ends = np.sort(draw.integers(0, nodes, (edges, 2)), axis=1)
        ends = ends[ends[:, 0] != ends[:, 1]]
        chosen = np.unique(np.concatenate((chosen, ends[:, 0] * nodes + ends[:, 1])))
    chosen = draw.permutation(chosen)[:edges]
    with (folder / "edges.csv").open("w") as stream:
        stream.write("source,target\n")
        for first in range(0, edges, BLOCK):
            block = chosen[first : first + BLOCK]
            pairs = zip((block // nodes).tolist(), (block % nodes).tolist(), strict=True)
            stream.writelines(f"n{a},n{b}\n" for a, b in pairs)


def format_row(values: list[float]) -> str:
    return ",".join(f"{value:.4f}" for value in values)


def measure_large(nodes: int, edges: int, steps: int = 3) -> None:
    """Train on files of a random graph with the command line; the peak is that of the whole command."""
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "graph"
        write_tables(data, nodes, edges)
        for architecture, overrides in ARCHITECTURES.items():
            settings = [f"model.architecture={architecture}", *overrides]
            command = [*TRAIN, str(data), *settings, "--runs", name, "--steps", str(steps), "--quiet"]
            environment = {**os.environ, "PYTHONPATH": str(ROOT), "SACCADE_CACHE": str(Path(name) / "cache")}
            began = time.perf_counter()
            process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                raise SystemExit(f"{' '.join(command)} failed with exit code {process.returncode}")
            seconds, scale = time.perf_counter() - began, 1 if sys.platform == "darwin" else 1024
            figures = {"nodes": nodes, "edges": edges, "steps": steps, "seconds": round(seconds, 1)}
            show(figure="large", model=architecture, **figures, peak_gb=round(usage.ru_maxrss * scale / 1e9, 2), goal=4)


def show(**figures: object) -> None:
    print(json.dumps(figures), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--large", action="store_true", help="only the large graph")
    given = parser.parse_args()
    show(threads=torch.get_num_threads(), torch=torch.__version__)
    measure_large(given.nodes, given.edges)  # first: the peak of a process counts that of the one that starts it
    if "SACCADE_DATA" in os.environ and not given.large:
        measure_cora(Path(os.environ["SACCADE_DATA"]), given.repeats)


if __name__ == "__main__":
    main()
