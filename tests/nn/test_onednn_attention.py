"""Attention by oneDNN equals the fused kernel; it is used for long rows without a mask and without gradients alone."""

import pytest
import torch
import torch.nn.functional as F

from saccade.nn import onednn_attention as module
from saccade.nn.attention import Attention, Heads
from saccade.nn.linear import onednn_available
from saccade.nn.masks import Causal
from saccade.nn.onednn_attention import attends_by_onednn, onednn_attention
from saccade.nn.probe import watch

pytestmark = pytest.mark.skipif(not onednn_available(), reason="this build of torch has no oneDNN")


@pytest.mark.parametrize(("queries", "keys", "kv"), [(513, 700, 4), (3, 5, 4), (256, 257, 2), (300, 1, 1)])
def test_it_equals_the_fused_kernel(queries, keys, kv):
    draw = torch.Generator().manual_seed(1)
    q = torch.randn(2, queries, 4, 16, generator=draw).transpose(1, 2)
    k, v = (torch.randn(2, keys, kv, 16, generator=draw).transpose(1, 2) for _ in range(2))
    expected = F.scaled_dot_product_attention(q, k, v, scale=0.3, enable_gqa=True)
    torch.testing.assert_close(onednn_attention(q, k, v, 0.3), expected, atol=1e-5, rtol=1e-5)


def test_it_is_used_for_long_rows_without_gradients_alone(monkeypatch):
    monkeypatch.setattr(module, "onednn_pays", lambda: True)
    q = torch.randn(1, 2, 512, 8)
    with torch.no_grad():
        assert attends_by_onednn(q, q)
        assert not attends_by_onednn(q[:, :, :511], q) and not attends_by_onednn(q, q[:, :, :511])
        assert not attends_by_onednn(q.double(), q.double())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert not attends_by_onednn(q, q)
    assert not attends_by_onednn(q, q)


def test_a_layer_gives_the_same_with_and_without_it(monkeypatch):
    torch.manual_seed(1)
    layer, x = Attention(32, Heads(4, 2)).eval(), torch.randn(2, 520, 32)
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return onednn_attention(*arguments)

    monkeypatch.setattr("saccade.nn.attention.onednn_attention", counted)
    with torch.no_grad():
        monkeypatch.setattr(module, "onednn_pays", lambda: False)
        expected, causal = layer(x), layer(x, mask=Causal())
        assert not calls
        monkeypatch.setattr(module, "onednn_pays", lambda: True)
        with watch(layer) as maps:
            torch.testing.assert_close(layer(x), expected, atol=1e-5, rtol=1e-4)
        assert len(calls) == 1
        torch.testing.assert_close(layer(x, mask=Causal()), causal)
        assert len(calls) == 1
    weights = maps[""].rows(0, 3)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 3))
