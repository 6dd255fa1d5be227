"""Preparing many pairs takes little memory."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import prepare_pairs


def test_memory_grows_little_with_the_number_of_pairs() -> None:
    few, many = prepare_pairs.measure(1_000, runs=1), prepare_pairs.measure(20_000, runs=1)
    # 2 GB for 1,000,000 pairs are 2 kB a pair; 20,000 pairs may take 40 MB more than the imports of torch.
    assert many.peak_gb - few.peak_gb < prepare_pairs.LIMIT * 20_000 / prepare_pairs.PAIRS + 0.03
