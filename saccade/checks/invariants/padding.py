"""Padding changes nothing, neither how much of it there is nor what stands in it."""

from __future__ import annotations

import torch

from saccade.checks.differences import first_difference
from saccade.checks.locating import first_module
from saccade.checks.report import Outcome, passed, skipped
from saccade.checks.subject import Subject
from saccade.checks.token_models import TokenModel

ORDER = 20
SUMMARY = "padding on the right (of models of transformers also on the left), and the ids in it, change no output"


@torch.no_grad()
def run(subject: Subject) -> Outcome:
    views = [view for view in subject.tokens if view.sides]
    if not views:
        return skipped("no network of this model pads token ids; `batch` and `sizes` compare whole examples")
    for view in views:
        for side in view.sides:
            failure = _side(view, side)
            if failure is not None:
                return failure
    sides = sorted({side for view in views for side in view.sides})
    return passed(f"padded on the {' and on the '.join(sides)}, with two different ids")


def _side(view: TokenModel, side: str) -> Outcome | None:
    """Pad rows of different lengths, shortest first, with the first and the last id."""
    for length in [size for size in view.lengths() if size > 1][:-1]:
        rows = [view.sample(length, 0), view.sample(max(2, length // 2), 1)]
        for fill in (0, view.vocabulary - 1):
            batch = view.padded(rows, side, fill)
            for number, row in enumerate(rows):
                difference = first_difference(view.single(row, number), batch[number])
                if difference is not None:
                    return Outcome(
                        "failed",
                        f"padding on the {side} with id {fill} changes position {difference.index[0]} of a row of "
                        f"{len(row)}: {difference}",
                        f"ids {row} alone, and padded beside {rows[1 - number]}",
                        _where(view, rows, number, side, fill),
                    )
    return None


def _where(view: TokenModel, rows: list[list[int]], number: int, side: str, fill: int) -> str:
    length = len(rows[number])

    def align(alone: torch.Tensor, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        row = batch[number]
        return alone[0][:length], row[:length] if side == "right" else row[-length:]

    return first_module(
        view,
        lambda other: other.single(rows[number], number),
        lambda other: other.padded(rows, side, fill),
        align,
    )
