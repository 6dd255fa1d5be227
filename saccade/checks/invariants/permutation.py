"""Attention without positions does not know the order of its inputs."""

from __future__ import annotations

import torch

from saccade.checks.attention_calls import Special
from saccade.checks.differences import describe_module, first_difference
from saccade.checks.foreign_models import ForeignEncoder
from saccade.checks.invariants.masked_rows import random_inputs
from saccade.checks.report import Outcome, passed, skipped
from saccade.checks.subject import Subject
from saccade.nn.attention import Attention

ORDER = 70
SUMMARY = "without positions, permuting the inputs of attention permutes its outputs"
ORDERED = [3, 0, 4, 1, 2]


@torch.no_grad()
def run(subject: Subject) -> Outcome:
    if subject.foreign is not None:
        return _foreign(subject)
    layers = [(name, layer) for name, layer in subject.attentions() if not isinstance(layer, Special)]
    free = [(name, layer) for name, layer in layers if layer.cross or layer.rotate is None]
    if not free:
        return skipped("every attention layer has rotary positions" if layers else "the model has no attention layer")
    for name, layer in free:
        failure = _layer(name, layer)
        if failure is not None:
            return failure
    return passed(f"{len(free)} attention layers without positions, {len(ORDERED)} inputs in another order")


def _layer(name: str, layer: Attention) -> Outcome | None:
    x, memory = random_inputs(layer, len(ORDERED))
    if memory is None:
        expected, actual = layer(x)[:, ORDERED], layer(x[:, ORDERED])
    else:  # the order of the memory does not matter
        expected, actual = layer(x, memory), layer(x, memory[:, ORDERED])
    difference = first_difference(expected, actual)
    if difference is None:
        return None
    return Outcome(
        "failed",
        f"the order of {'the memory' if layer.cross else 'the inputs'} changes output {difference.index[1]}: "
        f"{difference}",
        f"{len(ORDERED)} random vectors, and the same in the order {ORDERED}",
        describe_module(name, layer),
    )


def _foreign(subject: Subject) -> Outcome:
    view = subject.foreign
    if not isinstance(view, ForeignEncoder):
        return skipped("a model that predicts one position after another has an order")
    row = view.sample(len(ORDERED))
    ids = view.tensor([row])
    plain, permuted = view.without_positions(ids), view.without_positions(ids[:, ORDERED])
    if plain is None or permuted is None:
        return skipped("forward takes no position_ids, so that positions cannot be left out")
    difference = first_difference(plain[:, ORDERED], permuted)
    if difference is None:
        return passed("all tokens at position 0, in two orders")
    return Outcome(
        "failed",
        f"with all tokens at position 0, their order changes output {difference.index[1]}: {difference}",
        f"ids {row} and the same in the order {ORDERED}, position_ids = all 0",
        describe_module("", view.root()),
    )
