"""Trial: the settings of a comparison."""

from __future__ import annotations

import math
from dataclasses import dataclass

from saccade.comparison import IMAGE_MODELS, MODELS
from saccade.errors import UsageError, suggest

MIN_PROBE = 0.3  # minutes
ALL_MODELS = (*MODELS, *IMAGE_MODELS)


@dataclass(frozen=True)
class Trial:
    """Settings of a comparison: the models and their training time, and what is shown of them."""

    models: tuple[str, ...] | None = None
    """None: all that the task has"""
    minutes: float = 5.0
    """training time of each model; a train.steps or train.epochs among the overrides takes precedence"""
    probe_minutes: float | None = None
    """training time of each model to copy and to reverse, together; None: two fifths of `minutes`; 0: no probe"""
    sentence: str = ""
    """the sentence whose alignment is shown; default: a validation sentence of median length"""
    images: tuple[str, ...] = ()
    """files of the images whose attention is shown; default: validation images of several labels"""
    task: str = ""
    """translation or image_classification; default: chosen by the data"""

    def __post_init__(self) -> None:
        if self.models is not None:
            _check_models(self.models)
        if not (self.minutes > 0 and math.isfinite(self.minutes)):
            raise UsageError(f"minutes must be above 0, but is {self.minutes}")
        if self.probe_minutes is not None and not (self.probe_minutes >= 0 and math.isfinite(self.probe_minutes)):
            raise UsageError(f"probe-minutes must be 0 or more, but is {self.probe_minutes}")

    @property
    def probe(self) -> float:
        """Training time of the probe in minutes."""
        return max(MIN_PROBE, 0.4 * self.minutes) if self.probe_minutes is None else self.probe_minutes


def _check_models(models: tuple[str, ...]) -> None:
    if not models:
        there_are = f"there are: {', '.join(MODELS)} for texts, {', '.join(IMAGE_MODELS)} for images"
        raise UsageError(f"models must name at least one architecture, but names none; {there_are}")
    for model in models:
        if model not in ALL_MODELS:
            raise UsageError(f"no model '{model}'{suggest(model, list(ALL_MODELS))}")
    repeated = sorted({model for model in models if models.count(model) > 1})
    if repeated:
        raise UsageError(f"models must name each architecture once, but names {', '.join(repeated)} again")
