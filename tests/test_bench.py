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
