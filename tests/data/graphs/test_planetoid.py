"""Planetoid files as published: the public split, nodes that are left out, and pickles that are refused unrun."""

import collections
import os
import pickle
import pickletools
from pathlib import Path

import numpy as np
import pytest

from saccade.cli import main
from saccade.data.formats.graph_search import read_graphs
from saccade.data.formats.pickles import PickleTypes, UnsupportedPickle, parse_pickle
from saccade.data.settings import GraphSettings
from saccade.errors import DataError
from saccade.tasks import guess_task

sparse = pytest.importorskip("scipy.sparse")

TYPES = PickleTypes(("i4", "i8", "f4", "f8"), sparse=True)
TRAIN, KNOWN, TEST = 4, 508, [511, 508, 510]  # node 509 is left out, as some of CiteSeer are
NODES, WIDTH = 512, 6


def python2(data: bytes) -> bytes:
    """Return a pickle with the names that Python 2, numpy and scipy had when the files were published."""
    names = (
        (b"scipy.sparse._csr", b"scipy.sparse.csr"),
        (b"numpy._core.", b"numpy.core."),
        (b"builtins", b"__builtin__"),
    )
    for new, old in names:
        data = data.replace(b"c" + new, b"c" + old)
    return data


def features(rows, weights=False):
    draw = np.random.default_rng(rows)
    dense = (draw.random((rows, WIDTH)) < 0.4).astype(np.float32)
    return sparse.csr_matrix(dense * (0.5 if weights else 1))


def one_hot(numbers):
    return np.eye(3, dtype=np.int32)[np.asarray(numbers)]


def write_planetoid(folder, name="tiny", weights=False, **parts):
    """Write the eight files of a ring of nodes whose label is their number modulo 3; `parts` replace some."""
    near = collections.defaultdict(list)
    for node in range(NODES):
        if node != 509:
            near[node] += [(node + 1) % NODES, (node - 1) % NODES, (node + 1) % NODES]
    near = {node: [other for other in others if other != 509] for node, others in near.items()}
    known = features(KNOWN, weights)
    content = {
        "x": known[:TRAIN],
        "y": one_hot(np.arange(TRAIN) % 3),
        "tx": features(len(TEST), weights),
        "ty": one_hot(np.array(TEST) % 3),
        "allx": known,
        "ally": one_hot(np.arange(KNOWN) % 3),
        "graph": collections.defaultdict(list, near),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for part, value in {**content, **parts}.items():
        if part != "index":
            data = value if isinstance(value, bytes) else python2(pickle.dumps(value, 2))
            (folder / f"ind.{name}.{part}").write_bytes(data)
    index = parts.get("index", "".join(f"{node}\n" for node in TEST))
    (folder / f"ind.{name}.test.index").write_text(index)
    return folder


@pytest.mark.parametrize("by_file", [False, True])
def test_the_public_split_and_the_order_of_the_test_nodes(tmp_path, by_file):
    data = write_planetoid(tmp_path / "data")
    assert b"cscipy.sparse.csr\n" in (data / "ind.tiny.x").read_bytes(), "as Python 2 wrote it"
    path = data / "ind.tiny.graph" if by_file else data
    assert guess_task(path) == "node_classification"
    graphs = read_graphs(path, GraphSettings(), "node")
    (graph,) = graphs.graphs
    assert len(graph) == NODES and not graph.directed
    assert [node for node, split in enumerate(graph.splits) if split == "train"] == [0, 1, 2, 3]
    assert [node for node, split in enumerate(graph.splits) if split == "valid"] == list(range(4, 504))
    assert [node for node, split in enumerate(graph.splits) if split == "test"] == sorted(TEST)
    assert graph.node_labels == tuple("" if node == 509 else str(node % 3) for node in range(NODES))
    words, test = graph.node_columns["words"], features(3).toarray()
    assert [words[node] for node in TEST] == [tuple(map(str, np.flatnonzero(row))) for row in test]
    assert words[7] == tuple(map(str, np.flatnonzero(features(KNOWN).toarray()[7])))
    assert len(graph.source) == NODES - 2 and 509 not in {*graph.source.tolist(), *graph.target.tolist()}
    assert "public split: 4 nodes for training, 500 for validation, 3 for test" in graphs.notes
    left_out = "nodes without features and label, for which ind.tiny.test.index has no line: 1"
    assert words[509] == () and left_out in graphs.notes


def test_features_that_are_not_0_or_1_are_numbers(tmp_path):
    (graph,) = read_graphs(write_planetoid(tmp_path, weights=True), GraphSettings(), "node").graphs
    assert list(graph.node_columns) == [f"feature{column}" for column in range(WIDTH)]
    expected = features(KNOWN, weights=True).toarray()[:, 2].tolist()
    assert list(graph.node_columns["feature2"][:KNOWN]) == expected and graph.node_columns["feature2"][509] is None


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def refused(data, tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        main(["train", str(data), "--runs", str(tmp_path / "runs"), "--steps", "1", "--quiet"])
    error = capsys.readouterr().err
    assert end.value.code == DataError.exit_code == 3, error
    assert "Traceback" not in error and not list(tmp_path.glob("runs/*"))
    return error.replace(f"{data}/", "")


SYSTEM = b"cos\nsystem\n(S'true'\ntR."
BROKEN = {
    "code": ({"allx": SYSTEM}, "ind.tiny.allx: a Python pickle with the code 'os.system', expected arrays"),
    "step": ({"graph": SYSTEM}, "it may run code when it is opened elsewhere: download the files of Planetoid again"),
    "cut off": ({"ty": pickle.dumps(one_hot([0, 1]), 2)[:-30]}, "ind.tiny.ty: a Python pickle with damaged data: "),
    "no matrix": ({"tx": [1, 2]}, "ind.tiny.tx: a value of type list, expected a sparse matrix"),
    "no labels": ({"ally": [1, 2]}, "ind.tiny.ally: a value of type list, expected an array with a row for each node"),
    "two labels": ({"ty": np.ones((3, 3), np.int32)}, "ind.tiny.ty: row 0 with several labels, expected at most one"),
    "nan": (
        {"tx": sparse.csr_matrix(np.full((3, WIDTH), np.nan))},
        "ind.tiny.tx: the feature nan, expected finite numbers",
    ),
    "rows": (
        {"ally": one_hot([0, 1])},
        "ind.tiny.ally: a matrix of 2 x 3, expected 508 x 3: a row for each row of allx",
    ),
    "features": (
        {"allx": sparse.csr_matrix((KNOWN, 10**12))},
        "ind.tiny.allx: 1,000,000,000,000 features, expected at most 1,000,000",
    ),
    "numbers": (
        {
            "allx": sparse.csr_matrix(([0.5], ([0], [0])), (KNOWN, 200_000)),
            "tx": sparse.csr_matrix(([0.5], ([0], [0])), (len(TEST), 200_000)),
        },
        "ind.tiny.allx: 512 nodes x 200,000 features that are not 0 or 1, expected at most 50,000,000 numbers",
    ),
    "width": (
        {"tx": sparse.csr_matrix(np.ones((3, 5)))},
        "ind.tiny.tx: a matrix of 3 x 5, expected 3 x 6: a row for each line of test.index, as wide as allx",
    ),
    "test labels": ({"ty": one_hot([0, 1])}, "ind.tiny.ty: a matrix of 2 x 3, expected 3 x 3"),
    "train": ({"y": one_hot([0] * 600)}, "ind.tiny.y: 600 rows, expected at most 508, the rows of ally"),
    "node": ({"graph": {0: [1, 700]}}, "ind.tiny.graph: node 700, expected 0 to 511, the nodes of allx and test.index"),
    "lists": (
        {"graph": {0: "1"}},
        "ind.tiny.graph: no dictionary of nodes and their neighbours, expected {node: [node",
    ),
    "index": ({"index": "511\n508\nten\n"}, "ind.tiny.test.index:3: 'ten', expected a node of its own from 508"),
    "index twice": ({"index": "511\n508\n511\n"}, "ind.tiny.test.index:3: '511', which is in line 1 too, expected"),
    "index known": ({"index": "511\n508\n7\n"}, "ind.tiny.test.index:3: '7', expected a node of its own from 508"),
    "index far": ({"index": "511\n508\n99999999\n"}, "ind.tiny.test.index: node 99,999,999, expected at most 1,538"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_dataset_is_refused_by_its_file(name, tmp_path, capsys):
    parts, message = BROKEN[name]
    assert message in refused(write_planetoid(tmp_path / "data", **parts), tmp_path, capsys)


def test_a_pickle_that_runs_code_is_refused_and_not_run(tmp_path, capsys):
    data = write_planetoid(tmp_path / "data", graph={0: [Evil(str(tmp_path / "ran"))]})
    assert f"ind.tiny.graph: a Python pickle with the code '{os.name}.mkdir'" in refused(data, tmp_path, capsys)
    assert not (tmp_path / "ran").exists()


def test_a_missing_file_and_several_datasets_are_named(tmp_path, capsys):
    data = write_planetoid(tmp_path / "data")
    (data / "ind.tiny.tx").unlink()
    assert "ind.tiny.tx: no such file, expected the files x, y, tx, ty" in refused(data, tmp_path, capsys)
    (data / "ind.tiny.test.index").unlink()
    assert "no such file, expected the files x, y, tx, ty" in refused(data, tmp_path, capsys)
    write_planetoid(data, "other")
    message = "the datasets other, tiny, expected one; name a file of one, such as ind.other.graph"
    assert message in refused(data, tmp_path, capsys)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_sparse_matrices_of_every_protocol(protocol):
    matrix = sparse.csr_matrix(np.array([[0, 2.5, 0], [0, 0, 0], [1, 0, 3]]))
    parsed = parse_pickle(pickle.dumps({"m": matrix, "again": [matrix]}, protocol), TYPES)
    rows = parsed["m"]
    assert rows.shape == (3, 3) and rows.data.tolist() == [2.5, 1, 3] and parsed["again"][0] is rows
    assert rows.columns.tolist() == [1, 0, 2] and rows.offsets.tolist() == [0, 1, 1, 3]


def test_arrays_keep_their_byte_order_and_their_layout():
    arrays = [np.arange(6, dtype=">i4").reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3))]
    for array, parsed in zip(arrays, parse_pickle(pickle.dumps(arrays, 2), TYPES), strict=True):
        np.testing.assert_array_equal(parsed, array)


def damaged(**state):
    """Return the pickle of a sparse matrix with other parts."""
    matrix = sparse.csr_matrix(np.eye(3))
    for name, value in state.items():
        setattr(matrix, name, value)
    return pickle.dumps(matrix, 2)


def nested(depth):
    return b"\x80\x02" + b"]" * depth + b"a" * (depth - 1) + b"."


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (damaged(indices=np.array([0, 1, 9])), "a sparse matrix of 3 x 3 whose columns or rows are not within it"),
        (damaged(indptr=np.array([0, 1, 2, 9])), "a sparse matrix of 3 x 3 whose columns or rows are not within it"),
        (damaged(indptr=np.array([0, 2, 1, 3])), "a sparse matrix of 3 x 3 whose columns or rows are not within it"),
        (damaged(data=[1, 2, 3]), "a sparse matrix without its data, columns or rows"),
        (pickle.dumps(np.zeros(2, complex), 2), "an array that is not of one of the types i4, i8, f4, f8"),
        (pickle.dumps(np.array([Evil("x")]), 2), "the code"),
        (pickle.dumps(collections.OrderedDict(a=1), 2), "the code 'collections.OrderedDict'"),
        (b"\x80\x02cscipy.sparse.csr\ncsr_matrix\n(K\x01tR.", "a sparse matrix without its data, columns or rows"),
        (damaged(_shape=None), "damaged data: "),
        (b"\x80\x02c__builtin__\nlist\n)\x81.", "an object that is no sparse matrix"),
        (b"\x80\x02cbuiltins\nbytes\n(K\x05tR.", "a value of 'builtins.bytes'"),
        (nested(100_000), "values inside values, too deep to read"),
    ],
)
def test_other_pickles_are_refused(data, reason):
    with pytest.raises(UnsupportedPickle) as error:
        parse_pickle(data, TYPES)
    assert str(error.value).startswith(reason)


def test_lists_that_hold_themselves_or_each_other_many_times_end():
    itself = parse_pickle(b"\x80\x02]q\x00h\x00a.", TYPES)
    assert itself[0] is itself
    laughs = []
    for _ in range(60):
        laughs = [laughs, laughs]
    data = pickle.dumps(laughs, 2)
    assert sum(1 for _ in pickletools.genops(data)) < 1000
    assert parse_pickle(data, TYPES)[0] is not None


def test_sparse_matrices_are_not_for_every_dataset():
    with pytest.raises(UnsupportedPickle, match=r"the code 'scipy.sparse._csr.csr_matrix'"):
        parse_pickle(pickle.dumps(sparse.csr_matrix(np.eye(2)), 2))


PUBLISHED = Path(os.environ.get("SACCADE_DATA", "/nowhere")) / "graph" / "planetoid"


@pytest.mark.skipif(not PUBLISHED.exists(), reason="SACCADE_DATA does not name the folder of real data")
@pytest.mark.parametrize(
    ("name", "nodes", "edges", "train"), [("cora", 2708, 5278, 140), ("citeseer", 3327, 4676, 120)]
)
def test_published_files_are_read_completely(name, nodes, edges, train):
    (graph,) = read_graphs(PUBLISHED / f"ind.{name}.graph", GraphSettings(), "node").graphs
    assert (len(graph), len(graph.source)) == (nodes, edges)
    assert [graph.splits.count(split) for split in ("train", "valid", "test")] == [train, 500, 1000]
