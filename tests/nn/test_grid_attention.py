"""Self-attention inside a convolutional network: identity at the start, exact maps, insertable anywhere."""

import torch
from torch import nn

from saccade.nn.attention import QKNorm
from saccade.nn.grid_attention import GridAttention, insert_attention
from saccade.nn.probe import watch


def test_it_is_the_identity_until_its_gain_is_trained() -> None:
    layer, x = GridAttention(8, 2), torch.randn(3, 8, 5, 4)
    assert torch.equal(layer(x), x)
    layer(x).square().sum().backward()
    assert layer.gain.grad is not None and layer.gain.grad.abs() > 0


def test_every_cell_gets_the_weighted_mean_of_all_cells() -> None:
    layer, x = GridAttention(6, 1), torch.randn(2, 6, 3, 4)
    nn.init.ones_(layer.gain)
    cells = x.flatten(2).transpose(1, 2)  # (B, H W, C)
    q, k, v = layer.attention.qkv(cells).chunk(3, dim=-1)
    weights = (q @ k.transpose(1, 2) / 6**0.5).softmax(-1)
    expected = x + layer.attention.out(weights @ v).transpose(1, 2).reshape(x.shape)
    torch.testing.assert_close(layer(x), expected)


def test_linear_layers_on_cells_are_convolutions_of_size_1() -> None:
    layer, x = GridAttention(6, 1), torch.randn(2, 6, 3, 4)
    weight, bias = layer.attention.qkv.weight[:, :, None, None], layer.attention.qkv.bias
    convolved = nn.functional.conv2d(x, weight, bias).flatten(2).transpose(1, 2)
    torch.testing.assert_close(layer.attention.qkv(x.flatten(2).transpose(1, 2)), convolved)


def test_the_map_of_a_cell_equals_the_eager_weights() -> None:
    layer, x = GridAttention(8, 2, score=QKNorm(4)), torch.randn(1, 8, 4, 4)
    with torch.no_grad(), watch(layer) as maps:
        layer(x)
    q, k, _ = layer.attention.qkv(x.flatten(2).transpose(1, 2)).unflatten(-1, (3, 2, 4)).unbind(2)
    q, k = (part / part.square().mean(-1, keepdim=True).add(1e-6).sqrt() for part in (q, k))
    scores = torch.einsum("bqhe,bkhe->bhqk", q, k) / 4**0.5
    clicked = maps["attention"].rows(5, 6)  # row 1, column 1
    torch.testing.assert_close(clicked, scores.softmax(-1)[:, :, 5:6])
    torch.testing.assert_close(clicked.sum(-1), torch.ones(1, 2, 1))


def test_it_can_be_inserted_into_any_network() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 1))
    x = torch.randn(2, 3, 6, 6)
    before = network(x)
    attention = insert_attention(network, "1", channels=4)
    assert torch.equal(network(x), before)
    nn.init.ones_(attention.gain)
    assert not torch.allclose(network(x), before)
