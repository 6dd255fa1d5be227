"""Maps: means over layers, rollout and entropy, by values worked out by hand."""

import math

import pytest
import torch

from saccade.core import GridAxis, Role
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


def test_rollout_multiplies_the_layers_with_their_residual():
    one, two = random_attention(2, 4, 4), random_attention(3, 4, 4)
    first, second = (0.5 * layer.weights.mean(0) + 0.5 * torch.eye(4) for layer in (one, two))
    rolled = maps.rollout([one, two])
    torch.testing.assert_close(rolled.weights[0], second @ first)
    torch.testing.assert_close(rolled.weights.sum(-1), torch.ones(1, 4))


def test_rollout_keeps_what_a_row_without_attention_holds():
    empty = attention(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    torch.testing.assert_close(maps.rollout([empty]).weights[0], torch.eye(2))


def test_rollout_needs_self_attention():
    with pytest.raises(UsageError, match="'cross' is cross-attention"):
        maps.rollout([random_attention(1, 2, 3)])


def test_entropy_is_0_for_sharp_and_1_for_flat_heads():
    flat, sharp = torch.full((4, 4), 0.25), torch.eye(4)
    half = torch.tensor([[0.5, 0.5, 0, 0]] * 4)
    padded = torch.cat([flat[:2], torch.zeros(2, 4)])
    values = maps.entropy(attention(torch.stack([sharp, flat, half, padded, torch.zeros(4, 4)])))
    assert values[:4] == pytest.approx([0, 1, 0.5, 1])
    assert math.isnan(values[4])
    assert maps.entropy(attention([[1.0]])) == [0]


def test_rollout_of_grids_compares_positions_not_pixels():
    image = torch.zeros(3, 4, 4, dtype=torch.uint8)
    grids = [GridAxis(Role.IMAGE, 2, 2, image.clone()) for _ in range(2)]
    layers = [random_attention(1, 4, 4, queries=grid, keys=grid) for grid in grids]
    assert maps.rollout(layers).keys is grids[0]
