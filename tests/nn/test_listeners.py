"""Listeners receive what a module emits in their own context, and no hook is left on the model."""

import threading

import torch

from saccade.models.text.gpt import GPT, GPTConfig
from saccade.nn.calculation import calculate, record_inputs
from saccade.nn.packed import pack
from saccade.nn.transformer import layer_outputs


def make_gpt():
    torch.manual_seed(0)
    return GPT(GPTConfig(dim=128, depth=2, heads=2, hidden=128, init="gpt2"), 20).eval().requires_grad_(False)


def test_layer_outputs_are_those_of_the_stack_after_its_norm():
    model, ids = make_gpt(), torch.tensor([[1, 2, 3]])
    x, states = model.norm(model.embedding(ids)), []
    out = model.decoder(x, states=states)
    with layer_outputs(model.decoder, True) as outputs:
        model.decoder(x)
    assert len(outputs) == 2
    assert torch.equal(outputs[0], model.decoder.norm(states[1]))
    assert torch.equal(outputs[1], out)
    model.decoder(x)
    with layer_outputs(model.decoder, False) as nothing:
        model.decoder(x)
    assert nothing == [] and len(outputs) == 2


def test_inputs_of_an_attention_are_recorded_call_by_call_also_of_a_packed_copy():
    model, ids = make_gpt(), torch.tensor([[1, 2, 3]])
    attention = model.decoder.get_submodule("1.self")
    with record_inputs(attention) as calls:
        model(ids)
        pack(model, 4)(ids[:, :2])
    assert [x.shape for x, _, _ in calls] == [(1, 3, 128), (1, 2, 128)]
    x, memory, mask = calls[0]
    steps = calculate(attention, x, memory, mask, head=1, query=2)
    torch.testing.assert_close(steps.output, attention(x, mask=mask)[0, 2])


def test_two_threads_listen_each_to_its_own_calls_and_the_model_has_no_hooks():
    model, both = make_gpt(), threading.Barrier(2, timeout=30)
    inputs, heard = [torch.randint(20, (1, 4)), torch.randint(20, (1, 6))], {}

    def run(number):
        with (
            layer_outputs(model.decoder, True) as outputs,
            record_inputs(model.decoder.get_submodule("0.self")) as calls,
        ):
            for _ in range(3):
                both.wait()
                assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
                model(inputs[number])
        heard[number] = ([out.shape[1] for out in outputs], [x.shape[1] for x, _, _ in calls])

    threads = [threading.Thread(target=run, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert heard == {0: ([4] * 6, [4] * 3), 1: ([6] * 6, [6] * 3)}
