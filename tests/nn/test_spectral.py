"""Spectral norm: the largest singular value is 1, as in torch, and stays 1 for a moving average of weights."""

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from saccade.nn.linear import Linear
from saccade.nn.spectral import SpectralNorm, normalize_spectrally


def largest(weight):
    return float(torch.linalg.svdvals(weight.flatten(1).double())[0])


@pytest.mark.parametrize(
    "layer", [Linear(7, 5), nn.Conv2d(3, 8, 3), nn.ConvTranspose2d(6, 4, 3), nn.Embedding(9, 4)], ids=repr
)
def test_the_largest_singular_value_is_one(layer):
    with torch.no_grad():
        layer.weight.mul_(7)
    normalize_spectrally(layer)
    for _ in range(50):
        assert layer.weight is not None  # each use is a power iteration while training
    assert largest(layer.weight.detach()) == pytest.approx(1, abs=1e-3)


def test_it_converges_to_that_of_torch():
    torch.manual_seed(0)
    own, other = (nn.Conv2d(3, 8, 3) for _ in range(2))
    other.load_state_dict(own.state_dict())
    normalize_spectrally(own)
    spectral_norm(other)
    for _ in range(200):
        weights = own.weight, other.weight
    torch.testing.assert_close(*weights, atol=1e-5, rtol=1e-4)
    x = torch.randn(2, 3, 6, 6)
    for layer in (own, other):
        layer(x).square().sum().backward()
    grads = (layer.parametrizations.weight.original.grad for layer in (own, other))
    torch.testing.assert_close(*grads, atol=1e-3, rtol=1e-3)


def test_evaluation_changes_nothing_and_training_one_buffer():
    layer = Linear(6, 4)
    normalize_spectrally(layer)
    layer.eval()
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    assert torch.equal(layer.weight, layer.weight)
    assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())
    layer.train()
    with torch.no_grad():
        layer.parametrizations.weight.original.add_(torch.randn(4, 6))
    assert layer.weight.shape == (4, 6)
    changed = [name for name, value in layer.state_dict().items() if not torch.equal(value, before[name])]
    assert "parametrizations.weight.0.u" in changed


def test_a_shorter_vector_gives_the_same_weight():
    """The moving average of a vector that turns is shorter than 1, and must not make the weight larger."""
    weight = torch.randn(5, 7)
    norm = SpectralNorm(weight).eval()
    expected = norm(weight)
    norm.u.mul_(0.3)
    torch.testing.assert_close(norm(weight), expected)
