"""Linear layers by oneDNN equal torch's own, with first and second derivatives."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from saccade.nn import linear as module
from saccade.nn.linear import Linear, is_plain, linear
from saccade.pretrained.adapters import LoraLinear

needs_onednn = pytest.mark.skipif(not module.onednn_available(), reason="this build of torch has no oneDNN")


@pytest.fixture
def onednn(monkeypatch):
    """Use oneDNN whatever the processor; return the shapes of the inputs it multiplied."""
    shapes = []
    plain = module.onednn_linear

    def record(x, weight, bias):
        shapes.append(tuple(x.shape))
        return plain(x, weight, bias)

    monkeypatch.setattr(module, "onednn_pays", lambda: True)
    monkeypatch.setattr(module, "onednn_linear", record)
    return shapes


INPUTS = {
    "rows": lambda: torch.randn(300, 128),
    "sequences": lambda: torch.randn(3, 100, 128),
    "transposed": lambda: torch.randn(128, 300).t(),
    "slices": lambda: torch.randn(300, 2, 128)[:, 1],
    "expanded": lambda: torch.randn(128).expand(300, 128),
}


@needs_onednn
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", INPUTS)
def test_output_and_gradients_equal_torch(onednn, kind, bias):
    torch.manual_seed(1)
    x = INPUTS[kind]().requires_grad_()
    layer = Linear(128, 130, bias=bias)
    grad = torch.randn(*x.shape[:-1], 130)
    inputs = [x, *layer.parameters()]
    y = layer(x)
    found = torch.autograd.grad(y, inputs, grad)
    assert len(onednn) == 3  # the product, and both of its gradients
    expected = F.linear(x, layer.weight, layer.bias)
    torch.testing.assert_close(y, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found, torch.autograd.grad(expected, inputs, grad), atol=1e-4, rtol=1e-4)


@needs_onednn
def test_the_gradient_of_a_sum_is_expanded_and_still_right(onednn):
    x, layer = torch.randn(300, 128), Linear(128, 130)
    layer(x).sum().backward()
    torch.testing.assert_close(layer.weight.grad, x.sum(0).expand(130, 128), atol=1e-3, rtol=1e-4)


@needs_onednn
def test_second_derivatives(onednn):
    x, weight = torch.randn(300, 128, requires_grad=True), torch.randn(130, 128, requires_grad=True)

    def penalty(function):
        (grad,) = torch.autograd.grad(function(x, weight).tanh().sum(), x, create_graph=True)
        return torch.autograd.grad(grad.square().sum(), (x, weight))

    torch.testing.assert_close(penalty(linear), penalty(F.linear), atol=1e-2, rtol=1e-4)


@needs_onednn
def test_small_products_other_types_and_empty_inputs_use_torch(onednn):
    for rows, dtype in ((4, torch.float32), (0, torch.float32), (300, torch.float64), (300, torch.bfloat16)):
        x, weight = torch.randn(rows, 128).to(dtype), torch.randn(130, 128).to(dtype)
        torch.testing.assert_close(linear(x, weight), F.linear(x, weight))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear(torch.randn(300, 128), torch.randn(130, 128)).dtype == torch.bfloat16
    with pytest.raises(RuntimeError, match="shapes"):
        linear(torch.randn(300, 127), torch.randn(130, 128))
    assert not onednn


@pytest.mark.parametrize(
    ("capability", "vendor", "pays"),
    [
        ("AVX512", "AuthenticAMD", True),
        ("AVX512_VNNI", "AuthenticAMD", True),
        ("AVX512", "GenuineIntel", False),
        ("AVX2", "AuthenticAMD", False),
    ],
)
def test_the_processor_decides(monkeypatch, tmp_path, capability, vendor, pays):
    info = tmp_path / "cpuinfo"
    info.write_text(f"vendor_id\t: {vendor}\n")
    monkeypatch.setattr(module, "CPU_INFO", info)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(module, "onednn_available", lambda: True)
    assert module.onednn_pays.__wrapped__() is pays


def test_plain_layers():
    assert is_plain(nn.Linear(2, 2)) and is_plain(Linear(2, 2))
    assert not is_plain(LoraLinear(Linear(2, 2), 1)) and not is_plain(nn.ReLU())
