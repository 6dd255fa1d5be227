"""Images, sounds and graphs of different sizes in one batch give what each gives alone."""

from __future__ import annotations

from typing import Any

import torch

from saccade.checks.examples import NoExamples, generated_value, shrink, usable_examples
from saccade.checks.predictions import differing_prediction
from saccade.checks.report import Outcome, passed, skipped
from saccade.checks.subject import Subject
from saccade.core import Audio, Graph, Image, Vector

ORDER = 190
SUMMARY = "images, sounds, graphs and episodes of different sizes in one batch get what each gets alone"


@torch.no_grad()
def run(subject: Subject) -> Outcome:
    task = subject.task
    kinds = (Image, Audio, Graph, Vector)
    fields = [] if task is None else [field for field in task.inputs if isinstance(field, kinds)]
    if task is None or not fields:
        return skipped("the model reads neither images nor sounds nor graphs nor vectors")
    try:
        first = subject.examples[0]
    except NoExamples as error:
        return skipped(str(error))
    candidates: list[Any] = [first, *(shrink(task.inputs, first, part) for part in (0.75, 0.4))]
    for number in range(3):
        changed = {field.name: generated_value(field, number) for field in fields if isinstance(field, Image | Audio)}
        candidates += [{**first, **changed}] if changed else []
    try:
        examples = usable_examples(task, [example for example in candidates if example is not None])
    except RuntimeError as error:  # of torch, where a network is built for one size
        return skipped(f"the network does not take another size ({error})")
    if len(examples) < 2:
        return skipped("the task accepts inputs of one size only")
    alone = [subject.predict([example])[0] for example in examples]
    for size in range(2, len(examples) + 1):
        for number, prediction in enumerate(subject.predict(examples[:size])):
            difference = differing_prediction(subject, alone[number], prediction)
            if difference:
                return Outcome(
                    "failed",
                    f"in a batch of {size} sizes input {number} gets another prediction than alone: {difference}",
                    "; ".join(_size(example[fields[0].name]) for example in examples[:size]),
                    f"{type(task).__module__.replace('.', '/')}.py: how it stacks inputs and masks their padding",
                )
    sizes = ", ".join(_size(example[fields[0].name]) for example in examples)
    return passed(f"{len(examples)} sizes at once and alone: {sizes}")


def _size(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return " x ".join(map(str, value.shape))
    if isinstance(value, tuple):
        return f"{len(value[0]) / value[1]:.2f} s"
    if isinstance(value, dict):
        return f"{len(value['nodes'])} nodes"
    return f"{len(value):,} bytes" if isinstance(value, bytes) else type(value).__name__
