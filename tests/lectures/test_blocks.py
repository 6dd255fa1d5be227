"""Lecture rows R40, R41, R43 and R45: encoder and decoder blocks, who talks to whom (with trap T2)."""

import pytest
import torch
from torch import nn

from saccade.nn.attention import Attention
from saccade.nn.layers import FeedForward, Residual
from saccade.nn.masks import Causal, Full, Graph
from saccade.nn.probe import watch
from saccade.nn.transformer import Layer, Transformer, TransformerConfig

PUBLISHED = {"activation": "relu", "norm": "layer", "norm_first": False, "position": "sinusoidal"}
PUBLISHED |= {"score": "scaled_dot", "bias": True}
BASE = TransformerConfig(dim=512, depth=6, heads=8, hidden=2048, **PUBLISHED)


def shapes_along(stack, *inputs, mask):
    """The shape that leaves each part of each block, in the order of the run."""
    seen = []
    for name, module in stack.named_modules():
        if isinstance(module, Attention | FeedForward | Residual):
            module.register_forward_hook(lambda _, args, y, name=name: seen.append((name, tuple(y.shape))))
    with torch.no_grad():
        stack(*inputs, mask=mask)
    return seen


def blocks(stack):
    return [module for module in stack.modules() if isinstance(module, Layer)]


def test_r40_six_encoder_blocks_of_self_attention_and_feed_forward_each_with_residual_and_norm():
    encoder = Transformer(BASE)
    assert len(blocks(encoder)) == 6
    order = ["self", "self_residual", "feed", "feed_residual"]
    seen = shapes_along(encoder, torch.randn(2, 5, 512), mask=None)
    assert seen == [(f"{block}.{part}", (2, 5, 512)) for block in range(6) for part in order]
    assert all(
        isinstance(residual.norm, nn.LayerNorm) for residual in encoder.modules() if isinstance(residual, Residual)
    )


def test_r41_six_decoder_blocks_of_three_sub_blocks():
    decoder = Transformer(BASE, memory_dim=512)
    assert len(blocks(decoder)) == 6
    order = ["self", "self_residual", "cross", "cross_residual", "feed", "feed_residual"]
    seen = shapes_along(decoder, torch.randn(2, 4, 512), torch.randn(2, 7, 512), mask=Causal())
    assert seen == [(f"{block}.{part}", (2, 4, 512)) for block in range(6) for part in order]
    assert len(decoder.get_submodule("0").self_residual.norm.weight) == 512


def test_r41_only_the_self_attention_of_a_decoder_is_masked():
    decoder = Transformer(BASE, memory_dim=512)
    with torch.no_grad(), watch(decoder) as maps:
        decoder(torch.randn(1, 4, 512), torch.randn(1, 7, 512), mask=Causal())
    for name, attention_map in maps.items():
        weights = attention_map.rows()[0]  # (H, T, T or S)
        if name.endswith("self"):
            assert (weights.triu(1) == 0).all()
        else:
            assert weights.shape == (8, 4, 7)
            assert (weights > 0).all()


@pytest.mark.parametrize("norm_first", [True, False], ids=["pre", "post"])
def test_r43_attention_is_the_only_interaction_between_vectors(norm_first):
    """With a mask in which each token sees itself alone, no vector depends on another; without it, all do."""
    shape = PUBLISHED | {"norm_first": norm_first}
    stack = Transformer(TransformerConfig(dim=16, depth=3, heads=2, hidden=32, **shape)).double()
    x = torch.randn(1, 5, 16).double().requires_grad_()
    alone, together = Graph(torch.eye(5, dtype=torch.bool)), Full()
    for mask, connected in ((alone, torch.eye(5, dtype=torch.bool)), (together, torch.ones(5, 5, dtype=torch.bool))):
        y = stack(x, mask=mask)
        slopes = [torch.autograd.grad(y[0, i].square().sum(), x, retain_graph=True)[0][0] for i in range(5)]
        assert torch.equal(torch.stack(slopes).abs().sum(-1) > 0, connected)
    changed = x.detach().clone()
    changed[:, 3] += 1
    moved = (stack(changed, mask=alone) - stack(x, mask=alone)).abs().sum(-1)[0] > 0
    assert moved.tolist() == [False, False, False, True, False]


def test_r45_and_t2_the_published_transformer_has_8_heads_of_64_and_cannot_have_6():
    """One slide says "12 blocks, 512 wide, 6 heads": 512 / 6 is no whole number. It is 6 + 6 blocks and 8 heads."""
    assert 512 % 6 == 2
    with pytest.raises(ValueError, match="dim must be a multiple of heads, but 512 is not a multiple of 6"):
        Attention(512, 6)
    encoder, decoder = Transformer(BASE), Transformer(BASE, memory_dim=512)
    assert len(blocks(encoder)) + len(blocks(decoder)) == 12
    attentions = [module for stack in (encoder, decoder) for module in stack.modules() if isinstance(module, Attention)]
    assert len(attentions) == 18  # one a block, and one more in each block of the decoder
    assert {(attention.heads, attention.head_dim) for attention in attentions} == {(8, 64)}
