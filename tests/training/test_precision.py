"""Precision: chosen by name, by the GPU, or once by a measurement that later processes keep."""

from pathlib import Path

import pytest
import torch

from saccade.errors import ModelFileError
from saccade.training.precision import autocast, choose_precision, fastest

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def refuse(precision: str) -> float:
    raise AssertionError("nothing is measured")


def test_a_name_is_kept_and_auto_asks_the_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "precision.json"
    assert choose_precision("auto", CPU, file, refuse) == "float32"
    assert choose_precision("bfloat16", CPU, file, refuse) == "bfloat16"
    for supported, expected in ((True, "bfloat16"), (False, "float32")):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda supported=supported: supported)
        assert choose_precision("auto", GPU, file, refuse) == expected
        assert choose_precision("fastest", GPU, file, refuse) == expected
    assert not file.exists()


@pytest.mark.parametrize(("half", "expected"), [(0.5, "bfloat16"), (0.95, "float32"), (10.0, "float32")])
def test_fastest_measures_once_and_keeps_the_decision(half: float, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "precision.json"
    times = {"float32": 1.0, "bfloat16": half}
    assert choose_precision("fastest", CPU, file, times.__getitem__) == expected
    assert choose_precision("fastest", CPU, file, refuse) == expected  # as a resumed run does


def test_a_damaged_decision_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "precision.json"
    choose_precision("fastest", CPU, file, lambda precision: 1.0)
    file.write_text(file.read_text().replace("float32", "float16"))
    with pytest.raises(ModelFileError, match=r"precision\.json"):
        choose_precision("fastest", CPU, file, refuse)


def test_autocast_computes_in_the_precision() -> None:
    x = torch.ones(2, 2)
    for precision, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        with autocast(precision, CPU):
            assert (x @ x).dtype == dtype


def test_the_fastest_call_counts_and_the_first_does_not() -> None:
    calls: list[int] = []
    assert fastest(lambda: calls.append(1)) >= 0
    assert len(calls) == 4
