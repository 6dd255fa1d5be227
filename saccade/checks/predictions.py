"""Two predictions that should be equal: numbers within rounding, texts exactly, but for a tie of two tokens."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from saccade.checks.differences import ROUNDINGS, first_difference, tolerance_of
from saccade.checks.subject import Subject
from saccade.core import Prediction


def differing_prediction(subject: Subject, expected: Prediction, actual: Prediction) -> str:
    """Return how two predictions for one example differ; empty: they do not."""
    tolerance = ROUNDINGS * torch.finfo(subject.dtype).eps
    for name, value in dict(expected.scores).items():
        difference = _differing(value, actual.scores.get(name), tolerance)
        if difference:
            break
    else:
        name, difference = "output", _differing(expected.output, actual.output, tolerance)
    if difference and _is_tie(subject, expected, actual):
        return ""
    return f"{name} is {difference}" if difference else ""


def differing_values(subject: Subject, expected: Any, actual: Any) -> str:
    """Return how two values differ by more than rounding; empty: they do not."""
    return _differing(expected, actual, ROUNDINGS * torch.finfo(subject.dtype).eps)


def _differing(expected: Any, actual: Any, tolerance: float) -> str:
    """Return how two values differ, numbers within a tolerance relative to their size."""
    if isinstance(expected, Tensor) and isinstance(actual, Tensor):
        if expected.shape != actual.shape:
            return f"of shape {tuple(actual.shape)} instead of {tuple(expected.shape)}"
        rounding = 1.0 if not expected.is_floating_point() else tolerance * max(1.0, float(expected.abs().max()))
        difference = first_difference(expected.double(), actual.double(), rounding)
        return str(difference or "")
    if isinstance(expected, float) and isinstance(actual, int | float):
        close = expected == actual or abs(expected - actual) <= tolerance * max(1.0, abs(expected))
        return "" if close or expected != expected else f"{actual:.6g} instead of {expected:.6g}"
    if dataclasses.is_dataclass(expected) and type(expected) is type(actual):
        pairs = ((getattr(expected, f.name), getattr(actual, f.name)) for f in dataclasses.fields(expected))
        return next(filter(None, (_differing(one, two, tolerance) for one, two in pairs)), "")
    if isinstance(expected, dict) and isinstance(actual, dict) and expected.keys() == actual.keys():
        return next(filter(None, (_differing(v, actual[k], tolerance) for k, v in expected.items())), "")
    if isinstance(expected, list | tuple) and isinstance(actual, list | tuple) and len(expected) == len(actual):
        both = zip(expected, actual, strict=True)
        return next(filter(None, (_differing(one, two, tolerance) for one, two in both)), "")
    return "" if expected == actual else f"{actual!r:.80} instead of {expected!r:.80}"


def _is_tie(subject: Subject, expected: Prediction, actual: Prediction) -> bool:
    """Whether two choices differ because the logits of the two best outputs are equal but for rounding."""
    assert subject.task is not None
    traces = [subject.task.rerun(prediction) for prediction in (expected, actual)]
    for position, pair in enumerate(zip(traces[0].chosen, traces[1].chosen, strict=False)):
        if pair[0] != pair[1]:
            logits = traces[0].logits[position]
            gap = float((logits[pair[0]] - logits[pair[1]]).abs())
            return gap <= tolerance_of(logits, subject.dtype)
    return False
