"""Selecting a checkpoint: the best or last one of a run, that of a step, or the mean of all that were kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import Tensor

from saccade.errors import ModelFileError, UsageError
from saccade.runs import checkpoint
from saccade.runs.checkpoint import Checkpoint
from saccade.runs.state import State

Which = Literal["best", "last", "mean"] | int
"""a number is the step of a checkpoint"""


@dataclass(frozen=True)
class Weights:
    """The weights of a run by name, and step and state of the checkpoint they are from; of a mean those of the last."""

    step: int
    tensors: Mapping[str, Tensor]
    state: State


def select_weights(folder: Path, which: Which, log: Callable[[str], None]) -> Weights | None:
    """Return the weights of a step, of the best or last intact checkpoint, or the mean; None: there is none."""
    if which == "mean":
        return _mean(folder, log)
    if isinstance(which, int):
        check_step(folder, which)
        return _weights(checkpoint.read_weights(checkpoint.at(folder, which)))
    last = checkpoint.newest(folder, log, checkpoint.read_weights)
    if last is None:
        return None
    step = last.state.best_step
    if which == "best" and step is not None and step != last.step:
        try:
            return _weights(checkpoint.read_weights(checkpoint.at(folder, step)))
        except ModelFileError as error:
            log(f"the best checkpoint is damaged: {error}; using the one of step {last.step}")
    return _weights(last)


def check_step(folder: Path, step: int) -> None:
    """Refuse a step without a checkpoint."""
    kept = checkpoint.steps(folder)
    if step not in kept:
        shown = ", ".join(map(str, kept)) or "none"
        raise UsageError(f"checkpoint must be best, last, mean or a step that was kept ({shown}), but is {step}")


def _weights(saved: Checkpoint) -> Weights:
    (tensors,) = saved.parts.values()
    return Weights(saved.step, tensors, saved.state)


def _mean(folder: Path, log: Callable[[str], None]) -> Weights | None:
    """Return the mean of the weights of the checkpoints that the run keeps (train.keep newest ones and the best)."""
    last = checkpoint.newest(folder, log, _read_model)
    if last is None:
        return None
    model = last.parts["model"]
    total = {name: value.double() for name, value in model.items() if value.is_floating_point()}
    steps = [last.step]
    for step in last.state.kept:  # not what is in the folder, where a kill may have left older ones
        if step == last.step:
            continue
        try:
            other = _read_model(checkpoint.at(folder, step)).parts["model"]
            _check_same(other, model, f"step {step}")
        except ModelFileError as error:
            log(f"checkpoint of step {step} is damaged: {error}; the mean is without it")
            continue
        steps.append(step)
        for name, value in total.items():
            value += other[name]
    log(f"mean of the checkpoints of steps {', '.join(map(str, sorted(steps)))}")
    mean = {name: (value / len(steps)).to(model[name].dtype) for name, value in total.items()}
    return Weights(last.step, {**model, **mean}, last.state)


def _check_same(other: Mapping[str, Tensor], model: Mapping[str, Tensor], where: str) -> None:
    """Refuse weights that have other names or shapes than those of the last checkpoint."""
    shapes = [{name: value.shape for name, value in tensors.items()} for tensors in (other, model)]
    if shapes[0] != shapes[1]:
        raise ModelFileError(f"the weights of {where} must have the names and shapes of the last ones, but do not")


def _read_model(path: Path) -> Checkpoint:
    return checkpoint.read(path, ("model",))
