"""Attention along edges: time against dense masks on Cora, and memory of training on a large random graph.

SACCADE_DATA=... python bench/graphs.py

Prints one JSON line per figure. Goals: an epoch along edges at least 8 times faster than with dense masks, where both
train the same network of the same weights; 100,000 nodes and 1,000,000 edges train within 4 GB, everything included.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from saccade.data.formats.graph_search import read_graphs
from saccade.data.graphs.schema import Schema
from saccade.data.settings import GraphSettings
from saccade.models.graph.inputs import GraphInputs
from saccade.models.graph.predictor import GraphModelConfig, GraphPredictor
from saccade.nn.edges import Edges
from saccade.nn.masks import KernelMask, positions
from saccade.tasks._graphs.examples import edge_width, encode_graph, join_graphs


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


def measure_large(nodes: int, edges: int) -> None:
    """Train a few steps on a random graph; the peak is that of this whole process."""
    generator = torch.Generator().manual_seed(0)
    loops = torch.arange(nodes)
    ends = [torch.cat((torch.randint(nodes, (edges,), generator=generator), loops)) for _ in range(2)]
    graph, order = Edges.of(*ends, nodes)
    features = torch.randn(nodes, 64, generator=generator)
    inputs = GraphInputs(features, graph, torch.zeros(len(order), 1), torch.zeros(nodes, 0), torch.tensor([0, nodes]))
    targets = torch.randint(10, (nodes,), generator=generator)
    for architecture in ("gat", "transformer"):
        config = GraphModelConfig(architecture=architecture)
        config = replace(config, transformer=replace(config.transformer, position="none"))
        torch.manual_seed(1)
        model = GraphPredictor(config, 64, 1, 10, pooled=False)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        seconds = [epoch(model, inputs, targets, optimizer) for _ in range(3)]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        sizes = {"nodes": nodes, "edges": edges, "depth": model.encoder.config.depth}
        show(
            figure="large",
            model=architecture,
            **sizes,
            step_seconds=round(min(seconds), 2),
            peak_gb=round(peak, 2),
            goal=4,
        )


def show(**figures: object) -> None:
    print(json.dumps(figures), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--large", action="store_true", help="only the large graph, in this process")
    given = parser.parse_args()
    if given.large:
        measure_large(given.nodes, given.edges)
        return
    show(threads=torch.get_num_threads(), torch=torch.__version__)
    if "SACCADE_DATA" in os.environ:
        measure_cora(Path(os.environ["SACCADE_DATA"]), given.repeats)
    sizes = ["--nodes", str(given.nodes), "--edges", str(given.edges)]
    subprocess.run([sys.executable, __file__, "--large", *sizes], check=True)  # a fresh process: its peak is its own


if __name__ == "__main__":
    main()
