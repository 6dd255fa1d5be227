"""Every test begins from the same random numbers."""

import pytest
import torch
from hypothesis import settings

settings.register_profile("saccade", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("saccade")


@pytest.fixture(autouse=True)
def seeded():
    """One seed, and one thread: tensors this small only wait for a second one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)
