"""No look-ahead: what comes later does not change what was predicted earlier."""

from __future__ import annotations

import torch
from torch import Tensor

from saccade.checks.differences import Difference, first_difference
from saccade.checks.locating import first_module
from saccade.checks.report import Outcome, passed, skipped
from saccade.checks.subject import Subject
from saccade.checks.token_models import TokenModel

ORDER = 30
SUMMARY = "no look-ahead: a later token changes no earlier output"


@torch.no_grad()
def run(subject: Subject) -> Outcome:
    views = [view for view in subject.tokens if view.causal]
    if not views:
        return skipped("no network of this model predicts one position after another")
    for view in views:
        row = view.sample(view.lengths()[-1])
        for cut in [size for size in view.lengths() if size < len(row)]:
            later = [(token + 1) % view.vocabulary for token in row[cut:]]
            if _difference(view, row, [*row[:cut], *later], cut) is not None:
                return _smallest(view, row, cut)
    return passed(f"{views[0].lengths()[-1]} tokens, with all tokens after each of several positions changed")


def _difference(view: TokenModel, row: list[int], changed: list[int], cut: int) -> Difference | None:
    """Compare the outputs before the first token that is changed."""
    before, after = (view.logits(view.tensor([ids]))[:, :cut] for ids in (row, changed))
    return first_difference(before, after)


def _smallest(view: TokenModel, row: list[int], cut: int) -> Outcome:
    """Return the failure of the shortest row whose last token changes an earlier output; else that of the whole row."""
    for length in range(2, len(row) + 1):
        short = row[:length]
        changed = [*short[:-1], (short[-1] + 1) % view.vocabulary]
        difference = _difference(view, short, changed, length - 1)
        if difference is not None:
            return _failure(view, short, changed, difference)
    changed = [*row[:cut], *((token + 1) % view.vocabulary for token in row[cut:])]
    difference = _difference(view, row, changed, cut)
    assert difference is not None
    return _failure(view, row, changed, difference)


def _failure(view: TokenModel, row: list[int], changed: list[int], difference: Difference) -> Outcome:
    first = next(at for at, (one, two) in enumerate(zip(row, changed, strict=True)) if one != two)

    def align(one: Tensor, two: Tensor) -> tuple[Tensor, Tensor]:
        if one.shape[1] != len(row):
            raise IndexError("not an output by position")
        return one[:, :first], two[:, :first]

    return Outcome(
        "failed",
        f"token {first} changes the output of position {difference.index[1]}: {difference}",
        f"ids {row} and {changed}",
        first_module(
            view,
            lambda other: other.logits(other.tensor([row])),
            lambda other: other.logits(other.tensor([changed])),
            align,
        ),
    )
