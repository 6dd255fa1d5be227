"""Reports of the benchmarks."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

import interleaved


@pytest.mark.parametrize(
    ("ours", "peer", "lower_is_better", "ratio"),
    [(3.0, 2.0, False, 1.5), (3.0, 2.0, True, 0.667), (3.0, 0.0, False, None), (0.0, 2.0, True, None)],
)
def test_a_ratio_above_1_is_better_and_none_divides_by_0(
    capsys: pytest.CaptureFixture[str], ours: float, peer: float, lower_is_better: bool, ratio: float | None
) -> None:
    interleaved.report("f1", ours, peer, lower_is_better=lower_is_better, seed=1)
    assert json.loads(capsys.readouterr().out) == {"name": "f1", "ours": ours, "peer": peer, "ratio": ratio, "seed": 1}


def test_a_peer_that_is_not_installed_is_left_out_with_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert interleaved.available(["ours", "nowhere"], "nowhere") == ["ours"]
    assert capsys.readouterr().err == (
        "nowhere is not installed and left out; pip install --no-deps --target peers nowhere torchvision, and set "
        "PYTHONPATH=peers\n"
    )
    assert interleaved.available(["ours", "torch"], "torch") == ["ours", "torch"]
