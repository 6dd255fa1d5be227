"""Networks over graphs: batches, the order of nodes, positions, edge features and dropout."""

import dataclasses

import numpy as np
import pytest
import torch

from saccade.data.graphs.graph import Graph
from saccade.data.graphs.schema import Schema
from saccade.data.graphs.structure import laplacian, random_walk
from saccade.errors import DataError
from saccade.models.graph.gat import GATConfig
from saccade.models.graph.predictor import GraphModelConfig, GraphPredictor
from saccade.models.graph.transformer import GraphTransformerConfig, SignInvariant
from saccade.tasks._graphs.examples import edge_width, encode_graph, join_graphs

NODES = 9


def random_graph(seed=0, nodes=NODES):
    draw = np.random.default_rng(seed)
    pairs = np.array([(a, b) for a in range(nodes) for b in range(a) if draw.random() < 0.4] + [(1, 0)])
    pairs = np.unique(pairs, axis=0)
    return Graph(
        tuple(f"n{node}" for node in range(nodes)),
        pairs[:, 0].copy(),
        pairs[:, 1].copy(),
        {"size": draw.normal(size=nodes).tolist(), "kind": [("x", "y", "z")[k] for k in draw.integers(0, 3, nodes)]},
        {"bond": [("single", "double")[k] for k in draw.integers(0, 2, len(pairs))]},
    )


def shuffled(graph, seed=5):
    """Return the same graph with its nodes and edges in another order, and that order."""
    order = np.random.default_rng(seed).permutation(len(graph))
    turned = graph.subgraph(order.tolist())
    flipped = np.arange(len(turned.source))[::-1]
    columns = {name: [values[at] for at in flipped] for name, values in turned.edge_columns.items()}
    return dataclasses.replace(
        turned, source=turned.target[flipped], target=turned.source[flipped], edge_columns=columns
    ), order


CONFIGS = {
    "gat": GraphModelConfig("gat", GATConfig(heads=2, width=4, output_heads=2)),
    "dot": GraphModelConfig("gat", GATConfig(heads=2, width=4, score="dot")),
    **{
        position: GraphModelConfig(
            "transformer",
            transformer=GraphTransformerConfig(
                dim=16, depth=2, heads=2, hidden=16, position=position, positions=3, norm="layer"
            ),
        )
        for position in ("none", "random_walk", "laplacian")
    },
}


def make(config, graph, pooled, outputs=4):
    schema, _ = Schema.of([graph])
    torch.manual_seed(0)
    model = GraphPredictor(config, schema.node_width, edge_width(schema), outputs, pooled=pooled)
    with torch.no_grad():
        for value in model.parameters():
            value.normal_(std=0.4)
    return model.double().eval(), schema


def run(model, schema, *graphs):
    encoded = [encode_graph(graph, schema, model.config.positions) for graph in graphs]
    with torch.no_grad():
        return model(join_graphs(encoded))


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("name", CONFIGS)
def test_the_order_of_nodes_and_edges_does_not_matter(name, pooled):
    graph = random_graph()
    model, schema = make(CONFIGS[name], graph, pooled)
    other, order = shuffled(graph)
    first, second = run(model, schema, graph), run(model, schema, other)
    torch.testing.assert_close(second, first if pooled else first[order.tolist()], atol=2e-4, rtol=2e-4)
    assert float(first.std()) > 0.01


@pytest.mark.parametrize("name", CONFIGS)
def test_graphs_of_a_batch_are_computed_as_each_alone(name):
    graphs = [random_graph(seed, nodes) for seed, nodes in ((0, 9), (1, 4), (2, 12))]
    model, schema = make(CONFIGS[name], graphs[0], True)
    alone = torch.cat([run(model, schema, graph) for graph in graphs])
    torch.testing.assert_close(run(model, schema, *graphs), alone)


@pytest.mark.parametrize("name", ["none", "gat"])
def test_edge_features_change_the_graph_transformer_alone(name):
    graph = random_graph()
    model, schema = make(CONFIGS[name], graph, True)
    swapped = {"bond": ["double" if bond == "single" else "single" for bond in graph.edge_columns["bond"]]}
    changed = dataclasses.replace(graph, edge_columns=swapped)
    same = torch.allclose(run(model, schema, graph), run(model, schema, changed))
    assert same == (name == "gat"), "as published, a GAT reads no edge features"


def test_positions_tell_apart_what_attention_and_sums_cannot():
    """Two triangles and a ring of six: the same degrees everywhere, but another structure."""
    plain = {"size": [1.0, 2.0] * 3}
    ends = [np.array(side) for side in ([0, 1, 2, 3, 4, 5], [1, 2, 0, 4, 5, 3])]
    ring = [np.array(side) for side in ([0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0])]
    names = tuple("abcdef")
    constant = {"size": [1.0] * 6}
    for position, differ in (("none", False), ("random_walk", True)):
        schema, _ = Schema.of([Graph(names, *ring, plain)])
        model, _ = make(CONFIGS[position], Graph(names, *ring, plain), True)
        first, second = (run(model, schema, Graph(names, *pairs, constant)) for pairs in (ends, ring))
        assert torch.allclose(first, second) != differ


def test_random_walks_return_as_computed_by_hand():
    both = (np.array([0, 1, 1, 2]), np.array([1, 0, 2, 1]))  # a path of three nodes
    np.testing.assert_allclose(random_walk(both, 3, 4), [[0, 0.5, 0, 0.5], [0, 1, 0, 1], [0, 0.5, 0, 0.5]])


def test_eigenvectors_are_those_of_the_normalized_laplacian():
    graph = random_graph().both_ways()
    vectors = laplacian((graph.source, graph.target), NODES, 3)
    adjacency = np.zeros((NODES, NODES))
    adjacency[graph.target, graph.source] = 1
    scale = 1 / np.sqrt(np.maximum(adjacency.sum(1), 1))
    matrix = np.eye(NODES) - adjacency * scale[:, None] * scale
    values = (vectors * (matrix @ vectors)).sum(0) / (vectors**2).sum(0)
    np.testing.assert_allclose(matrix @ vectors, vectors * values, atol=1e-4)
    assert (values > 1e-6).all() and (np.diff(values) > -1e-6).all()
    assert laplacian((np.array([0, 1]), np.array([1, 0])), 2, 3).shape == (2, 3), "what a small graph lacks is 0"


def ring_and_star(nodes=8):
    """Graphs whose Laplacian has eigenvalues that are there several times."""
    around = np.arange(nodes)
    names = tuple(f"n{node}" for node in range(nodes))
    columns = {"size": np.random.default_rng(0).normal(size=nodes).tolist()}
    ring = Graph(names, around, (around + 1) % nodes, columns, {"bond": ["single", "double"] * (nodes // 2)})
    star = Graph(names, np.zeros(nodes - 1, np.int64), around[1:], columns, {"bond": ["single", *["double"] * 6]})
    return {"ring": ring, "star": star}


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("shape", ["ring", "star"])
def test_the_order_of_nodes_does_not_matter_where_eigenvalues_are_equal(shape, pooled):
    graph = ring_and_star()[shape]
    model, schema = make(CONFIGS["laplacian"], graph, pooled)
    for seed in range(3):
        other, order = shuffled(graph, seed)
        first, second = run(model, schema, graph), run(model, schema, other)
        torch.testing.assert_close(second, first if pooled else first[order.tolist()], atol=2e-4, rtol=2e-4)


def test_nodes_share_what_the_eigenvectors_of_one_eigenvalue_span():
    star = ring_and_star()["star"].both_ways()
    vectors = np.abs(laplacian((star.source, star.target), 8, 7))
    assert not vectors[0, :6].any(), "the six eigenvectors of eigenvalue 1 are 0 in the middle of a star"
    np.testing.assert_allclose(vectors[1:, :6], np.sqrt(8 * 6 / 7 / 6), atol=1e-5)
    np.testing.assert_allclose(np.square(vectors).sum(0), 8, atol=1e-4)
    np.testing.assert_allclose(vectors[0, 6], np.sqrt(8 / 2), atol=1e-5)


def test_positions_of_a_large_graph_are_refused_with_both_numbers_and_the_setting():
    ends = (np.array([0]), np.array([1]))
    message = r"cora.csv: 4,001 nodes, expected at most 4,000 for positions of the nodes; "
    with pytest.raises(DataError, match=message + r"train without them: model.transformer.position=none"):
        random_walk(ends, 4001, 2, "cora.csv")


def test_the_sign_of_eigenvectors_does_not_matter():
    torch.manual_seed(0)
    layer, v = SignInvariant(3, 8), torch.randn(5, 3)
    signs = torch.tensor([1.0, -1.0, -1.0])
    torch.testing.assert_close(layer(v * signs), layer(v))
    assert not torch.allclose(layer(v), layer(v.flip(0)))


def test_dropout_and_l2_are_used_in_training():
    graph = random_graph()
    schema, _ = Schema.of([graph])
    inputs = join_graphs([encode_graph(graph, schema, ("none", 0))])
    targets = torch.zeros(NODES, dtype=torch.long)
    model = GraphPredictor(GraphModelConfig("gat"), schema.node_width, 3, 4, pooled=False, l2=0.5)
    assert not torch.equal(model(inputs), model(inputs))
    model.eval()
    assert torch.equal(model(inputs), model(inputs))
    with_penalty = model(inputs, targets)
    model.l2 = 0.0
    penalty = 0.25 * sum(float(weight.detach().square().sum()) for weight in model.parameters())
    assert float(with_penalty.detach()) == pytest.approx(float(model(inputs, targets).detach()) + penalty, rel=1e-4)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (lambda: GATConfig(heads=0), "heads must be at least 1, but is 0"),
        (lambda: GATConfig(dropout=1.0), "dropout must be at least 0 and below 1, but is 1.0"),
        (lambda: GraphTransformerConfig(dim=10, heads=4), "dim must be a multiple of heads, but 10 is not"),
        (lambda: GraphTransformerConfig(positions=0), "positions must be at least 1, but is 0"),
    ],
)
def test_wrong_shapes_are_refused(config, message):
    with pytest.raises(ValueError, match=message):
        config()
