"""Tasks on graphs: the public split, molecules as input, metrics, cross-validation and refusals."""

import json
from dataclasses import replace

import pytest
import torch

import saccade
from saccade.cli import main
from saccade.core import NodeAxis, Split
from saccade.data.formats.graph_json import parse_graph
from saccade.data.formats.graph_search import read_graphs
from saccade.data.settings import GraphSettings
from saccade.errors import DataError, UsageError
from saccade.look.rollout import rollout_layers
from saccade.models.graph.predictor import GraphModelConfig
from saccade.tasks._graphs import attention as graph_attention
from saccade.tasks._graphs import labelled
from saccade.tasks.node_classification import NodeConfig
from saccade.tasks.node_classification import Task as NodeTask
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


def test_a_run_on_directed_edges_reads_its_inputs_so(communities, tmp_path):
    data, _ = communities
    nodes = [{"id": name, "hint": 0.5, "word": "up"} for name in "abc"]
    one_way = {"nodes": nodes, "links": [{"source": "a", "target": "b", "weight": 1}]}
    reads = {}
    for directed in (False, True):
        overrides = [*LOOP, f"data.directed={directed}".lower()]
        run = saccade.train(data, name=f"d{directed}", root=tmp_path, overrides=overrides, progress=False)
        model = saccade.load(run)
        weights = next(iter(model(one_way, attention=True).attention.values())).weights
        reads[directed] = [bool((weights[:, query, key] > 0).all()) for query, key in ((1, 0), (0, 1))]
        with pytest.raises(UsageError, match=r'but has no "edges" \(or "links"\); add the list'):
            model({"nodes": nodes})
    assert reads == {False: [True, True], True: [True, False]}, "b sees a; a sees b only where edges go both ways"


def test_a_gat_says_that_it_does_not_read_edge_columns(communities, tmp_path):
    data, _ = communities
    note = "edge column weight is not used by model.architecture=gat; model.architecture=transformer reads it"
    assert note in NodeTask.prepare(NodeConfig(), data, tmp_path)
    config = NodeConfig(model=GraphModelConfig(architecture="transformer"))
    assert not [line for line in NodeTask.prepare(config, data, tmp_path) if "not used" in line]


def chain(nodes):
    """Return a graph of nodes in a row, with the columns of the communities."""
    listed = [{"id": f"a{n}", "hint": n % 7 - 3.0, "word": "up" if n % 2 else "down"} for n in range(nodes)]
    edges = [{"source": f"a{n}", "target": f"a{n + 1}", "weight": 0.5} for n in range(nodes - 1)]
    return {"nodes": listed, "edges": edges}


def test_of_a_large_graph_the_attention_around_a_node_is_shown(communities, monkeypatch):
    model = saccade.load(communities[1])
    whole = model(chain(30), attention=True)
    assert not whole.notes and whole.attention["encoder.0"].shape == (8, 30, 30)
    monkeypatch.setattr(graph_attention, "LARGEST", 20)
    monkeypatch.setattr(graph_attention, "AROUND", 5)
    first = model(chain(30), attention=True)
    (note,) = first.notes
    assert note.startswith("attention of the 5 nodes around 'a0' of 30, computed in the whole graph; the option node")
    answer = model(chain(30), attention=True, node="a17")
    assert len(answer.output.tags) == 30 and answer.text == whole.text, "all nodes are predicted"
    for name, part in answer.attention.items():
        assert part.keys.nodes == ("a17", "a16", "a18", "a15", "a19") and len(part.keys.positions) == 5
        assert part.keys.tags == tuple(answer.output.tags[n] for n in (17, 16, 18, 15, 19))
        assert set(part.keys.edges) == {(1, 0), (0, 2), (3, 1), (2, 4)}
        shown = whole.attention[name].weights[:, [17, 16, 18, 15, 19]][..., [17, 16, 18, 15, 19]]
        torch.testing.assert_close(part.weights, shown)
        torch.testing.assert_close(part.rows(1, 4, step=2, head=1), shown[1:2, 1:4:2])
        assert part.rows(3, 3).shape == (8, 0, 5)
    rule = r"needs the attention of the whole graph, but that of the 5 nodes around 'a17' of 30 is shown; give a graph"
    with pytest.raises(UsageError, match=rule):
        model.explain(answer).ablate("encoder.0", head=0)
    with pytest.raises(
        UsageError,
        match=r"node must be one of the 30 nodes of the graph, but is 'a31'; choose one of them; did you mean",
    ):
        model(chain(30), node="a31")


def test_a_node_of_a_small_graph_can_be_chosen(communities):
    model = saccade.load(communities[1])
    answer = model(chain(4), attention=True, node="a3")
    assert answer.attention["encoder.1"].keys.nodes == ("a3", "a2", "a1", "a0") and len(answer.notes) == 1
    with pytest.raises(UsageError, match=r"but that of the 4 nodes around 'a3' of 4 is shown"):
        model.explain(answer).importance()
    assert rollout_layers(model(chain(4), attention=True)) and not rollout_layers(answer)


def test_look_at_a_large_graph_needs_little_memory(communities, tmp_path, capsys):
    nodes = 20_000  # of which all weights would take 13 GB in a layer
    (tmp_path / "chain.json").write_text(json.dumps(chain(nodes)))
    run, out = communities[1], tmp_path / "chain.svg"
    with pytest.raises(SystemExit) as end:
        main(["look", str(run.path), str(tmp_path / "chain.json"), "-o", "node=a777", "--out", str(out)])
    output = capsys.readouterr()
    assert end.value.code == 0, output.err
    assert "attention of the 200 nodes around 'a777' of 20,000" in output.err
    text = out.read_text()
    assert text.count('class="n"') == 200 and "a777 &lt;- a776" in text


def test_the_nodes_of_a_large_graph_have_no_places():
    graph = parse_graph({"nodes": list(range(2001)), "edges": []}, GraphSettings())
    axis = graph_attention.node_axis(graph)
    assert len(axis) == 2001 and not axis.positions and not axis.edges


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


def test_test_molecules_are_neither_trained_on_nor_selected_by(tmp_path):
    parts = ["train"] * 12 + ["valid"] * 4 + ["test"] * 6
    rows = [f"{'C' * (n % 5 + 1)}{'O' if n % 2 else 'N'},{n % 2},{part}" for n, part in enumerate(parts)]
    (tmp_path / "m.csv").write_text("smiles,label,split\n" + "".join(f"{row}\n" for row in rows))
    run = saccade.train(tmp_path / "m.csv", root=tmp_path / "runs", overrides=[*TINY, *LOOP], progress=False)
    assert run.metrics["graphs"] == 4
    model = saccade.load(run)
    assert model.evaluate(tmp_path / "m.csv")["graphs"] == 6
    model.task.load_data(tmp_path / "m.csv")
    assert {encoded.graph.split for encoded in model.task.splits[Split.TRAIN].graphs} == {"train"}


def test_words_are_no_numbers_and_numbers_no_labels(tmp_path):
    data = graph_data.write_graphs(tmp_path)
    with pytest.raises(DataError, match=r"graphs.jsonl:1: 'label' is '(ring|star)', expected a finite number"):
        saccade.train(data, task="graph_regression", root=tmp_path, overrides=LOOP, progress=False)
    rows = "".join(f"{'C' * (n + 1)},{n}.5\n" for n in range(50))
    (tmp_path / "many.csv").write_text("smiles,y\n" + rows)
    with pytest.raises(DataError, match=r"50 different labels of \d+ graphs, expected labels that repeat"):
        saccade.train(tmp_path / "many.csv", task="graph_classification", root=tmp_path, overrides=LOOP, progress=False)
