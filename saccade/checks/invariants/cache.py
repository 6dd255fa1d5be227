"""Decoding with a cache gives what decoding without one gives."""

from __future__ import annotations

import torch
from torch import Tensor

from saccade.checks.differences import first_difference
from saccade.checks.locating import first_module
from saccade.checks.report import Outcome, passed, skipped
from saccade.checks.subject import Subject
from saccade.checks.token_models import TokenModel

ORDER = 40
SUMMARY = "decoding token by token with a cache equals one call without it"


@torch.no_grad()
def run(subject: Subject) -> Outcome:
    views = [view for view in subject.tokens if view.cached]
    if not views:
        return skipped("no network of this model has a cache")
    for view in views:
        length = view.lengths()[-1]
        for first in (1, max(1, length // 2)):
            failure = _decode(view, length, first)
            if failure is not None:
                return failure
    length = views[0].lengths()[-1]
    return passed(f"{length} tokens, the first 1 and the first {length // 2} at once and the others one by one")


def _steps(view: TokenModel, row: list[int], first: int) -> list[Tensor]:
    """Feed the first tokens of a row at once and the others one by one; returns the outputs of each call."""
    state = view.begin(1)
    parts = [row[:first], *([token] for token in row[first:])]
    return [view.step(state, view.tensor([part])) for part in parts]


def _decode(view: TokenModel, length: int, first: int) -> Outcome | None:
    row = view.sample(length)
    whole, cached = view.logits(view.tensor([row])), torch.cat(_steps(view, row, first), dim=1)
    difference = first_difference(whole, cached)
    if difference is None:
        return None
    position = difference.index[1]
    shown = row[: position + 1]
    return Outcome(
        "failed",
        f"with a cache the output of position {position} is {difference}",
        f"ids {shown}: the first {min(first, len(shown))} at once, the others one by one",
        first_module(
            view,
            lambda other: other.logits(other.tensor([shown])),
            lambda other: _steps(other, shown, min(first, len(shown))),
            lambda one, two: (one[:, -1], two[:, -1]),
        ),
    )
