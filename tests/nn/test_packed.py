"""Packed copies return the same as the model, and do not change it."""

import threading

import pytest
import torch
from torch import nn

from saccade.models.text.gpt import GPT, GPTConfig
from saccade.nn import packed as module
from saccade.nn.ablation import Ablation, ablated
from saccade.nn.packed import PackedLinear, original, pack
from saccade.nn.probe import watch

pytestmark = pytest.mark.skipif(not module._available(), reason="this build of torch has no packed linear layers")


@pytest.fixture
def model():
    return nn.Sequential(nn.Linear(192, 130), nn.ReLU(), nn.Linear(130, 140, bias=False), nn.Linear(140, 3))


def make_gpt():
    return GPT(GPTConfig(dim=128, depth=2, heads=2, hidden=256, init="gpt2"), 200).eval().requires_grad_(False)


def everything(model):
    """The attributes of every module, tables of parameters, buffers and children included."""
    return [
        {name: dict(value) if isinstance(value, dict) else value for name, value in part.__dict__.items()}
        for part in model.modules()
    ]


@pytest.mark.parametrize("shape", [(1, 192), (5, 192), (2, 7, 192), (300, 1, 192), (0, 192)])
def test_the_result_is_the_same(model, shape):
    x = torch.randn(shape)
    with torch.no_grad():
        expected = model(x)
        copy = pack(model, 64)
        assert isinstance(copy[0], PackedLinear) and isinstance(copy[2], PackedLinear)
        assert type(copy[3]) is nn.Linear  # too small to be worth it
        found = copy(x)
        tail = copy(x[..., :1, :])  # a view
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(tail, expected[..., :1, :], atol=1e-5, rtol=1e-5)


def test_the_model_is_not_changed_and_the_copy_shares_its_parameters(model):
    before = everything(model)
    copy = pack(model, 8)
    assert everything(model) == before
    assert list(copy.state_dict()) == list(model.state_dict())
    for mine, theirs in zip(copy.parameters(), model.parameters(), strict=True):
        assert mine is theirs
    copy[3].weight = nn.Parameter(torch.zeros(3, 140))
    copy[0].extra = 1
    assert everything(model) == before
    x = torch.randn(2, 192)
    with torch.no_grad():
        model[0].weight.mul_(2)  # the model follows a change, the copy does not
        torch.testing.assert_close(model[0](x), x @ model[0].weight.t() + model[0].bias)
        torch.testing.assert_close(copy[0](x), x @ model[0].weight.t() / 2 + model[0].bias)
    model(x).sum().backward()
    assert model[0].weight.grad is not None


def test_a_module_that_is_used_twice_is_copied_once():
    layer = nn.Linear(192, 192)
    copy = pack(nn.Sequential(layer, nn.ReLU(), layer), 8)
    assert copy[0] is copy[2] is not layer
    assert isinstance(copy[0], PackedLinear)


def test_packing_a_copy_again_packs_nothing(model):
    copy = pack(model, 8)
    assert pack(copy, 8) is copy


def test_a_copy_is_watched_and_ablated_as_its_model():
    model, ids = make_gpt(), torch.randint(200, (2, 6))
    copy = pack(model, 8)
    assert original(copy) is model and original(model) is model
    with watch(model) as expected:
        plain = model(ids)
    for watched in (model, copy):
        with watch(watched) as recorder:
            torch.testing.assert_close(copy(ids), plain, atol=1e-5, rtol=1e-5)
        assert list(recorder) == list(expected)
        for name, weights in recorder.items():
            torch.testing.assert_close(weights.rows(), expected[name].rows(), atol=1e-5, rtol=1e-5)
    off = Ablation("decoder.0.self", 1)
    with ablated(model, [off]):
        without, packed = model(ids), copy(ids)
    assert not torch.allclose(without, plain, atol=1e-4)
    torch.testing.assert_close(packed, without, atol=1e-5, rtol=1e-5)
    with ablated(copy, [off]):
        torch.testing.assert_close(copy(ids), without, atol=1e-5, rtol=1e-5)


def test_one_thread_packs_while_others_use_the_model():
    model = make_gpt()
    inputs = [torch.randint(200, (2, 9)) for _ in range(3)]
    expected, wrong = [model(ids) for ids in inputs], []

    def use(number):
        wrong.extend(number for _ in range(15) if not torch.equal(model(inputs[number]), expected[number]))

    def repack():
        found = (pack(model, 18)(inputs[2]) for _ in range(15))
        wrong.extend("packed" for logits in found if not torch.allclose(logits, expected[2], atol=1e-5))

    threads = [threading.Thread(target=use, args=(number,)) for number in (0, 1)] + [threading.Thread(target=repack)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_other_types_hooks_and_other_builds(model, monkeypatch):
    double = nn.Sequential(nn.Linear(192, 130)).double()
    assert pack(double, 8) is double
    calls = []
    model[0].register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        pack(model, 8)(torch.randn(2, 192))
    assert calls == [1]
    with torch.autocast("cpu"):
        assert pack(model, 8) is model
    monkeypatch.setattr(module, "_available", lambda: False)
    assert pack(model, 8) is model
