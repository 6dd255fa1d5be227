"""Graph formats: what is read of each, which task it suggests, and how broken files are refused."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from saccade.cli import main
from saccade.data.formats.graph_json import parse_graph
from saccade.data.formats.graph_search import find_graphs, guess_graph_task, read_graphs
from saccade.data.graphs.splitting import split_graphs
from saccade.data.settings import GraphSettings
from saccade.errors import DataError, UsageError
from saccade.tasks import guess_task

DATA = Path(os.environ.get("SACCADE_DATA", "/nowhere")) / "graph"
NODES = "id,label,split,words,age\na,x,train,up down,3\nb,y,valid,up,4.5\nc,x,test,down,5\n"
EDGES = "source,target,weight\na,b,0.5\nb,c,1\nc,b,1\n"
LINK = {"nodes": [{"id": 1, "label": "x"}, {"id": 2, "label": "y"}], "edges": [{"source": 1, "target": 2}]}
TU = "2\n2 1\n0 1 1\n3 1 0\n3 -1\n0 1 1\n1 2 0 2\n0 1 1\n"


TU_FOLDER = {
    "S_A.txt": "1, 2\n2, 1\n",
    "S_graph_indicator.txt": "1\n1\n2\n",
    "S_graph_labels.txt": "0\n1\n",
}


def write(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder / next(iter(files)) if len(files) == 1 else folder


def test_tables_of_nodes_and_edges(tmp_path):
    data = write(tmp_path, {"nodes.csv": NODES, "edges.csv": EDGES})
    assert guess_task(data) == "node_classification"
    graphs = read_graphs(data, GraphSettings(), "node")
    (graph,) = graphs.graphs
    assert graph.nodes == ("a", "b", "c") and graph.node_labels == ("x", "y", "x")
    assert graph.splits == ("train", "valid", "test") and list(graph.node_columns) == ["words", "age"]
    assert graph.source.tolist() == [0, 1] and graph.edge_columns == {"weight": ["0.5", "1"]}
    assert "1 edge left out: between the same two nodes as an earlier one" in graphs.notes
    (directed,) = read_graphs(data, GraphSettings(directed=True), "node").graphs
    assert directed.source.tolist() == [0, 1, 2] and directed.both_ways() is directed
    both = graph.both_ways()
    assert sorted(zip(both.source.tolist(), both.target.tolist(), strict=True)) == [(0, 1), (1, 0), (1, 2), (2, 1)]


@pytest.mark.parametrize("edges", ["edges", "links"])
def test_one_node_link_graph(tmp_path, edges):
    value = {"nodes": LINK["nodes"], edges: LINK["edges"], "directed": True}
    data = write(tmp_path, {"graph.json": json.dumps(value)})
    assert guess_task(data) == "node_classification"
    (graph,) = read_graphs(data, GraphSettings(), "node").graphs
    assert graph.nodes == ("1", "2") and graph.node_labels == ("x", "y") and graph.directed


def test_many_node_link_graphs(tmp_path):
    lines = [json.dumps({"nodes": [0, 1], "edges": [[0, 1]], "label": label}) for label in ("x", "y", "x")]
    data = write(tmp_path, {"graphs.jsonl": "\n".join(lines)})
    assert guess_task(data) == "graph_classification"
    numbers = [json.dumps({"nodes": [0], "edges": [], "label": label}) for label in (0.25, 1.5)]
    assert guess_task(write(tmp_path, {"numbers.jsonl": "\n".join(numbers)})) == "graph_regression"
    graphs = read_graphs(data, GraphSettings(), "graph")
    assert graphs.labels() == ["x", "y", "x"] and graphs.graphs[1].origin == "graphs.jsonl:2"


def test_tu_text(tmp_path):
    data = write(tmp_path, {"set.txt": TU})
    assert guess_task(data) == "graph_classification"
    first, second = read_graphs(data, GraphSettings(), "graph").graphs
    assert (first.label, second.label) == ("1", "-1") and len(first.source) == 1 and len(second.source) == 2
    assert first.node_columns["tag"] == [("0",), ("3",)]


def test_tu_folder(tmp_path):
    files = {
        "S_A.txt": "1, 2\n2, 1\n3, 4\n4, 3\n",
        "S_graph_indicator.txt": "1\n1\n2\n2\n",
        "S_graph_labels.txt": "0\n1\n",
        "S_node_labels.txt": "5\n6\n5\n5\n",
        "S_edge_labels.txt": "7\n7\n8\n8\n",
        "S_node_attributes.txt": "0.5, 1\n0.25, 2\n0, 3\n1, 4\n",
    }
    data = write(tmp_path, files)
    assert guess_task(data) == "graph_classification"
    first, second = read_graphs(data, GraphSettings(), "graph").graphs
    assert first.source.tolist() == [0] and second.edge_columns == {"kind": [("8",)]}
    assert first.node_columns["tag"] == [("5",), ("6",)] and second.node_columns["attribute2"] == [3.0, 4.0]


def test_attributes_of_edges_are_features_and_those_of_graphs_are_named(tmp_path):
    files = {"S_edge_attributes.txt": "0.5, 2\n0.5, 2\n", "S_node_labels.txt": "5, 1\n6, 1\n5, 2\n"}
    data = write(tmp_path, {**TU_FOLDER, **files, "S_graph_attributes.txt": "1.5\n2.5\n"})
    graphs = read_graphs(data, GraphSettings(), "graph")
    first, second = graphs.graphs
    assert (
        first.edge_columns == {"attribute1": [0.5], "attribute2": [2.0]} and len(second.edge_columns["attribute1"]) == 0
    )
    assert first.node_columns == {"tag": [("5",), ("6",)], "tag2": [("1",), ("1",)]}
    assert graphs.notes == ("S_graph_attributes.txt is not used: a graph has one label, that of S_graph_labels.txt",)


def test_linqs_files(tmp_path):
    files = {"c.content": "p1 0 1 1 AI\np2 1 0 0 DB\np3 0 0 1 AI\n", "c.cites": "p1 p2\np2 p3\np9 p1\n"}
    data = write(tmp_path, files)
    assert guess_task(data) == "node_classification"
    graphs = read_graphs(data, GraphSettings(), "node")
    (graph,) = graphs.graphs
    assert graph.node_labels == ("AI", "DB", "AI") and graph.node_columns["words"][0] == ("1", "2")
    assert len(graph.source) == 2 and "1 citations left out: of papers that c.content does not have" in graphs.notes


def test_graphml(tmp_path):
    networkx = pytest.importorskip("networkx")
    graph = networkx.Graph()
    graph.add_node("a", label="x", size=1.5)
    graph.add_node("b", label="y", size=2.0)
    graph.add_edge("a", "b", weight=0.5)
    networkx.write_graphml(graph, tmp_path / "g.graphml")
    assert guess_task(tmp_path / "g.graphml") == "node_classification"
    (read,) = read_graphs(tmp_path / "g.graphml", GraphSettings(), "node").graphs
    assert read.node_labels == ("x", "y") and read.node_columns["size"] == [1.5, 2.0] and not read.directed


def test_smiles_tables(tmp_path):
    rows = "num,name,p_np,smiles\n" + "".join(f"{n},m{n},{n % 2},{'C' * (n + 1)}\n" for n in range(12))
    data = write(tmp_path, {"mols.csv": rows})
    assert guess_task(data) == "graph_classification"
    graphs = read_graphs(data, GraphSettings(), "graph")
    assert graphs.smiles and graphs.column == "p_np" and len(graphs.graphs[3]) == 4
    assert guess_task(write(tmp_path, {"sol.csv": "smiles,logS\nC,0.5\nCC,-1.25\nCCC,2.5\n"})) == "graph_regression"


def test_other_files_are_no_graphs(tmp_path):
    others = {
        "pairs.csv": "source,target\na b,c d\ne f,g h\n",
        "text.txt": "1\n2 3\nno\n",
        "signs.txt": "1\n2 3\n0 --1 2\n",
        "rows.jsonl": '{"text": "a"}\n',
    }
    for name, content in others.items():
        assert find_graphs(write(tmp_path, {name: content})) is None, name
    assert find_graphs(tmp_path / "missing.csv") is None


BROKEN = {
    "unknown node": ({"nodes.csv": NODES, "edges.csv": EDGES + "a,z,1\n"}, "edges.csv:5: an edge of node 'z'"),
    "node twice": (
        {"nodes.csv": NODES + "a,x,,up,1\n", "edges.csv": EDGES},
        "nodes.csv:5: a second node with the id 'a'",
    ),
    "no id": ({"nodes.csv": NODES + ",x,,up,1\n", "edges.csv": EDGES}, "nodes.csv:5: a node without an id"),
    "split": ({"nodes.csv": NODES + "d,x,maybe,up,1\n", "edges.csv": EDGES}, "nodes.csv:5: split 'maybe'"),
    "columns": ({"nodes.csv": NODES + "d,x\n", "edges.csv": EDGES}, "nodes.csv:5: 2 columns, expected 5"),
    "no label column": (
        {"nodes.csv": "id,colour\na,red\n", "edges.csv": "source,target\na,a\n"},
        "nodes.csv:1: columns id, colour, expected one for the label of a node",
    ),
    "no ends": (
        {"nodes.csv": NODES, "edges.csv": "one,two\na,b\n"},
        "edges.csv:1: columns one, two, expected two columns called source and target",
    ),
    "no labels": (
        {"nodes.csv": "id,label\na,\nb,\n", "edges.csv": "source,target\na,b\n"},
        "no labels of nodes, expected a label for the nodes that are trained on",
    ),
    "one label": (
        {"nodes.csv": "id,label\na,x\nb,x\nc,x\n", "edges.csv": "source,target\na,b\n"},
        "every label is 'x', expected at least two labels",
    ),
    "json": ({"g.json": '{"nodes": [], "edges": [}'}, "g.json:1:25: invalid JSON"),
    "json edge": (
        {"g.json": json.dumps({**LINK, "edges": [{"source": 1, "target": 7}]})},
        "g.json: an edge of node '7', which is not among the 2 nodes",
    ),
    "json edge form": ({"g.json": json.dumps({**LINK, "edges": [5]})}, "g.json: edge 1 is 5, expected"),
    "json node twice": (
        {"g.json": json.dumps({"nodes": [{"id": 1}, {"id": 1}], "edges": []})},
        "g.json: a second node with the id '1'",
    ),
    "json empty": ({"g.json": '{"nodes": [], "edges": []}'}, "g.json: a graph without nodes"),
    "json lists": ({"g.json": '{"nodes": 5, "edges": []}'}, "g.json: no list of nodes, or none of edges"),
    "json value": (
        {"g.json": json.dumps({**LINK, "nodes": [{"id": 1, "at": {"x": 1}}, {"id": 2}]})},
        "g.json: 'at' is {\"x\": 1}, expected a text, a number or a list of texts",
    ),
    "jsonl": (
        {"g.jsonl": '{"nodes": [1], "edges": [], "label": "x"}\n{"nodes": [1], "edges"\n'},
        "g.jsonl:2:23: invalid JSON",
    ),
    "jsonl label": (
        {"g.jsonl": '{"nodes": [1], "edges": [], "label": "x"}\n{"nodes": [1], "edges": []}\n'},
        "g.jsonl:2: no 'label', expected a label of each graph",
    ),
    "tu neighbour": ({"t.txt": TU.replace("1 2 0 2", "1 2 0 9")}, "t.txt:7: neighbour 9, expected 0 to 2"),
    "tu degree": ({"t.txt": TU.replace("1 2 0 2", "1 3 0 2")}, "t.txt:7: 2 neighbours, expected 3, as the line says"),
    "tu negative": ({"t.txt": TU.replace("1 2 0 2", "1 -2 0 2")}, "t.txt:7: -2 neighbours, expected a number of 0 or"),
    "tu word": ({"t.txt": TU.replace("1 2 0 2", "1 x 0 2")}, "t.txt:7: '1 x 0 2', expected whole numbers"),
    "tu short": ({"t.txt": TU.rsplit("\n", 2)[0] + "\n"}, "t.txt:8: the end of the file, expected"),
    "tu long": ({"t.txt": TU + "9 9\n"}, "t.txt:9: '9 9', expected the end of the file after 2 graphs"),
    "tu folder pair": (
        {"S_A.txt": "1, 9\n", "S_graph_indicator.txt": "1\n1\n", "S_graph_labels.txt": "0\n"},
        "S_A.txt:1: 1, 9, expected two nodes from 1 to 2",
    ),
    "tu folder two": (
        {"S_A.txt": "1, 2\n", "S_graph_indicator.txt": "1\n2\n", "S_graph_labels.txt": "0\n1\n"},
        "S_A.txt:1: an edge between nodes 1 and 2 of two graphs",
    ),
    "tu folder label": (
        {"S_A.txt": "1, 2\n", "S_graph_indicator.txt": "1\n1\n2\n", "S_graph_labels.txt": "0\n"},
        "S_graph_indicator.txt:3: graph 2, expected 1 to 1",
    ),
    "tu folder word": (
        {"S_A.txt": "1, b\n", "S_graph_indicator.txt": "1\n1\n", "S_graph_labels.txt": "0\n"},
        "S_A.txt:1: '1, b', expected whole numbers separated by commas",
    ),
    **{
        f"tu folder {name}": ({**TU_FOLDER, f"S_{file}.txt": content}, f"S_{file}.txt:{message}")
        for name, file, content, message in (
            ("indicator", "graph_indicator", "1\n1, 1\n2\n", "2: 2 numbers, expected 1"),
            ("labels", "graph_labels", "0\n1, 0\n", "2: 2 numbers, expected 1"),
            ("triple", "A", "1, 2\n2, 1, 1\n", "2: 3 numbers, expected 2"),
            ("short", "node_attributes", "1, 2\n1\n3, 4\n", "2: 1 number, expected 2, as in the first line"),
            ("nan", "node_attributes", "1, 2\n1, 2\nnan, 4\n", "3: 'nan, 4', expected finite numbers separated by"),
            ("inf", "edge_attributes", "1\ninf\n", "2: 'inf', expected finite numbers separated by commas"),
            ("kind", "edge_labels", "1\nnan\n", "2: 'nan', expected finite numbers separated by commas"),
            ("lines", "node_labels", "1\n1\n", " 2 lines, expected 3, one for each of the nodes"),
            ("edge lines", "edge_attributes", "1\n", " 1 lines, expected 2, one for each of the edges"),
            ("gap", "graph_labels", "0\n\n1\n", "3: '1' after an empty line, expected a line for each"),
            (
                "empty",
                "graph_labels",
                "0\n1\n1\n",
                "3: graph 3 has no nodes, expected at least one line 3 in S_graph_ind",
            ),
        )
    },
    "tu nodes": (
        {"t.txt": "2\n2 1\n0 1 1\n3 1 0\n0 -1\n"},
        "t.txt:5: graph 2 of 2 has 0 nodes, expected at least one;",
    ),
    "linqs width": (
        {"c.content": "p1 0 1 AI\np2 1 DB\n", "c.cites": "p1 p2\n"},
        "c.content:2: 3 columns, expected 4",
    ),
    "linqs word": (
        {"c.content": "p1 0 2 AI\np2 1 0 DB\n", "c.cites": "p1 p2\n"},
        "c.content:1: column 3 is '2', expected 0 or 1 for each word",
    ),
    "linqs cites": (
        {"c.content": "p1 0 1 AI\np2 1 0 DB\n", "c.cites": "p1 p2 p3\n"},
        "c.cites:1: 3 columns, expected 2",
    ),
    "smiles": (
        {"m.csv": "smiles,y\nCC,1\nC1CC,0\nCX,1\n"},
        "m.csv:3:2: SMILES 'C1CC': ring 1 is not closed, expected a second '1' after it",
    ),
    "smiles label": (
        {"m.csv": "smiles,expt,calc\nC,0.5,1.5\nCC,0.25,2.5\n"},
        "m.csv:1: 2 columns ('expt', 'calc') may hold the labels, expected one",
    ),
    "smiles split": (
        {"m.csv": "smiles,y,split\nCC,1,train\nCCC,0,tset\n"},
        "m.csv:3: split 'tset', expected train, valid, test or nothing; correct it, or rename the column",
    ),
    "no training molecule": (
        {"m.csv": "smiles,y,split\nCC,1,test\nCCC,0,valid\n"},
        "m.csv: no graph of split train, expected some; correct the splits",
    ),
    "jsonl split": (
        {"g.jsonl": '{"nodes": [1], "edges": [], "label": "x"}\n{"nodes": [1], "links": [], "split": "vali"}'},
        "g.jsonl:2: split 'vali', expected train, valid, test or nothing",
    ),
    "json split": (
        {"g.json": json.dumps({**LINK, "nodes": [{"id": 1, "label": "x", "split": "no"}, {"id": 2, "label": "y"}]})},
        "g.json: split 'no', expected train, valid, test or nothing",
    ),
    "json nan": (
        {
            "g.json": json.dumps(
                {**LINK, "nodes": [{"id": 1, "label": "x", "age": float("nan")}, {"id": 2, "label": "y"}]}
            )
        },
        "g.json: 'age' is nan, expected a finite number; correct it, or leave it out",
    ),
    "graphml": ({"g.graphml": "<graphml><graph>\n</graphml>"}, "g.graphml:2:"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_graph_is_refused_with_its_file_line_and_reason(name, tmp_path, capsys):
    if name == "graphml":
        pytest.importorskip("networkx")
    files, message = BROKEN[name]
    data = write(tmp_path / "data", files)
    with pytest.raises(SystemExit) as end:
        main(["train", str(data), "--runs", str(tmp_path / "runs"), "--steps", "1", "--quiet"])
    output = capsys.readouterr()
    assert end.value.code == DataError.exit_code == 3, output.err
    assert message in output.err.replace(f"{tmp_path}/data/", ""), output.err
    assert not list(tmp_path.glob("runs/*")), "nothing is left of the run"


def test_an_input_graph_is_refused_by_its_value():
    with pytest.raises(UsageError, match="an edge of node '9', which is not among the 2 nodes"):
        parse_graph({**LINK, "edges": [{"source": 9, "target": 1}]}, GraphSettings())


def test_an_input_graph_is_read_with_the_settings_of_the_run():
    both = {**LINK, "edges": [[1, 2], [2, 1]]}
    assert len(parse_graph(both, GraphSettings()).source) == 1
    assert len(parse_graph(both, GraphSettings(directed=True)).source) == 2
    assert len(parse_graph({**both, "directed": False}, GraphSettings(directed=True)).source) == 1
    named = parse_graph({"nodes": [{"id": 1, "kind": "x"}], "links": []}, GraphSettings(label_column="kind"))
    assert named.node_labels == ("x",) and not named.node_columns


def test_a_column_split_of_molecules_is_followed(tmp_path):
    parts = ["train"] * 20 + ["valid"] * 3 + ["test"] * 4 + [""]
    rows = [f"{'C' * (n + 1)},{n % 2},{part}" for n, part in enumerate(parts)]
    data = write(tmp_path, {"m.csv": "smiles,active,split\n" + "\n".join(rows)})
    graphs = read_graphs(data, GraphSettings(), "graph")
    assert graphs.column == "active" and [graph.split for graph in graphs.graphs] == parts
    train, valid = split_graphs(graphs, GraphSettings(), numbers=False)
    assert [graph.split for graph in train.graphs] == ["train"] * 20
    assert "graphs without a split, which are not used: 1" in train.notes
    assert [graph.split for graph in valid.graphs] == ["valid"] * 3
    data.write_text(data.read_text().replace("valid", "test"))
    train, valid = split_graphs(read_graphs(data, GraphSettings(), "graph"), GraphSettings(), numbers=False)
    assert {graph.split for graph in (*train.graphs, *valid.graphs)} == {"train"}, "no test molecule is trained on"
    assert len(train) + len(valid) == 20 and len(valid)


def test_the_hashed_content_is_the_json_of_the_graph_and_its_labels(tmp_path):
    data = write(tmp_path, {"nodes.csv": NODES, "edges.csv": EDGES})
    (graph,) = read_graphs(data, GraphSettings(), "node").graphs
    labels = {"label": "", "labels": ["x", "y", "x"], "splits": ["train", "valid", "test"], "split": ""}
    assert json.loads(graph.content()) == [graph.to_json(), labels]
    assert graph.content() == json.dumps([graph.to_json(), labels])


def test_a_neighbourhood_is_nearest_first(tmp_path):
    lines = {"nodes": list(range(7)), "edges": [[0, 3], [3, 5], [5, 1], [2, 0], [6, 6]]}
    graph = parse_graph(lines, GraphSettings())
    assert graph.around(0, 9) == [0, 2, 3, 5, 1] and graph.around(0, 3) == [0, 2, 3] and graph.around(6, 5) == [6]
    part = graph.neighbourhood(3, 3)
    assert part.nodes == ("3", "0", "5") and sorted(zip(part.source.tolist(), part.target.tolist(), strict=True)) == [
        (0, 2),
        (1, 0),
    ]


def test_folds_are_parts_of_equal_size_with_their_fraction_of_each_label(tmp_path):
    lines = [json.dumps({"nodes": list(range(n % 7 + 1)), "edges": [], "label": "xy"[n % 3 == 0]}) for n in range(90)]
    graphs = read_graphs(write(tmp_path, {"g.jsonl": "\n".join(lines)}), GraphSettings(), "graph")
    held_out = []
    for fold in range(10):
        train, valid = split_graphs(graphs, GraphSettings(folds=10, fold=fold), numbers=False)
        assert len(train) == 81 and len(valid) == 9
        assert valid.labels().count("y") == 3
        held_out += [graph.origin for graph in valid.graphs]
    assert sorted(held_out) == sorted(graph.origin for graph in graphs.graphs)


@pytest.mark.parametrize(("folds", "fold"), [(1, 0), (5, 5), (-1, 0)])
def test_wrong_folds_are_refused(folds, fold):
    with pytest.raises(ValueError, match=r"folds must be 0, or 2 or more|fold must be 0 to 4, but is 5"):
        GraphSettings(folds=folds, fold=fold)


@pytest.mark.skipif(not DATA.exists(), reason="SACCADE_DATA does not name the folder of real data")
def test_published_graphs_are_read_completely():
    cora = read_graphs(DATA / "cora", GraphSettings(), "node").graphs[0]
    assert (len(cora), len(cora.source)) == (2708, 5278)
    assert [cora.splits.count(name) for name in ("train", "valid", "test")] == [140, 500, 1000]
    counts = {"MUTAG": 188, "PTC": 344, "PROTEINS": 1113, "NCI1": 4110, "IMDBBINARY": 1000}
    for name, count in counts.items():
        assert len(read_graphs(DATA / "tu" / f"{name}.txt", GraphSettings(), "graph")) == count, name
    mutag = read_graphs(DATA / "tu" / "MUTAG.txt", GraphSettings(), "graph")
    assert np.mean([len(graph) for graph in mutag.graphs]) == pytest.approx(17.93, abs=0.01)
    assert guess_graph_task(DATA / "moleculenet" / "BBBP.csv", GraphSettings()) == "graph_classification"
    assert guess_graph_task(DATA / "moleculenet" / "Lipophilicity.csv", GraphSettings()) == "graph_regression"
    with pytest.raises(DataError, match=r"clintox.csv.gz:89:85: SMILES .*a second bond"):
        read_graphs(DATA / "moleculenet" / "clintox.csv.gz", GraphSettings(label_column="CT_TOX"), "graph")
