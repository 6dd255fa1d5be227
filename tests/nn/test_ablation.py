"""Ablated heads and connections: exactly the others remain, and only while the block runs."""

import math

import pytest
import torch

from saccade.models.text.gpt import GPT, GPTConfig
from saccade.nn.ablation import Ablation, ablated, patch_embeddings, patched_embeddings
from saccade.nn.attention import Attention, Heads
from saccade.nn.masks import Causal

DIM, HEADS, TOKENS = 12, 3, 5


@pytest.fixture
def attention():
    return Attention(DIM, HEADS).eval()


@pytest.fixture
def x():
    return torch.randn(2, TOKENS, DIM)


def by_hand(attention, x, masked=(), ablated_heads=()):
    """Attention in plain steps without some connections (head, query, key) and heads."""
    q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in attention.qkv(x).chunk(3, dim=-1))
    scores = q @ k.transpose(-2, -1) / math.sqrt(DIM // HEADS)
    scores = scores.masked_fill(torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1), -math.inf)
    for head, query, key in masked:
        scores[:, head, query, key] = -math.inf
    y = scores.softmax(-1) @ v
    for head in ablated_heads:
        y[:, head] = 0
    return attention.out(y.transpose(1, 2).flatten(2))


def test_an_ablated_head_adds_nothing(attention, x):
    with ablated(attention, [Ablation("", 1)]):
        found = attention(x, mask=Causal())
    torch.testing.assert_close(found, by_hand(attention, x, ablated_heads=[1]))
    torch.testing.assert_close(attention(x, mask=Causal()), by_hand(attention, x))


def test_the_weight_of_a_masked_connection_goes_to_the_others(attention, x):
    connections = [(0, 3, 1), (0, 3, 2), (2, 4, 4)]
    with ablated(attention, [Ablation("", *connection) for connection in connections]):
        found = attention(x, mask=Causal())
    torch.testing.assert_close(found, by_hand(attention, x, masked=connections))


def test_a_query_without_keys_gets_zeros(attention, x):
    with ablated(attention, [Ablation("", 1, 0, 0)]):
        found = attention(x, mask=Causal())
    assert bool(found.isfinite().all())
    rest = by_hand(attention, x)
    torch.testing.assert_close(found[:, 1:], rest[:, 1:])
    assert not torch.allclose(found[:, 0], rest[:, 0])


def test_grouped_heads_are_ablated_one_by_one(x):
    grouped = Attention(DIM, Heads(6, 2)).eval()
    with ablated(grouped, [Ablation("", 4, 2, 0)]):
        found = grouped(x)
    with ablated(grouped, [Ablation("", 4)]):
        ablated_output = grouped(x)
    whole = grouped(x)
    assert [int(row) for row in (found - whole).abs().amax((0, 2)).nonzero().flatten()] == [2]
    assert bool(((ablated_output - whole).abs().amax((0, 2)) > 0).all())


def test_the_ablations_of_two_networks_hold_together(attention, x):
    other = Attention(DIM, HEADS).eval()
    with ablated(attention, [Ablation("", 1)]), ablated(other, [Ablation("", 0)]):
        outputs = [layer(x, mask=Causal()) for layer in (attention, other)]
    torch.testing.assert_close(outputs[0], by_hand(attention, x, ablated_heads=[1]))
    torch.testing.assert_close(outputs[1], by_hand(other, x, ablated_heads=[0]))
    torch.testing.assert_close(attention(x, mask=Causal()), by_hand(attention, x))


def test_an_unknown_layer_or_head_is_refused(attention):
    with pytest.raises(ValueError, match=r"no attention 'decoder.9.self' that can be ablated; there are: "):
        ablated(attention, [Ablation("decoder.9.self", 0)])
    with pytest.raises(ValueError, match=r"head must be 0 to 2 in '', but is 3"):
        ablated(attention, [Ablation("", 3)])


def test_embeddings_are_patched_only_inside_the_block():
    model = GPT(GPTConfig(dim=8, depth=1, heads=2, hidden=8, init="gpt2"), 10).eval()
    ids = torch.tensor([[1, 2, 3]])
    seen = []

    def change(vectors):
        seen.append(vectors.shape)
        return torch.zeros_like(vectors)

    with torch.no_grad():
        before = model(ids)
        with patched_embeddings(change):
            nothing = model(ids)
        assert seen == [(1, 3, 8)]
        assert torch.equal(model(ids), before)
    assert not torch.allclose(nothing, before)
    assert patch_embeddings(before) is before
