"""Attention along edges against torch-geometric's GATConv and TransformerConv with the same weights."""

import pytest
import torch

from saccade.nn.attention import Attention, Heads
from saccade.nn.edges import Edges
from saccade.nn.shared_attention import SharedAttention

conv = pytest.importorskip("torch_geometric.nn", reason="pip install torch-geometric")
NODES, DIM, HEADS, WIDTH = 20, 12, 4, 5


def random_graph():
    generator = torch.Generator().manual_seed(0)
    target, source = (torch.rand(NODES, NODES, generator=generator) < 0.3).nonzero(as_tuple=True)
    edges, _ = Edges.of(source, target, NODES)
    return torch.stack((source, target)), edges, torch.randn(NODES, DIM, generator=generator)


def test_shared_attention_equals_gat_conv():
    pairs, edges, x = random_graph()
    reference = conv.GATConv(DIM, WIDTH, heads=HEADS, add_self_loops=False).eval()
    layer = SharedAttention(DIM, Heads(HEADS, width=WIDTH)).eval()
    with torch.no_grad():
        reference.bias.normal_()
        layer.qkv.weight.copy_(reference.lin.weight)
        layer.score.q_weight.copy_(reference.att_dst[0])
        layer.score.k_weight.copy_(reference.att_src[0])
        layer.out.bias.copy_(reference.bias)
        torch.testing.assert_close(layer(x[None], mask=edges)[0], reference(x, pairs))


def test_attention_equals_transformer_conv():
    pairs, edges, x = random_graph()
    reference = conv.TransformerConv(DIM, WIDTH, heads=HEADS, root_weight=False).eval()
    layer = Attention(DIM, Heads(HEADS, width=WIDTH)).eval()
    parts = [reference.lin_query, reference.lin_key, reference.lin_value]
    layer.out = torch.nn.Identity()
    with torch.no_grad():
        layer.qkv.weight.copy_(torch.cat([part.weight for part in parts]))
        layer.qkv.bias.copy_(torch.cat([part.bias for part in parts]))
        torch.testing.assert_close(layer(x[None], mask=edges)[0], reference(x, pairs))
