"""Every test of nn begins from the same random numbers."""

import pytest
import torch
from hypothesis import settings

settings.register_profile("nn", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("nn")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)
