"""Numbers that are not finite: the error that names the step, the rows and the first parameter that shows it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from saccade.core import Batch
from saccade.errors import SaccadeError
from saccade.runs.weights import local

SHOWN_ROWS = 8


def is_finite(network: nn.Module) -> bool:
    """Whether every parameter is finite."""
    return all(bool(torch.isfinite(local(value)).all()) for value in network.parameters())


def not_finite(problem: str, step: int, network: nn.Module, batches: Sequence[Batch] = ()) -> SaccadeError:
    """Return the error for a number that is not finite."""
    rows = [row for batch in batches for row in batch.rows]
    more = f" and {len(rows) - SHOWN_ROWS} more" if len(rows) > SHOWN_ROWS else ""
    where = f"rows: {', '.join(rows[:SHOWN_ROWS])}{more}; " if rows else ""
    return SaccadeError(
        f"step {step}: {problem}, expected a finite number; {where}first not finite: {_first(network)}. "
        "Lower train.optim.lr and train.optim.matrix_lr, or check these rows; the last checkpoint is intact"
    )


def _first(network: nn.Module) -> str:
    """Name the first parameter that is not finite, else the first such gradient: a bad weight spoils all gradients."""
    parameters = dict(network.named_parameters())
    for name, value in parameters.items():
        if not torch.isfinite(local(value)).all():
            return f"parameter {name}"
    for name, value in parameters.items():
        if value.grad is not None and not torch.isfinite(local(value.grad)).all():
            return f"the gradient of {name}"
    return "none of the parameters or gradients"
