"""The order in which a graph lists its nodes does not matter."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import torch

from saccade.checks.examples import NoExamples, ends, shrink
from saccade.checks.predictions import differing_values
from saccade.checks.report import Outcome, passed, skipped
from saccade.checks.subject import Subject
from saccade.checks.token_models import SEED
from saccade.core import Graph, Prediction, TagOutput

ORDER = 200
SUMMARY = "the order in which a graph lists its nodes and edges changes no prediction"


@torch.no_grad()
def run(subject: Subject) -> Outcome:
    task = subject.task
    fields = [] if task is None else [field for field in task.inputs if isinstance(field, Graph)]
    if task is None or not fields:
        return skipped("the model reads no graphs")
    try:
        examples = list(subject.examples)
    except NoExamples as error:
        return skipped(str(error))
    name = fields[0].name
    for example in sorted(examples, key=lambda one: len(one[name]["nodes"])):
        difference = _differs(subject, example, name)
        if difference:
            smaller = [shrink(task.inputs, example, part) for part in (0.1, 0.3, 0.6)]
            smallest = next((s for s in smaller if s is not None and _differs(subject, s, name)), example)
            return Outcome(
                "failed",
                f"with its nodes in another order a graph gets another prediction: {_differs(subject, smallest, name)}",
                f"{dict(smallest[name])!r:.400}",
                f"{type(task).__module__.replace('.', '/')}.py and the positions of its network",
            )
    return passed(f"{len(examples)} graphs with nodes and edges in another order")


def _differs(subject: Subject, example: Mapping[str, Any], name: str) -> str:
    plain, shuffled = subject.predict([example])[0], subject.predict([{**example, name: _shuffle(example[name])}])[0]
    return differing_values(subject, _by_node(plain), _by_node(shuffled))


def _by_node(prediction: Prediction) -> dict[str, Any]:
    """Return the output as values that have no order: of a label for each node, by the name of the node."""
    output = prediction.output
    if isinstance(output, TagOutput):
        pairs = zip(output.tags, output.probabilities, strict=True)
        return dict(zip(output.words, pairs, strict=True))
    return {"output": output, "scores": dict(prediction.scores)}


def _shuffle(graph: Mapping[str, Any]) -> dict[str, Any]:
    """Return a graph with its nodes and edges in another order; nodes without an id are named by their number."""
    draw, key = random.Random(SEED), "edges" if "edges" in graph else "links"
    nodes, edges = list(graph["nodes"]), list(graph[key])
    order = list(range(len(nodes)))
    draw.shuffle(order)
    if not all(isinstance(node, Mapping) and "id" in node for node in nodes):
        number = {old: new for new, old in enumerate(order)}
        edges = [_renumber(edge, number) for edge in edges]
    draw.shuffle(edges)
    return {**graph, "nodes": [nodes[old] for old in order], key: edges}


def _renumber(edge: Any, number: Mapping[int, int]) -> Any:
    source, target = (number.get(end, end) for end in ends(edge))
    return {**edge, "source": source, "target": target} if isinstance(edge, Mapping) else [source, target, *edge[2:]]
