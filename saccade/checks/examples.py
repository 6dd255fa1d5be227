"""Examples to check a model on: of its own validation data where it has them, else generated, always the same ones."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from saccade.checks.token_models import SEED
from saccade.core import Audio, Field, Graph, Image, Task, Text, Vector
from saccade.errors import DataError, SaccadeError, UsageError

Example = Mapping[str, Any]
COUNT = 4  # examples that are compared
WORDS = "The eye does not move smoothly over a line of text: it jumps from one point to the next, and rests."
SIZES = ((24, 24), (24, 40), (17, 31), (48, 32))  # rows and columns of generated images
SECONDS = (0.4, 0.9, 0.6, 1.3)  # of generated sounds
RATE = 16_000
MASKED = re.compile(r"[\[<]mask[\]>]", re.IGNORECASE)


class NoExamples(Exception):
    """No example can be generated; the message says of which input."""


def own_examples(task: Task) -> list[Example]:
    """Return the validation examples that the task shows during training, and shorter or smaller forms of them."""
    own = [_explainable(task, prediction.inputs) for prediction in task.attention_snapshot()]
    of_length = [field for field in task.inputs if not isinstance(field, Image)]  # `sizes` has smaller images
    shorter = [shrink(of_length, example, part) for example in own for part in (0.5, 0.25)]
    return [*own, *(example for example in shorter if example is not None)][:COUNT]


def _explainable(task: Task, inputs: Example) -> Example:
    """Return inputs whose prediction can be recomputed: these, with their optional texts, or with a masked word."""
    missing = [field.name for field in task.inputs if isinstance(field, Text) and field.name not in inputs]
    texts = {name: value for name, value in inputs.items() if isinstance(value, str)}
    reverse = next((" ".join(reversed(value.split(" "))) for value in texts.values()), "")
    masked = {name: " ".join([mask_of(task), *value.split(" ")[1:]]) for name, value in texts.items()}
    for example in (inputs, {**inputs, **dict.fromkeys(missing, reverse)}, {**inputs, **masked}):
        try:
            task.rerun(*task.predict([example], fast_options(task)))
        except UsageError:
            continue
        return example
    return inputs


def generated_examples(task: Task) -> list[Example]:
    """Return random inputs of different sizes, by the types of the fields."""
    required = [field for field in task.inputs if not field.optional] or list(task.inputs)
    examples = [{field.name: _value(field, task, number) for field in required} for number in range(COUNT)]
    return [_explainable(task, example) for example in examples]


def shrink(inputs: Sequence[Field], example: Example, part: float) -> Example | None:
    """Return an example of which a part is left: fewer words, frames or nodes, smaller images; None: it cannot be."""
    changed: dict[str, Any] = {}
    for field in inputs:
        value = example.get(field.name)
        if isinstance(field, Text) and isinstance(value, str) and MASKED.search(value) is None:
            words = value.split(" ")
            changed[field.name] = " ".join(words[: max(1, math.ceil(part * len(words)))]) or value
        elif isinstance(field, Image) and isinstance(value, Tensor):
            rows = max(8, math.ceil(part * value.shape[1]))
            changed[field.name] = value[:, :rows]
        elif isinstance(field, Audio) and isinstance(value, tuple):
            changed[field.name] = (value[0][: max(4000, math.ceil(part * len(value[0])))], value[1])
        elif isinstance(field, Graph):
            changed[field.name] = subgraph(value, part)
        elif isinstance(field, Vector) and field.sequence and isinstance(value, Tensor):
            changed[field.name] = value[-max(1, math.ceil(part * len(value))) :]
    return {**example, **changed} if changed else None


def subgraph(graph: Any, part: float) -> Any:
    """Return the first nodes of a graph and the edges between them; a graph that is a list of ids stays as it is."""
    key = "edges" if "edges" in graph else "links"
    nodes = list(graph["nodes"])
    kept = nodes[: max(2, math.ceil(part * len(nodes)))]
    ids = {node["id"] if isinstance(node, Mapping) and "id" in node else at for at, node in enumerate(kept)}
    edges = [edge for edge in graph[key] if all(end in ids for end in ends(edge))]
    return {**graph, "nodes": kept, key: edges}


def ends(edge: Any) -> tuple[Any, Any]:
    """Return the two ends of an edge of a graph in node-link format."""
    if isinstance(edge, Mapping):
        return edge["source"], edge["target"]
    return edge[0], edge[1]


def fast_options(task: Task) -> Any:
    """Return options of a prediction that is deterministic and short."""
    options = task.Options()
    names = {field.name for field in fields(options)}
    wanted = {"temperature": 0.0, "max_new_tokens": 8, "attention": False, "chat": "no"}
    return replace(options, **{name: value for name, value in wanted.items() if name in names})


def tokenizers_of(task: Any) -> Iterator[Any]:
    """Yield the tokenizers of a task: of its only text, of a source, of a target."""
    for name in ("tokenizer", "tokenizers", "target", "processor"):
        value = getattr(task, name, None)
        for inner in (value, *(getattr(value, part, None) for part in ("source", "tokenizer", "target"))):
            if hasattr(inner, "encode_batch") and hasattr(inner, "specials"):
                yield inner


def mask_of(task: Task) -> str:
    """Return the mask token of a task, such as [MASK]."""
    names = (name for tokenizer in tokenizers_of(task) for name in tokenizer.specials if MASKED.fullmatch(name))
    return next(names, "[MASK]")


def _value(field: Field, task: Task, number: int) -> Any:
    return _text(field, task, number) if isinstance(field, Text) else generated_value(field, number)


def generated_value(field: Field, number: int) -> Any:
    """Return a random image or sound, whose size depends on a number from 0 to 3."""
    generator = torch.Generator().manual_seed(SEED + number)
    if isinstance(field, Image):
        rows, columns = SIZES[number]
        return torch.randint(256, (3, rows, columns), generator=generator, dtype=torch.uint8)
    if isinstance(field, Audio):
        time = torch.arange(int(SECONDS[number] * RATE)) / RATE
        return 0.3 * torch.sin(2 * math.pi * (300 + 90 * number) * time) + 0.01 * torch.randn(
            len(time), generator=generator
        ), RATE
    raise NoExamples(f"there is no rule to generate a {field.kind} for the input '{field.name}'")


def _text(field: Field, task: Task, number: int) -> str:
    """Return some words; of a tokenizer that does not have their characters, the text of random tokens."""
    words = WORDS.split(" ")[: 3 + 4 * number]
    text = " ".join(words)
    for tokenizer in tokenizers_of(task):
        try:
            if tokenizer.encode(text):
                return text
        except DataError:
            ids = torch.randint(tokenizer.size, (8 + number,), generator=torch.Generator().manual_seed(SEED + number))
            return str(tokenizer.decode(ids.tolist()))
    return text


def usable_examples(task: Task, examples: Sequence[Example]) -> list[Example]:
    """Return those of the examples that the task accepts; a shorter form may have nothing left to predict."""
    accepted, reason = [], ""
    for example in examples:
        try:
            list(task.predict([example], fast_options(task)))
        except SaccadeError as error:
            reason = str(error)
            continue
        accepted.append(example)
    if reason and not accepted:
        raise NoExamples(f"the task refuses every example: {reason}")
    return accepted
