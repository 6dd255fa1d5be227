"""Packed linear layers give what the layers give, and leave them as they were."""

import pytest
import torch
from torch import nn

from saccade.nn import packed as module
from saccade.nn.packed import packed

pytestmark = pytest.mark.skipif(not module._available(), reason="this build of torch has no packed linear layers")


@pytest.fixture
def model():
    return nn.Sequential(nn.Linear(192, 130), nn.ReLU(), nn.Linear(130, 140, bias=False), nn.Linear(140, 3))


@pytest.mark.parametrize("shape", [(1, 192), (5, 192), (2, 7, 192), (300, 1, 192), (0, 192)])
def test_the_result_is_the_same(model, shape):
    x = torch.randn(shape)
    with torch.no_grad():
        expected = model(x)
        with packed(model, 64):
            assert "forward" in model[0].__dict__ and "forward" in model[2].__dict__
            assert "forward" not in model[3].__dict__  # too small to be worth it
            found = model(x)
            tail = model(x[..., :1, :])  # a view
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(tail, expected[..., :1, :], atol=1e-5, rtol=1e-5)


def test_afterwards_the_layers_are_their_own_again_whatever_happened(model):
    names = list(model.state_dict())
    with pytest.raises(RuntimeError, match="stop"), packed(model, 8):
        assert list(model.state_dict()) == names
        raise RuntimeError("stop")
    x = torch.randn(2, 192)
    with torch.no_grad():
        model[0].weight.mul_(2)  # a change is seen
        first = model[0](x)
    torch.testing.assert_close(first, x @ model[0].weight.t() + model[0].bias)
    model(x).sum().backward()
    assert model[0].weight.grad is not None


def test_packing_twice_is_packing_once(model):
    x = torch.randn(2, 192)
    with torch.no_grad(), packed(model, 8):
        outer = model[0].__dict__["forward"]
        with packed(model, 8):
            assert model[0].__dict__["forward"] is outer
        assert model[0].__dict__["forward"] is outer
        model(x)


def test_other_types_hooks_and_other_builds_are_left_alone(model, monkeypatch):
    double = nn.Sequential(nn.Linear(192, 130)).double()
    with packed(double, 8):
        assert "forward" not in double[0].__dict__
    seen = []
    model[0].register_forward_hook(lambda *_: seen.append(1))
    with torch.no_grad(), packed(model, 8):
        model(torch.randn(2, 192))
    assert seen == [1]
    with torch.autocast("cpu"), packed(model, 8):
        assert "forward" not in model[0].__dict__
    monkeypatch.setattr(module, "_available", lambda: False)
    with packed(model, 8):
        assert "forward" not in model[0].__dict__
