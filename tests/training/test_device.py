"""What a training process asks of the machine."""

import subprocess
import sys

import pytest
import torch

from saccade.training.device import seed_generators

FAULTS = """
import resource, sys, torch
from saccade.training.device import keep_freed_memory

def faults(blocks=20):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(blocks):
        torch.ones(1 << 24)  # 64 MiB, freed at once
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

plain = faults()
if not keep_freed_memory():
    sys.exit("no mallopt")
faults()
print(plain, faults())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_freed_memory_is_kept_for_the_next_step():
    result = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True)
    if "no mallopt" in result.stderr:
        pytest.skip("this C library has no mallopt")
    plain, kept = map(int, result.stdout.split())
    assert plain > 1000 and kept < plain / 20


def test_a_seed_of_the_cpu_gives_the_draws_of_manual_seed():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.rand(1)
    seed_generators(torch.device("cpu"), 5)
    assert torch.equal(torch.rand(3), expected)
