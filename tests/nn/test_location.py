"""Location-aware attention: the probe reads what was computed, and the weights of a token move the next one."""

import torch

from saccade.nn.ablation import Ablation, ablated
from saccade.nn.cache import KVCache
from saccade.nn.calculation import calculate, record_inputs
from saccade.nn.location import FILTERS, REACH, LocationAttention
from saccade.nn.masks import Padding
from saccade.nn.probe import watch

ROWS, KEYS, TOKENS, DIM = 2, 7, 4, 6


def make():
    torch.manual_seed(0)
    layer = LocationAttention(DIM, 5).double().eval()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return layer


def some():
    torch.manual_seed(1)
    keep = torch.tensor([[True] * KEYS, [True] * 4 + [False] * 3])
    return torch.randn(ROWS, TOKENS, DIM).double(), torch.randn(ROWS, KEYS, 5).double(), keep


def run(layer, x, memory, keep):
    """One token after the other."""
    cache = KVCache(TOKENS).layer("memory")
    mask = Padding(keep).lower(1, KEYS, 0, x.device)
    return torch.cat([layer(x[:, at : at + 1], memory, mask=mask, cache=cache) for at in range(x.shape[1])], dim=1)


def eager(layer, x, memory, keep):
    """The weights (B, T, K) from their definition, key by key."""
    rows = []
    for row in range(len(x)):
        k, _ = layer.kv(memory[row]).chunk(2, dim=-1)
        last = torch.zeros(KEYS).double()
        last[0] = 1
        total, steps = last, []
        for token in x[row]:
            padded = torch.nn.functional.pad(torch.stack((last, total)), (REACH, REACH))
            gate = layer.gate(token)
            scores = []
            for key in range(KEYS):
                filtered = (layer.filters.weight * padded[:, key : key + 2 * REACH + 1]).sum((1, 2))  # (C,)
                scores.append(torch.tanh(layer.q(token) + k[key]) @ layer.score.weight + gate @ filtered)
            last = torch.stack(scores).masked_fill(~keep[row], -torch.inf).softmax(0)
            total = total + last
            steps.append(last)
        rows.append(torch.stack(steps))
    return torch.stack(rows)


@torch.no_grad()
def test_the_probe_equals_the_weights_of_the_definition():
    layer, (x, memory, keep) = make(), some()
    with watch(layer) as maps:
        out = run(layer, x, memory, keep)
    weights = maps[""].rows()[:, 0]  # (B, T, K)
    expected = eager(layer, x, memory, keep)
    torch.testing.assert_close(weights, expected)
    assert not weights[1, :, 4:].any()
    values = layer.kv(memory).chunk(2, dim=-1)[1]
    torch.testing.assert_close(out, layer.out(expected @ values))


@torch.no_grad()
def test_where_a_token_attended_moves_the_next_one():
    """Filters that see only the key to the left, and keys that are all equal: each token attends one key further."""
    layer, (x, memory, keep) = make(), some()
    for parameter in (layer.kv.weight, layer.filters.weight, layer.gate.weight):
        parameter.zero_()
    layer.filters.weight[:, 0, REACH - 1] = 1.0
    layer.gate.bias.fill_(40.0 / FILTERS)
    with watch(layer) as maps:
        run(layer, x, memory, keep)
    assert maps[""].rows()[0, 0].argmax(-1).tolist() == [1, 2, 3, 4]
    assert maps[""].rows()[1, 0, :3].argmax(-1).tolist() == [1, 2, 3]


@torch.no_grad()
def test_beams_share_a_memory_and_each_keeps_its_own_location():
    layer, (x, memory, keep) = make(), some()
    beams = torch.stack((x, x.flip(1)), dim=1).flatten(0, 1)  # the two beams of the first row, then those of the second
    cache, mask = KVCache(TOKENS), Padding(keep).lower(1, KEYS, 0, x.device)
    steps = []
    with watch(layer) as maps:
        for at in range(TOKENS):
            if at == 2:
                cache.reorder(torch.tensor([1, 0, 3, 2]), None, shared=True)
                beams = beams[[1, 0, 3, 2]]
            steps.append(layer(beams[:, at : at + 1], memory, mask=mask, cache=cache.layer("memory")))
    expected = eager(layer, beams, memory.repeat_interleave(2, 0), keep.repeat_interleave(2, 0))
    torch.testing.assert_close(maps[""].rows()[:, 0], expected)


@torch.no_grad()
def test_a_calculation_and_an_ablation_use_the_location():
    layer, (x, memory, keep) = make(), some()
    with record_inputs(layer) as calls, watch(layer) as maps:
        before = run(layer, x, memory, keep)
    values = calculate(layer, *calls[2], 0, 0)
    torch.testing.assert_close(values.weights, maps[""].rows()[0, 0, 2])
    torch.testing.assert_close(values.scores.softmax(0), values.weights)
    torch.testing.assert_close(values.output, before[0, 2])
    with ablated(layer, [Ablation("", 0, query=2, key=3)]):
        after = run(layer, x, memory, keep)
    assert torch.equal(after[:, :2], before[:, :2]) and not torch.allclose(after[:, 2], before[:, 2])


def test_the_layer_runs_in_bfloat16():
    layer, (x, memory, keep) = make(), some()
    rounded = make().bfloat16()
    expected = run(layer, x, memory, keep)
    actual = run(rounded, x.bfloat16(), memory.bfloat16(), keep)
    assert actual.dtype == torch.bfloat16
    torch.testing.assert_close(actual.double(), expected, atol=0.2, rtol=0.1)
