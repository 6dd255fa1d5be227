"""Saccade: train, run, serve and look inside attention models.

    run = saccade.train("pairs.tsv", minutes=10)
    model = saccade.load(run)
    model("Good morning.").text

Names are resolved on first use: importing saccade does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saccade import errors as errors
    from saccade.api import list_models as list_models
    from saccade.api import list_runs as list_runs
    from saccade.api import list_tasks as list_tasks
    from saccade.api import load as load
    from saccade.api import resume as resume
    from saccade.api import train as train
    from saccade.checks import CheckReport as CheckReport
    from saccade.checks import check as check
    from saccade.comparison import compare as compare
    from saccade.core import Callback as Callback
    from saccade.core import Evaluation as Evaluation
    from saccade.core import StopTraining as StopTraining
    from saccade.model import Model as Model
    from saccade.model import ModelPrediction as ModelPrediction
    from saccade.planning import plan as plan
    from saccade.run import Run as Run

__version__ = "0.1.0"

_MODULES = {
    "Callback": "saccade.core",
    "CheckReport": "saccade.checks",
    "Evaluation": "saccade.core",
    "Model": "saccade.model",
    "ModelPrediction": "saccade.model",
    "Run": "saccade.run",
    "StopTraining": "saccade.core",
    "check": "saccade.checks",
    "compare": "saccade.comparison",
    "list_models": "saccade.api",
    "list_runs": "saccade.api",
    "list_tasks": "saccade.api",
    "load": "saccade.api",
    "plan": "saccade.planning",
    "resume": "saccade.api",
    "train": "saccade.api",
}

__all__ = [*_MODULES, "__version__", "errors"]


if not TYPE_CHECKING:  # a type checker sees the imports above, and so a misspelt name

    def __getattr__(name: str) -> Any:
        """Import the module of a public name when the name is first used (PEP 562)."""
        if name == "errors":
            return importlib.import_module("saccade.errors")
        if name not in _MODULES:
            raise AttributeError(f"module 'saccade' has no attribute '{name}'")
        value = getattr(importlib.import_module(_MODULES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
