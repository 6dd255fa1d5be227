"""Splitting graphs: as the file says, a fraction of every label, or the parts of a cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from saccade.data.graphs.graph import Graphs
from saccade.data.settings import GraphSettings
from saccade.data.splitting import SplitSettings, content_hash, hold_out
from saccade.data.tables.numbers import is_number
from saccade.errors import DataError

STRATA = 10  # quantiles of numbers


def split_graphs(graphs: Graphs, settings: GraphSettings, *, numbers: bool) -> tuple[Graphs, Graphs]:
    """Return the graphs for training and those for validation; a cross-validation does not follow the file."""
    path = Path(graphs.files[0])
    if not settings.folds:
        marked = graphs.of_split("valid")
        graphs = training_graphs(graphs)
        if len(marked):
            return graphs, marked
    keys = [graph.content() for graph in graphs.graphs]
    strata = _quantiles(graphs.labels()) if numbers else graphs.labels()
    if settings.folds:
        held_out = folds(keys, strata, settings.folds, settings.fold, path)
    else:
        held_out = hold_out(keys, strata, SplitSettings(settings.valid_fraction), path, unit="graph")
    pairs = list(zip(graphs.graphs, held_out, strict=True))
    train, valid = (tuple(graph for graph, out in pairs if out == wanted) for wanted in (False, True))
    return replace(graphs, graphs=train), replace(graphs, graphs=valid)


def training_graphs(graphs: Graphs) -> Graphs:
    """Return the graphs of split train; all of them where the file does not divide them."""
    if not any(graph.split for graph in graphs.graphs):
        return graphs
    train = graphs.of_split("train")
    if not len(train):
        step = "correct the splits"
        raise DataError(f"{graphs.files[0]}: no graph of split train, expected some; {step}")
    unused = sum(not graph.split for graph in graphs.graphs)
    note = (f"graphs without a split, which are not used: {unused:,}",) if unused else ()
    return replace(train, notes=(*train.notes, *note))


def folds(keys: Sequence[str], strata: Sequence[str], count: int, fold: int, path: Path) -> list[bool]:
    """Return which graphs are in a part of a cross-validation, each of which has its fraction of every label.

    The order is that of a hash of the content: it does not depend on the order of the file.
    """
    if len(keys) < count:
        raise DataError(f"{path}: {len(keys)} graphs, expected at least {count} for data.folds={count}; lower it")

    def order(row: int) -> tuple[str, int, int]:
        return strata[row], content_hash(keys[row]), row

    out = [False] * len(keys)
    for position, row in enumerate(sorted(range(len(keys)), key=order)):
        out[row] = position % count == fold
    return out


def _quantiles(labels: Sequence[str]) -> list[str]:
    numbers = [float(label) if is_number(label) else 0.0 for label in labels]
    ordered = sorted(numbers)
    edges = [ordered[number * len(ordered) // STRATA] for number in range(1, STRATA)]
    return [str(sum(number >= edge for edge in edges)) for number in numbers]
