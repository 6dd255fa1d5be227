"""Models of 8 bits: near the float32 ones, the original untouched, only large linear layers changed."""

import pytest
import torch
from torch import nn

from saccade.models.text.bert import Bert, BertConfig
from saccade.pretrained.quantize import Int8Linear, quantize


def model():
    torch.manual_seed(1)
    config = BertConfig(dim=64, depth=2, heads=4, hidden=128, norm="layer", bias=True, begin="normal")
    made = Bert(config, 50).eval()
    for value in made.parameters():
        if value.dim() > 1:
            nn.init.normal_(value, std=0.15)
    return made


@torch.no_grad()
def test_the_vectors_point_the_same_way_and_the_original_is_untouched():
    plain = model()
    before = {name: value.clone() for name, value in plain.state_dict().items()}
    small = quantize(plain)
    ids = torch.randint(50, (3, 11))
    likeness = torch.cosine_similarity(plain(ids), small(ids), dim=-1)
    assert likeness.min() > 0.99
    assert not torch.equal(plain(ids), small(ids))
    assert all(torch.equal(value, before[name]) for name, value in plain.state_dict().items())
    kinds = [type(module) for module in small.modules()]
    assert kinds.count(Int8Linear) == 8 and nn.Linear not in kinds


@torch.no_grad()
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_is_as_near_as_eight_bits_allow(bias):
    layer = nn.Linear(96, 64, bias=bias)
    x = torch.randn(5, 7, 96)
    found = Int8Linear(layer)(x)
    assert found.shape == (5, 7, 64)
    error = (found - layer(x)).norm() / layer(x).norm()
    assert 0 < error < 0.04


def test_a_small_layer_and_a_tiny_weight_do_no_harm():
    assert type(quantize(nn.Sequential(nn.Linear(3, 2)))[0]) is nn.Linear
    layer = nn.Linear(64, 64)
    nn.init.zeros_(layer.weight)
    with torch.no_grad():
        torch.testing.assert_close(Int8Linear(layer)(torch.ones(1, 64))[0], layer.bias, atol=1e-3, rtol=1e-3)
