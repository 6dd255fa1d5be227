"""Rollout: the product of the layers, against every path written out, and which layers are multiplied."""

import itertools

import pytest
import torch

from saccade.core import AttentionMap, AttentionMaps, GridAxis, Prediction, Role, TextOutput
from saccade.errors import UsageError
from saccade.look.figure import AttentionFigure
from saccade.look.rollout import rollout, rollout_layers
from tests.look.attention_maps import attention, random_attention
from tests.look.image_maps import self_map, word_map


def prediction(*maps):
    return Prediction({}, TextOutput("cat"), {}, AttentionMaps(maps))


def layers(count=3, heads=2):
    weights = [(2 * torch.randn(heads, 7, 7)).softmax(-1) for _ in range(count)]
    return [self_map(layer, name=f"encoder.{number}.self") for number, layer in enumerate(weights)]


def test_rollout_is_the_sum_over_all_paths_through_the_layers():
    maps = layers()
    mixed = [0.5 * layer.weights.mean(0) + 0.5 * torch.eye(7) for layer in maps]
    mixed = [layer / layer.sum(-1, keepdim=True) for layer in mixed]
    expected = torch.zeros(7, 7)
    for query, upper, lower, key in itertools.product(range(7), repeat=4):
        expected[query, key] += mixed[2][query, upper] * mixed[1][upper, lower] * mixed[0][lower, key]
    torch.testing.assert_close(rollout(maps).weights[0], expected)
    torch.testing.assert_close(rollout(maps).weights.sum(-1), torch.ones(1, 7))


def test_rows_that_do_not_sum_to_1_are_normalized():
    padded = attention(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    torch.testing.assert_close(rollout([padded]).weights[0], torch.eye(2))


def test_rollout_needs_self_attention():
    with pytest.raises(UsageError, match="'cross' is cross-attention"):
        rollout([random_attention(1, 2, 3)])


def test_rollout_of_grids_compares_positions_not_pixels():
    image = torch.zeros(3, 4, 4, dtype=torch.uint8)
    grids = [GridAxis(Role.IMAGE, 2, 2, image.clone()) for _ in range(2)]
    maps = [random_attention(1, 4, 4, queries=grid, keys=grid) for grid in grids]
    assert rollout(maps).keys is grids[0]


def test_the_layers_of_the_first_sequence_are_multiplied():
    encoder, cross = layers(2), word_map(torch.rand(2, 6), ("a", "dog"))
    other = GridAxis(Role.IMAGE, 4, 4)
    finer = AttentionMap("stem", torch.eye(16)[None], other, other)
    assert rollout_layers(prediction(*encoder, cross, finer)) == encoder
    assert rollout_layers(prediction(encoder[0], cross)) == [], "one layer is shown as it is"
    long = GridAxis(Role.IMAGE, 33, 32)
    many = [AttentionMap(f"encoder.{number}", torch.zeros(1, 1, 1), long, long) for number in range(2)]
    assert rollout_layers(prediction(*many)) == []


def test_a_figure_of_rollout_shows_the_class_token_and_the_mean_of_the_cells():
    maps = layers()
    figure = AttentionFigure.of(prediction(*maps), "rollout")
    torch.testing.assert_close(figure.attention.weights, rollout(maps).weights)
    assert next(line.split("  ")[0] for line in figure.terminal(100, colour=False).splitlines()) == "image"
    assert "mean of 6 cells" in figure.terminal(100, colour=False)
    assert "encoder.2.self" in figure.page() and '"rollout"' in figure.page()
    with pytest.raises(UsageError, match=r"rollout must have two or more layers of self-attention .* choose a layer"):
        AttentionFigure.of(prediction(maps[0]), "rollout")
    with pytest.raises(UsageError, match="no attention 'rolout'; did you mean 'rollout'"):
        AttentionFigure.of(prediction(*maps), "rolout")
