"""Two threads that watch, ablate, patch, pack and run one model at the same time get their own exact results."""

import threading

import pytest
import torch

from saccade.models.text.gpt import GPT, GPTConfig
from saccade.nn.ablation import Ablation, ablated, patched_embeddings
from saccade.nn.cache import KVCache
from saccade.nn.calculation import calculate, record_inputs
from saccade.nn.kernels import twice_differentiable
from saccade.nn.packed import pack
from saccade.nn.probe import record, watch
from saccade.nn.transformer import layer_outputs


@pytest.fixture
def model():
    torch.manual_seed(0)
    net = GPT(GPTConfig(dim=128, depth=2, heads=2, hidden=128, max_positions=16), 20).eval().requires_grad_(False)
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return net


def run_plain(model, ids):
    return [model(ids)]


def run_watched(model, ids):
    with watch(model, "decoder.1.*", heads=[1]) as recorder:
        logits = model(ids)
    return [logits, recorder["decoder.1.self"].rows()]


def run_ablated(model, ids):
    with ablated(model, [Ablation("decoder.0.self", 1), Ablation("decoder.1.self", 0, 3, 1)]), watch(model) as recorder:
        logits = model(ids)
    return [logits, *(weights.rows() for weights in recorder.values())]


def run_patched(model, ids):
    with patched_embeddings(lambda x: x.flip(1)), layer_outputs(model.decoder, True) as outputs:
        logits = model(ids)
    return [logits, *outputs]


def run_calculation(model, ids):
    attention = model.decoder.get_submodule("1.self")
    with record_inputs(attention) as calls:
        logits = model(ids)
    ((x, memory, mask),) = calls
    return [logits, calculate(attention, x, memory, mask, 1, 2).output]


def run_streamed(model, ids):
    recorder, cache, logits = record(model), KVCache(16), []
    for token in ids.split(1, dim=1):
        with recorder:
            logits.append(model(token, cache=cache))
    return [*logits, *(weights.rows() for weights in recorder.values())]


def run_twice_differentiable(model, ids):
    x = model.embedding(ids).requires_grad_()
    with twice_differentiable():
        out = model.decoder(x)
        (grad,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(grad.square().sum(), x)
    return [out.detach(), grad.detach(), second]


def run_packed(model, ids):
    copy = pack(model, 8)
    assert copy is not model
    with watch(model) as recorder:
        logits = copy(ids)
    return [logits, recorder["decoder.0.self"].rows()]


WAYS = [
    run_plain,
    run_watched,
    run_ablated,
    run_patched,
    run_calculation,
    run_streamed,
    run_twice_differentiable,
    run_packed,
]


@pytest.mark.parametrize("first", WAYS)
@pytest.mark.parametrize("second", WAYS)
def test_two_threads_on_one_model_get_their_own_results(model, first, second):
    ways, ids = (first, second), (torch.randint(20, (2, 6)), torch.randint(20, (1, 5)))
    before = [dict(module.__dict__) for module in model.modules() if not hasattr(module, "_table")]
    alone = [way(model, rows) for way, rows in zip(ways, ids, strict=True)]
    meeting, results = threading.Barrier(2), {}

    def meet(*_):
        """Both threads are inside the model, and inside their own blocks, at the same moment."""
        try:
            meeting.wait(timeout=0.02)
        except threading.BrokenBarrierError:
            meeting.reset()

    def request(number):
        for _ in range(3):
            results.setdefault(number, []).append(ways[number](model, ids[number]))

    hook = model.decoder.get_submodule("0").register_forward_hook(meet)
    threads = [threading.Thread(target=request, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    hook.remove()
    for number in (0, 1):
        for found in results[number]:
            assert len(found) == len(alone[number])
            assert all(torch.equal(a, b) for a, b in zip(found, alone[number], strict=True))
    assert before == [dict(module.__dict__) for module in model.modules() if not hasattr(module, "_table")]
