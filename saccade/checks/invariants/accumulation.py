"""Gradient accumulation: micro-batches give the gradient of the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from saccade.checks.differences import first_difference, tolerance_of
from saccade.checks.report import Outcome, passed, skipped
from saccade.checks.subject import Subject
from saccade.core import Source, Split

ORDER = 80
SUMMARY = "the gradients of micro-batches, weighted by their counts, are the gradient of the batch"
LARGER = 4  # times the batch of the run: rows of one batch have similar lengths
STEPS = 20  # of which the most uneven one is compared
PARTS = (3, 2, 4, 5)  # micro-batches to try: some settings must be multiples of them


def run(subject: Subject) -> Outcome:
    if subject.foreign is not None:
        return _foreign(subject)
    if subject.no_data:
        return skipped(subject.no_data)
    assert subject.task is not None
    if not hasattr(subject.task.config, "micro_batches"):
        return skipped("the task has no micro-batches")
    reason = ""
    for parts in PARTS:
        try:
            sources = [subject.source(Split.VALID, count, LARGER) for count in (1, parts)]
            step = _most_uneven(sources[1])
            whole, split = (subject.on_device(source.at(step)) for source in sources)
        except ValueError as error:  # of the config
            reason = str(error)
            continue
        if len(split) > 1:
            return _compare(subject, whole, split)
    return skipped(reason or "the validation data are one example")


def _most_uneven(source: Source) -> int:
    """Return the step whose micro-batches differ most in their units per row: equal ones would hide wrong weights."""

    def spread(step: int) -> float:
        sizes = [batch.units / len(batch.rows) for batch in source.at(step)]
        return max(sizes) - min(sizes)

    return max(range(min(STEPS, source.per_epoch)), key=spread)


def gradients(subject: Subject, batches: Sequence[Any]) -> dict[str, Tensor]:
    """Return the gradient of every parameter, as the training loop accumulates it; dropout is off."""
    assert subject.task is not None
    total = sum(batch.count for batch in batches)
    sums: dict[str, Tensor] = {}
    for batch in batches:
        for network, loss in subject.task.losses(batch, subject.networks):
            named = [(n, p) for n, p in subject.networks[network].named_parameters() if p.requires_grad]
            grads = torch.autograd.grad(
                loss, [parameter for _, parameter in named], allow_unused=True, materialize_grads=True
            )
            for (name, _), grad in zip(named, grads, strict=True):
                key = name if len(subject.networks) == 1 else f"{network}.{name}"
                sums[key] = sums.get(key, torch.zeros_like(grad)) + grad * (batch.count / total)
    return sums


def _compare(subject: Subject, whole: Sequence[Any], split: Sequence[Any]) -> Outcome:
    expected, actual = gradients(subject, whole), gradients(subject, split)
    rows = sum(len(batch.rows) for batch in split)
    counts = [batch.count for batch in split]
    tolerance = max(tolerance_of(grad, subject.dtype) for grad in expected.values())
    for name, grad in expected.items():
        difference = first_difference(grad, actual[name], tolerance)
        if difference is not None:
            return Outcome(
                "failed",
                f"the gradient of {name} is {difference}: either the counts of the batches are not the numbers of "
                "targets that their losses average, or rows of a batch influence each other",
                f"{rows} validation examples at once, and as {len(split)} micro-batches with the counts {counts}",
                f"{type(split[0]).__name__}.count and losses ({type(subject.task).__module__.replace('.', '/')}.py)",
            )
    return passed(f"{rows} validation examples as 1 and as {len(split)} batches, tolerance {tolerance:.1e}")


def _foreign(subject: Subject) -> Outcome:
    """Of transformers: the loss of a padded batch must be the mean over its labels."""
    view = subject.foreign
    assert view is not None
    rows = [view.sample(length, row) for row, length in enumerate((3, 9))]
    losses = [view.loss(part) for part in (rows, *([row] for row in rows))]
    if losses[0] is None:
        return skipped("the model has no loss for given labels")
    (whole, total), *parts = [loss for loss in losses if loss is not None]
    counts = [count for _, count in parts]
    mean = torch.stack([loss * count for loss, count in parts]).sum() / total
    named = [(n, p) for n, p in view.root().named_parameters() if p.requires_grad]
    sides = [
        torch.autograd.grad(loss, [p for _, p in named], allow_unused=True, materialize_grads=True)
        for loss in (whole, mean)
    ]
    tolerance = max(tolerance_of(grad, subject.dtype) for grad in sides[0])
    for (name, _), one, two in zip(named, *sides, strict=True):
        difference = first_difference(one, two, tolerance)
        if difference is not None:
            return Outcome(
                "failed",
                f"the gradient of {name} is {difference}: the loss is not the mean over all labels of the batch",
                f"rows of {', '.join(str(len(row)) for row in rows)} tokens at once and alone, weighted by {counts}",
                f"the loss of {type(view.network).__name__}.forward",
            )
    return passed(f"rows of 3 and 9 tokens at once and alone, weighted by {counts}, tolerance {tolerance:.1e}")
