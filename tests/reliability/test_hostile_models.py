"""Hostile models end in one message, never in an abort, a traceback, a hang or the output of a library."""

import importlib.util
import sys
from pathlib import Path


def test_hostile_models_are_opened_or_refused_within_a_gigabyte() -> None:
    spec = importlib.util.spec_from_file_location("hostile_models", Path(__file__).with_name("hostile_models.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["hostile_models"] = module
    spec.loader.exec_module(module)
    outcomes, failures = module.run(40, seed=7)
    assert not failures, "\n".join(failures)
    assert outcomes["refused"] > 10 and outcomes["opened"] > 0
