"""Planetoid files: citation graphs with the public split, as ind.NAME.x, y, tx, ty, allx, ally, graph and test.index.

Nodes 0, 1, ... are the rows of allx and ally; node i of test.index, in its order, is a row of tx and ty. A node between
them that test.index leaves out has neither features nor a label. https://arxiv.org/abs/1603.08861
Shapes: N nodes, F features, C labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from saccade.data.formats.pickles import PickleTypes, SparseRows, UnsupportedPickle, parse_pickle
from saccade.data.graphs.graph import Graph, Graphs, Value
from saccade.data.settings import GraphSettings
from saccade.data.tables.problems import BadRows, Problem, Problems
from saccade.data.tables.rows import Lines
from saccade.data.tables.sniffing import sniff

TYPES = PickleTypes(("u1", "i1", "i2", "i4", "i8", "f4", "f8"), sparse=True)
ENDINGS = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")
MOST_FEATURES, MOST_NUMBERS = 1_000_000, 50_000_000  # of a node; of all nodes, where they are not 0 or 1
VALIDATION = 500  # nodes after those of training, in the public split
NEXT = "download the files of Planetoid again"


def find_planetoid(data: Path) -> tuple[str, ...]:
    """Return the names of the datasets of a folder, or of the one that a file is part of; empty for other data."""
    if data.is_file():
        name = data.name.removeprefix("ind.")
        ending = next((ending for ending in ENDINGS if name.endswith(f".{ending}")), "")
        known = data.name.startswith("ind.") and ending
        return (name.removesuffix(f".{ending}"),) if known else ()
    files = sorted(data.glob("ind.*.graph")) if data.is_dir() else []
    return tuple(path.name.removeprefix("ind.").removesuffix(".graph") for path in files)


def read_planetoid(data: Path, names: Sequence[str], settings: GraphSettings) -> Graphs:
    """Return the graph of a dataset, whose nodes are divided by the public split."""
    if len(names) > 1:
        what, step = f"the datasets {', '.join(names)}", f"name a file of one, such as {data / f'ind.{names[0]}.graph'}"
        raise BadRows([Problem(data, None, None, what, "one", step)])
    files = _Files(data if data.is_dir() else data.parent, names[0])
    rows, labels = files.sparse("allx"), files.one_hot("ally")
    test_rows, test_labels, index = files.sparse("tx"), files.one_hot("ty"), files.test_index(rows.shape[0])
    train = len(files.one_hot("y"))
    files.check("ally", labels.shape, (rows.shape[0], labels.shape[1]), "a row for each row of allx")
    files.check(
        "tx", test_rows.shape, (len(index), rows.shape[1]), "a row for each line of test.index, as wide as allx"
    )
    files.check(
        "ty", test_labels.shape, (len(index), labels.shape[1]), "a row for each line of test.index, as wide as ally"
    )
    if train > len(labels):
        files.refuse("y", f"{train:,} rows", f"at most {len(labels):,}, the rows of ally")
    nodes = max([len(labels), *(node + 1 for node in index)])
    are_words = all(bool(np.isin(part.data, (0, 1)).all()) for part in (rows, test_rows))
    if not are_words and nodes * rows.shape[1] > MOST_NUMBERS:
        what = f"{nodes:,} nodes x {rows.shape[1]:,} features that are not 0 or 1"
        files.refuse("allx", what, f"at most {MOST_NUMBERS:,} numbers", "leave out rare features")
    entries = [*_entries(rows, range(rows.shape[0])), *_entries(test_rows, index)]
    source, target = files.edges(nodes, settings.directed)
    valid = min(VALIDATION, len(labels) - train)
    splits = ["train"] * train + ["valid"] * valid + [""] * (nodes - train - valid)
    names_of_labels = [*_labels(labels), *[""] * (nodes - len(labels))]
    for node, label in zip(index, _labels(test_labels), strict=True):
        splits[node], names_of_labels[node] = "test", label
    absent = nodes - len(labels) - len(index)
    notes = [f"public split: {train:,} nodes for training, {valid:,} for validation, {len(index):,} for test"]
    if absent:
        index_name = files.path("test.index").name
        notes.append(f"nodes without features and label, for which {index_name} has no line: {absent:,}")
    graph = Graph(
        tuple(map(str, range(nodes))),
        source,
        target,
        _words(entries, nodes) if are_words else _numbers(entries, nodes, rows.shape[1]),
        directed=settings.directed,
        node_labels=tuple(names_of_labels),
        splits=tuple(splits),
        origin=files.path("graph").name,
    )
    return Graphs((graph,), "node", tuple(notes), files=tuple(str(files.path(ending)) for ending in ENDINGS[1:]))


class _Files:
    """The files of one dataset; what is wrong with one is reported by its name."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name

    def path(self, ending: str) -> Path:
        return self._folder / f"ind.{self._name}.{ending}"

    def refuse(self, ending: str, what: str, expected: str, step: str = NEXT) -> NoReturn:
        raise BadRows([Problem(self.path(ending), None, None, what, expected, step)])

    def check(self, ending: str, shape: tuple[int, ...], expected: tuple[int, int], rule: str) -> None:
        """Refuse an array of another shape."""
        if shape != expected:
            sizes = [" x ".join(f"{size:,}" for size in sizes) for sizes in (shape, expected)]
            self.refuse(ending, f"a matrix of {sizes[0]}", f"{sizes[1]}: {rule}")

    def _content(self, ending: str) -> Any:
        if not self.path(ending).is_file():
            self.refuse(ending, "no such file", f"the files {', '.join(ENDINGS)} of ind.{self._name}")
        try:
            return parse_pickle(self.path(ending).read_bytes(), TYPES)
        except UnsupportedPickle as error:
            step = f"it may run code when it is opened elsewhere: {NEXT}"
            self.refuse(ending, f"a Python pickle with {error}", "arrays, sparse matrices and lists alone", step)

    def sparse(self, ending: str) -> SparseRows:
        """Return a matrix of features (N, F)."""
        matrix = self._content(ending)
        if not isinstance(matrix, SparseRows):
            self.refuse(ending, f"a value of type {type(matrix).__name__}", "a sparse matrix (scipy.sparse.csr_matrix)")
        if matrix.shape[1] > MOST_FEATURES:
            self.refuse(ending, f"{matrix.shape[1]:,} features", f"at most {MOST_FEATURES:,}")
        if not np.isfinite(matrix.data).all():
            self.refuse(ending, f"the feature {matrix.data[~np.isfinite(matrix.data)][0]}", "finite numbers")
        return matrix

    def one_hot(self, ending: str) -> NDArray[Any]:
        """Return labels as rows (N, C) of which one number is not 0."""
        labels = self._content(ending)
        if not isinstance(labels, np.ndarray) or labels.ndim != 2 or not labels.size:
            self.refuse(ending, f"a value of type {type(labels).__name__}", "an array with a row for each node")
        wrong = np.flatnonzero((labels != 0).sum(1) > 1)
        if len(wrong):
            self.refuse(ending, f"row {wrong[0]} with several labels", "at most one number that is not 0")
        return labels

    def test_index(self, first: int) -> list[int]:
        """Return the nodes of the rows of tx."""
        path, problems, index = self.path("test.index"), Problems(), dict[int, int]()
        if not path.is_file():
            self.refuse("test.index", "no such file", f"the files {', '.join(ENDINGS)} of ind.{self._name}")
        lines = Lines(sniff(path))
        for line in lines:
            lines.recent.clear()
            cell = line.strip()
            node = int(cell) if cell.isdecimal() and len(cell) < 10 else -1
            if cell and (node < first or node in index):
                what = f"'{cell[:20]}', which is in line {index[node]} too" if node in index else f"'{cell[:20]}'"
                expected = f"a node of its own from {first:,}, the number of rows of allx"
                problems.add(Problem(path, lines.number, None, what, expected, NEXT))
            elif cell:
                index[node] = lines.number
        problems.check()
        limit = first + 10 * len(index) + 1000
        if max(index, default=first) > limit:
            self.refuse("test.index", f"node {max(index):,}", f"at most {limit:,}: few nodes are left out")
        return list(index)

    def edges(self, nodes: int, directed: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the ends of the edges, each of which is listed by one of its nodes or by both."""
        lists = self._content("graph")
        valid = isinstance(lists, dict) and all(isinstance(near, list) for near in lists.values())
        pairs = [(node, other) for node, near in lists.items() for other in near] if valid else []
        if not valid or not all(isinstance(node, int) for pair in pairs for node in pair):
            self.refuse("graph", "no dictionary of nodes and their neighbours", "{node: [node, ...], ...}")
        wrong = next((node for pair in pairs for node in pair if not 0 <= node < nodes), None)
        if wrong is not None:
            self.refuse("graph", f"node {wrong}", f"0 to {nodes - 1:,}, the nodes of allx and test.index")
        ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        ends = np.unique(ends if directed else np.sort(ends, 1), axis=0)
        return ends[:, 0].copy(), ends[:, 1].copy()


def _labels(one_hot: NDArray[Any]) -> list[str]:
    """Return the number of the label of each row; empty for a row without one."""
    pairs = zip(one_hot.argmax(1).tolist(), (one_hot != 0).sum(1).tolist(), strict=True)
    return [str(label) if some else "" for label, some in pairs]


Entry = tuple[int, list[int], list[float]]
"""a node, its features that are not 0, and their values"""


def _entries(matrix: SparseRows, nodes: Sequence[int]) -> Iterator[Entry]:
    """Yield the features of some nodes, one row each."""
    for node, start, stop in zip(nodes, matrix.offsets[:-1].tolist(), matrix.offsets[1:].tolist(), strict=True):
        kept = np.flatnonzero(matrix.data[start:stop]) + start
        yield node, matrix.columns[kept].tolist(), matrix.data[kept].tolist()


def _words(entries: Sequence[Entry], nodes: int) -> dict[str, list[Value]]:
    """Return features that are 0 or 1 as words: the numbers of those that are 1."""
    words: list[Value] = [()] * nodes
    for node, columns, _ in entries:
        words[node] = tuple(map(str, sorted(set(columns))))
    return {"words": words}


def _numbers(entries: Sequence[Entry], nodes: int, width: int) -> dict[str, list[Value]]:
    """Return features as columns of numbers; a node that is left out has none."""
    empty: list[Value] = [None] * nodes
    for node, _, _ in entries:
        empty[node] = 0.0
    table = [list(empty) for _ in range(width)]
    for node, columns, values in entries:
        for column, value in zip(columns, values, strict=True):
            table[column][node] = float(value)
    return {f"feature{column}": cells for column, cells in enumerate(table)}
