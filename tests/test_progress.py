"""The progress display: notes and evaluations on stderr."""

import pytest

from saccade.progress import ProgressBar


def test_counts_are_shown_without_decimals(capsys: pytest.CaptureFixture[str]) -> None:
    ProgressBar().on_evaluation({"step": 3, "loss": 0.5, "pairs": 2000, "best": 0.5}, "")
    assert capsys.readouterr().err.strip() == "step 3  valid loss 0.5000  pairs 2,000"
