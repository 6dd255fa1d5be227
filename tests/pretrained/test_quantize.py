"""Int8 models: close to float32, the given model unchanged, only large linear layers replaced."""

import pytest
import torch
from torch import nn

from saccade.models.text.bert import Bert, BertConfig
from saccade.pretrained.quantize import Int8Linear, quantize


def model():
    torch.manual_seed(1)
    config = BertConfig(dim=64, depth=2, heads=4, hidden=128, norm="layer", bias=True, init="normal")
    encoder = Bert(config, 50).eval()
    for value in encoder.parameters():
        if value.dim() > 1:
            nn.init.normal_(value, std=0.15)
    return encoder


@torch.no_grad()
def test_vectors_have_the_same_direction_and_the_model_is_not_modified():
    plain = model()
    before = {name: value.clone() for name, value in plain.state_dict().items()}
    quantized = quantize(plain)
    ids = torch.randint(50, (3, 11))
    cosine = torch.cosine_similarity(plain(ids), quantized(ids), dim=-1)
    assert cosine.min() > 0.99
    assert not torch.equal(plain(ids), quantized(ids))
    assert all(torch.equal(value, before[name]) for name, value in plain.state_dict().items())
    kinds = [type(module) for module in quantized.modules()]
    assert kinds.count(Int8Linear) == 8 and nn.Linear not in kinds


@torch.no_grad()
@pytest.mark.parametrize("bias", [True, False])
def test_the_error_of_a_layer_is_that_of_eight_bits(bias):
    layer = nn.Linear(96, 64, bias=bias)
    x = torch.randn(5, 7, 96)
    y = Int8Linear(layer)(x)
    assert y.shape == (5, 7, 64)
    error = (y - layer(x)).norm() / layer(x).norm()
    assert 0 < error < 0.04


def test_a_small_layer_is_not_quantized_and_zero_weights_stay_zero():
    assert type(quantize(nn.Sequential(nn.Linear(3, 2)))[0]) is nn.Linear
    layer = nn.Linear(64, 64)
    nn.init.zeros_(layer.weight)
    with torch.no_grad():
        torch.testing.assert_close(Int8Linear(layer)(torch.ones(1, 64))[0], layer.bias, atol=1e-3, rtol=1e-3)
