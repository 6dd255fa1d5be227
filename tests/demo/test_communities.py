"""The communities demo: reproducible files whose groups the neighbours tell better than a person's own features."""

import json

import numpy as np
import pytest

from saccade.core.fields import Graph as GraphField
from saccade.data.formats.graph_json import parse_graph
from saccade.data.formats.graph_search import guess_graph_task, read_graphs
from saccade.data.settings import GraphSettings
from saccade.demo import communities


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return communities.write_communities(tmp_path_factory.mktemp("communities"))


def test_the_same_seed_gives_the_same_files(files, tmp_path):
    again = communities.write_communities(tmp_path)
    for name in ("nodes.csv", "edges.csv"):
        assert (files.train / name).read_bytes() == (again.train / name).read_bytes()
    other = communities.write_communities(tmp_path / "other", seed=2)
    assert (files.train / "edges.csv").read_bytes() != (other.train / "edges.csv").read_bytes()


def test_the_data_are_an_ordinary_graph(files):
    assert guess_graph_task(files.train, GraphSettings()) == "node_classification"
    (graph,) = read_graphs(files.train, GraphSettings(), "node").graphs
    assert len(graph) == 400 and set(graph.splits) == {"train", "valid", "test"}
    assert graph.splits.count("train") == communities.LABELLED * len(communities.GROUPS)


def test_neighbours_say_more_than_features(files):
    (graph,) = read_graphs(files.train, GraphSettings(), "node").graphs
    names = [f"likes_{group}" for group in communities.GROUPS]
    features = np.array([[float(graph.node_columns[name][row]) for name in names] for row in range(len(graph))])
    labels = np.array([communities.GROUPS.index(label) for label in graph.node_labels])
    both = graph.both_ways()
    sums = features.copy()
    np.add.at(sums, both.target, features[both.source])
    own, around = (float((values.argmax(1) == labels).mean()) for values in (features, sums))
    assert own < 0.5 < around - 0.1


def test_examples_are_inputs_of_the_model(files):
    for example in files.examples:
        graph = parse_graph(GraphField("graph").read(example["graph"]), GraphSettings())
        assert 10 <= len(graph) <= 25 and len(graph.source) > 10
        assert "label" not in json.loads(example["graph"].read_text())["nodes"][0]
