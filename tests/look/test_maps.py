"""Maps: means over layers and entropy, by values worked out by hand."""

import math

import pytest
import torch

from saccade.errors import UsageError
from saccade.look import maps
from tests.look.attention_maps import attention, random_attention


def test_mean_is_over_layers_and_heads():
    one, two = random_attention(1, 2, 3), random_attention(3, 2, 3)
    expected = (one.weights.sum(0) + two.weights.sum(0)) / 4
    torch.testing.assert_close(maps.mean([one, two]).weights, expected[None])
    with pytest.raises(UsageError, match="'cross' is 2 x 3 and 'self' is 2 x 2"):
        maps.mean([one, random_attention(1, 2, 2, name="self")])
    with pytest.raises(UsageError, match="at least one, but there is none"):
        maps.mean([])


def test_entropy_is_0_for_sharp_and_1_for_flat_heads():
    flat, sharp = torch.full((4, 4), 0.25), torch.eye(4)
    half = torch.tensor([[0.5, 0.5, 0, 0]] * 4)
    padded = torch.cat([flat[:2], torch.zeros(2, 4)])
    values = maps.entropy(attention(torch.stack([sharp, flat, half, padded, torch.zeros(4, 4)])))
    assert values[:4] == pytest.approx([0, 1, 0.5, 1])
    assert math.isnan(values[4])
    assert maps.entropy(attention([[1.0]])) == [0]
