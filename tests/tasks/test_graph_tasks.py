"""Tasks on graphs: the public split, molecules as input, metrics, cross-validation and refusals."""

from dataclasses import replace

import pytest

import saccade
from saccade.core import NodeAxis, Split
from saccade.data.formats.graph_search import read_graphs
from saccade.errors import DataError, UsageError
from saccade.tasks._graphs import labelled
from tests.tasks import graph_data

TINY = [f"model.transformer.{setting}" for setting in ("dim=16", "depth=1", "heads=2", "hidden=16")]
LOOP = ["train.steps=4", "train.device=cpu"]


@pytest.fixture(scope="module")
def molecules(tmp_path_factory):
    """A run on molecules: the label is whether there is an oxygen."""
    folder = tmp_path_factory.mktemp("molecules")
    rows = [f"{'C' * (n % 9 + 1)}{'O' if n % 2 else 'N'}{'C' * (n // 9)},{n % 2}" for n in range(60)]
    (folder / "mols.csv").write_text("smiles,label\n" + "".join(f"{row}\n" for row in rows))
    overrides = [*TINY, "train.device=cpu", "train.steps=60", "batch_size=16", "metric=roc_auc"]
    run = saccade.train(folder / "mols.csv", name="mols", root=folder / "runs", overrides=overrides, progress=False)
    return folder, run


@pytest.fixture(scope="module")
def communities(tmp_path_factory):
    """A run on two communities whose nodes are divided by the file."""
    folder = tmp_path_factory.mktemp("communities")
    data = graph_data.write_communities(folder)
    lines = (data / "nodes.csv").read_text().splitlines()
    parts = ["split", *(("train", "train", "valid", "test")[number % 4] for number in range(len(lines) - 1))]
    (data / "nodes.csv").write_text("".join(f"{line},{part}\n" for line, part in zip(lines, parts, strict=True)))
    overrides = ["train.device=cpu", "train.steps=80", "model.gat.dropout=0.2", "model.gat.attention_dropout=0.2"]
    run = saccade.train(data, name="two", root=folder / "runs", overrides=overrides, progress=False)
    return data, run


def test_molecules_are_inputs_as_smiles(molecules):
    _, run = molecules
    assert run.metrics["roc_auc"] > 0.9, "whether there is an oxygen is easy"
    model = saccade.load(run)
    assert [field.name for field in model.inputs] == ["smiles"]
    answer = model("CCCO", attention=True)
    assert answer.text == "1" and model("CCCN").text == "0"
    (map, *_) = answer.attention.values()
    assert isinstance(map.keys, NodeAxis) and map.keys.nodes == ("C1", "C2", "C3", "O4")
    assert map.keys.edges == ((0, 1), (1, 2), (2, 3)) and len(map.keys.positions) == 4
    with pytest.raises(
        UsageError, match="smiles must be a molecule, but 'C1C' is not: character 2: ring 1 is not closed"
    ):
        model("C1C")


def test_a_batch_is_predicted_as_each_alone(molecules):
    model = saccade.load(molecules[1])
    texts = ["CCO", "C", "CCCCCN", "OCCO"]
    for text, together in zip(texts, model(texts), strict=True):
        assert dict(together.scores) == pytest.approx(dict(model(text).scores), abs=1e-5)


def test_other_data_are_scored_and_unknown_labels_refused(molecules):
    folder, run = molecules
    model = saccade.load(run)
    (folder / "other.csv").write_text("smiles,label\nCCO,1\nCCN,0\n")
    assert model.evaluate(folder / "other.csv")["graphs"] == 2
    (folder / "odd.csv").write_text("smiles,label\nCCO,1\nCCN,2\n")
    with pytest.raises(DataError, match=r"odd.csv:3: label '2', expected one of the training data: 0, 1"):
        model.evaluate(folder / "odd.csv")
    (folder / "same.csv").write_text("smiles,label\nCCO,1\nCO,1\n")
    with pytest.raises(DataError, match="needs graphs of every label, but none is '0'"):
        model.evaluate(folder / "same.csv")


def test_of_graphs_with_parts_the_validation_part_is_scored_where_there_is_no_test_part(molecules, monkeypatch):
    folder, run = molecules

    def read(*given):
        graphs = read_graphs(*given)
        parts = ("valid" if at < 2 else "train" for at in range(len(graphs)))
        divided = tuple(replace(graph, split=part) for graph, part in zip(graphs.graphs, parts, strict=True))
        return replace(graphs, graphs=divided)

    monkeypatch.setattr(labelled, "read_graphs", read)
    notes = saccade.load(run).task.load_data(folder / "mols.csv", eval_only=True)
    assert notes == ["graphs: 2", "evaluated: the validation part of the data, 2 of 60 graphs"]


def test_the_split_of_the_file_is_followed(communities):
    data, run = communities
    assert run.metrics["nodes"] == run.metrics["test_nodes"] == 15
    assert run.metrics["test_accuracy"] > 80
    model = saccade.load(run)
    scored = model.evaluate(data)
    assert scored["nodes"] == 15 and scored["accuracy"] == run.metrics["test_accuracy"]
    assert scored.notes[0] == "evaluated: the test part of the data, 15 of 60 nodes"
    task = model.task
    task.load_data(data)
    assert [len(task.splits[name]) for name in ("train", "valid", "test")] == [30, 15, 15]
    seen = {row for batch in task.source(Split.TRAIN, 1).at(0) for row in batch.rows}
    assert len(seen) == 30


def test_a_graph_without_a_column_of_the_training_data_is_refused(communities):
    model = saccade.load(communities[1])
    with pytest.raises(UsageError, match="nodes without 'hint', expected a number for each node"):
        model({"nodes": [{"id": 1, "word": "up"}], "edges": []})
    with pytest.raises(UsageError, match="'hint' is 'much', expected a number"):
        model({"nodes": [{"id": 1, "word": "up", "hint": "much"}], "edges": []})


def test_the_attention_of_a_node_is_on_its_neighbours(communities):
    model = saccade.load(communities[1])
    answer = model(graph_data.community_input(), attention=True)
    assert list(answer.attention) == ["encoder.0", "encoder.1"]
    for map in answer.attention.values():
        weights = map.weights
        assert weights.sum(-1).allclose(weights.new_ones(()).expand(weights.shape[:2]), atol=1e-5)
        for query in range(5):
            for key in range(5):
                assert bool((weights[:, query, key] > 0).all()) == (abs(query - key) <= 1)


def test_validation_files_and_folds_are_not_for_nodes(communities, tmp_path):
    data, _ = communities
    with pytest.raises(UsageError, match=r"data.folds must not be given for nodes of one graph, but is 5"):
        saccade.train(data, root=tmp_path, overrides=["data.folds=5", *LOOP], progress=False)


def test_each_fold_holds_out_other_graphs(tmp_path):
    data = graph_data.write_graphs(tmp_path)
    held_out = []
    for fold in range(2):
        overrides = [*TINY, *LOOP, "data.folds=2", f"data.fold={fold}"]
        run = saccade.train(data, root=tmp_path / "runs", overrides=overrides, progress=False)
        task = saccade.load(run).task
        task.load_data(data)
        held_out.append({encoded.graph.origin for encoded in task.splits[Split.VALID].graphs})
    assert not held_out[0] & held_out[1] and len(held_out[0] | held_out[1]) == 160


def test_words_are_no_numbers_and_numbers_no_labels(tmp_path):
    data = graph_data.write_graphs(tmp_path)
    with pytest.raises(DataError, match=r"graphs.jsonl:1: 'label' is '(ring|star)', expected a finite number"):
        saccade.train(data, task="graph_regression", root=tmp_path, overrides=LOOP, progress=False)
    rows = "".join(f"{'C' * (n + 1)},{n}.5\n" for n in range(50))
    (tmp_path / "many.csv").write_text("smiles,y\n" + rows)
    with pytest.raises(DataError, match=r"50 different labels of \d+ graphs, expected labels that repeat"):
        saccade.train(tmp_path / "many.csv", task="graph_classification", root=tmp_path, overrides=LOOP, progress=False)
