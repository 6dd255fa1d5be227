"""Attention along edges: equal to the dense form with the same parameters, in values, gradients and maps."""

import pytest
import torch
from torch import nn

from saccade.nn.ablation import Ablation, ablated
from saccade.nn.attention import Additive, Attention, Bilinear, Dot, Heads, LeakyAdditive
from saccade.nn.edges import Edges, edge_dot, edge_softmax, edge_sum
from saccade.nn.masks import Graph, KernelMask, positions
from saccade.nn.probe import watch
from saccade.nn.shared_attention import SharedAttention

NODES, DIM, HEADS = 9, 12, 3
SCORES = {
    "dot": Dot,
    "additive": lambda: Additive(DIM // HEADS),
    "leaky_additive": lambda: LeakyAdditive(HEADS, DIM // HEADS),
    "bilinear": lambda: Bilinear(DIM // HEADS),
}


def graph(nodes=NODES, fraction=0.4, seed=0):
    """Return random edges and their adjacency; node 0 sees nothing."""
    adjacency = torch.rand(nodes, nodes, generator=torch.Generator().manual_seed(seed)) < fraction
    adjacency[0] = False
    target, source = adjacency.nonzero(as_tuple=True)
    shuffled = torch.randperm(len(source), generator=torch.Generator().manual_seed(1))
    edges, _ = Edges.of(source[shuffled], target[shuffled], nodes)
    return edges, adjacency


def dense(edges):
    """Return the mask of the same edges as a tensor, for the dense kernel."""
    return KernelMask(edges, positions(0, edges.nodes, torch.device("cpu")), torch.arange(edges.nodes))


def layers(score):
    torch.manual_seed(0)
    return {
        "own": Attention(DIM, HEADS, score=SCORES[score]()).double(),
        "grouped": Attention(DIM, Heads(HEADS, kv=1), score=SCORES[score]()).double(),
        "shared": SharedAttention(DIM, Heads(HEADS, width=DIM // HEADS), score=SCORES[score]()).double(),
    }


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("kind", ["own", "shared"])
def test_edges_equal_the_dense_form_in_values_and_gradients(kind, score, biased):
    layer = layers(score)[kind]
    edges, adjacency = graph()
    bias = torch.randn(len(edges.source), HEADS, dtype=torch.float64, requires_grad=True)
    edges = edges.with_bias(bias) if biased else edges
    x = torch.randn(1, NODES, DIM, dtype=torch.float64, requires_grad=True)
    inputs = [x, *layer.parameters(), *([bias] if biased else [])]
    results = []
    for mask in (edges, dense(edges)):
        y = layer(x, mask=mask)
        results.append((y, *torch.autograd.grad(y.sin().sum(), inputs)))
    for along, full in zip(*results, strict=True):
        torch.testing.assert_close(along, full)
    if not biased:
        torch.testing.assert_close(results[0][0], layer(x, mask=Graph(adjacency)))
    assert float(results[0][0][0, 1:].detach().std()) > 0.01


def test_grouped_query_heads_along_edges():
    layer, (edges, adjacency) = layers("dot")["grouped"], graph()
    x = torch.randn(1, NODES, DIM, dtype=torch.float64)
    torch.testing.assert_close(layer(x, mask=edges), layer(x, mask=Graph(adjacency)))


def test_a_node_without_edges_gets_zeros_and_no_gradient():
    layer, (edges, _) = Attention(DIM, HEADS, bias=False), graph()
    x = torch.randn(1, NODES, DIM, requires_grad=True)
    y = layer(x, mask=edges)
    assert torch.equal(y[0, 0], torch.zeros(DIM))
    (grad,) = torch.autograd.grad(y[0, 0].sum(), x)
    assert not grad.any()


def test_the_products_are_differentiable_twice():
    edges, _ = graph(5)
    q, k, v = (torch.randn(1, 2, 5, 3, dtype=torch.float64, requires_grad=True) for _ in range(3))

    def run(q, k, v):
        return edge_sum(edge_softmax(edge_dot(q, k, edges), edges), v, edges)

    assert torch.autograd.gradcheck(run, (q, k, v)) and torch.autograd.gradgradcheck(run, (q, k, v))


def test_torch_operations_and_sparse_kernels_agree(monkeypatch):
    layer, (edges, _) = layers("dot")["own"], graph()
    x = torch.randn(1, NODES, DIM, dtype=torch.float64, requires_grad=True)
    fast = layer(x, mask=edges)
    (grad,) = torch.autograd.grad(fast.sin().sum(), x)
    monkeypatch.setattr("saccade.nn.edges._sparse", lambda x: False)
    plain = layer(x, mask=edges)
    torch.testing.assert_close(plain, fast)
    torch.testing.assert_close(torch.autograd.grad(plain.sin().sum(), x)[0], grad)


@pytest.mark.parametrize("kind", ["own", "shared"])
def test_neither_the_order_of_nodes_nor_that_of_edges_matters(kind):
    layer, (edges, adjacency) = layers("dot")[kind], graph()
    x = torch.randn(1, NODES, DIM, dtype=torch.float64)
    order = torch.randperm(NODES)
    target, source = adjacency[order][:, order].nonzero(as_tuple=True)
    flipped, _ = Edges.of(source.flip(0), target.flip(0), NODES)
    torch.testing.assert_close(layer(x[:, order], mask=flipped), layer(x, mask=edges)[:, order])


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("kind", ["own", "shared"])
@pytest.mark.parametrize("score", SCORES)
def test_the_probe_reads_the_weights_that_were_used(score, kind, biased):
    layer, (edges, adjacency) = layers(score)[kind], graph()
    edges = edges.with_bias(torch.randn(len(edges.source), HEADS).double()) if biased else edges
    x = torch.randn(1, NODES, DIM, dtype=torch.float64)
    with torch.no_grad(), watch(nn.ModuleDict({"layer": layer})) as maps:
        y = layer(x, mask=edges)
    weights = maps["layer"].rows()
    assert weights.shape == (1, HEADS, NODES, NODES)
    assert not weights[0, :, ~adjacency].any()
    torch.testing.assert_close(weights.sum(-1)[0, 0], adjacency.any(1).double())
    _, _, v = layer._project_self(x, 0)
    torch.testing.assert_close(layer.out((weights @ v).transpose(1, 2).flatten(2)), y)
    torch.testing.assert_close(maps["layer"].rows(2, 8, step=3, head=1), weights[:, 1:2, 2:8:3])
    with torch.no_grad(), watch(nn.ModuleDict({"layer": layer}), heads=[2]) as one:
        layer(x, mask=edges)
    torch.testing.assert_close(one["layer"].rows(), weights[:, 2:])


@pytest.mark.parametrize("biased", [False, True])
def test_ablating_an_edge_removes_it(biased):
    layer, (edges, _) = layers("dot")["own"], graph()
    bias = torch.randn(len(edges.source), HEADS).double()
    edges = edges.with_bias(bias) if biased else edges
    x = torch.randn(1, NODES, DIM, dtype=torch.float64)
    query = int(edges.target[-1])
    model = nn.ModuleDict({"layer": layer})
    removed = [Ablation("layer", head, query, int(edges.source[-1])) for head in range(HEADS)]
    with torch.no_grad(), ablated(model, removed):
        without = layer(x, mask=edges)
    fewer, _ = Edges.of(edges.source[:-1], edges.target[:-1], NODES)
    fewer = fewer.with_bias(bias[:-1]) if biased else fewer
    torch.testing.assert_close(without, layer(x, mask=fewer))


def test_dropout_of_the_weights_is_applied_in_training_only():
    layer, (edges, _) = Attention(DIM, HEADS, dropout=0.5), graph()
    x = torch.randn(1, NODES, DIM)
    trained, again = layer(x, mask=edges), layer(x, mask=edges)
    assert not torch.equal(trained, again)
    layer.eval()
    assert torch.equal(layer(x, mask=edges), layer(x, mask=edges))


def test_results_do_not_depend_on_the_run():
    edges, _ = graph(200, 0.2)
    layer = Attention(DIM, HEADS)
    x = torch.randn(1, 200, DIM, requires_grad=True)
    grads = [torch.autograd.grad(layer(x, mask=edges).sin().sum(), [x, *layer.parameters()]) for _ in range(5)]
    assert all(torch.equal(a, b) for again in grads[1:] for a, b in zip(grads[0], again, strict=True))


def test_rows_of_a_batch_and_other_sizes_are_refused():
    layer, (edges, _) = Attention(DIM, HEADS), graph()
    with pytest.raises(ValueError, match="must be one row of unconnected graphs, but are 2 rows"):
        layer(torch.randn(2, NODES, DIM), mask=edges)
    with pytest.raises(ValueError, match="a graph of 9 nodes must mask as many queries and keys, but masks 4 queries"):
        layer(torch.randn(1, 4, DIM), mask=edges)


def test_unconnected_graphs_are_computed_as_each_alone():
    (first, _), (second, _) = graph(4, seed=3), graph(5, seed=4)
    both, _ = Edges.of(torch.cat((first.source, second.source + 4)), torch.cat((first.target, second.target + 4)), 9)
    layer, x = layers("dot")["own"], torch.randn(1, 9, DIM, dtype=torch.float64)
    alone = torch.cat((layer(x[:, :4], mask=first), layer(x[:, 4:], mask=second)), dim=1)
    torch.testing.assert_close(layer(x, mask=both), alone)


def test_weights_and_values_of_different_types_are_summed_as_under_autocast():
    edges, _ = graph()
    weights, v = torch.rand(1, HEADS, len(edges.source)), torch.randn(1, HEADS, NODES, 4)
    summed = edge_sum(weights, v.bfloat16(), edges)
    assert summed.dtype == torch.bfloat16
    torch.testing.assert_close(summed.float(), edge_sum(weights, v, edges), atol=0.05, rtol=0.02)
    layer = SharedAttention(DIM, Heads(HEADS, width=4)).eval()
    x = torch.randn(1, NODES, DIM)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = layer(x, mask=edges)
    torch.testing.assert_close(cast.float(), layer(x, mask=edges), atol=0.1, rtol=0.05)
