"""Tables of molecules: a column of SMILES and a column of labels or numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from saccade.data.graphs.building import read_split
from saccade.data.graphs.graph import Graph, Graphs
from saccade.data.graphs.molecules import molecule_graph
from saccade.data.graphs.smiles import BadSmiles
from saccade.data.settings import GraphSettings
from saccade.data.tables.columns import sample_columns
from saccade.data.tables.numbers import is_number
from saccade.data.tables.problems import BadRows, Problem, Problems
from saccade.data.tables.rows import pick_columns, rows
from saccade.data.tables.sniffing import DataFile, sniff
from saccade.errors import DataError

NAMES = ("smiles", "canonical_smiles", "smi")
LABELS = ("label", "y", "class", "target", "activity_label")
SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".smi")
FEW = 20  # different values of a column of classes


def find_smiles(path: Path, settings: GraphSettings) -> DataFile | None:
    """Return a table that has a column of SMILES; None for other files."""
    if not path.is_file() or not path.name.lower().endswith(SUFFIXES):
        return None
    try:
        file = sniff(path, encoding=settings.encoding or None)
        if not smiles_column(file, settings):
            file = sniff(path, encoding=settings.encoding or None, header=True)
    except DataError:  # another reader says what is wrong with it
        return None
    return file if smiles_column(file, settings) else None


def smiles_column(file: DataFile, settings: GraphSettings) -> str:
    """Return the column of SMILES; empty if there is none."""
    if settings.smiles_column:
        pick_columns(file.path, file.columns, [settings.smiles_column])
        return settings.smiles_column
    lowered = {name.strip().lower(): name for name in file.columns}
    return next((lowered[name] for name in NAMES if name in lowered), "")


def read_smiles(file: DataFile, settings: GraphSettings) -> Graphs:
    """Return the molecules of a table with their labels; rows without a label are left out and counted."""
    text, label = smiles_column(file, settings), label_column(file, settings)
    split = _split_column(file.columns)
    problems, graphs, unlabelled = Problems(), list[Graph](), 0
    for row in rows(file, [text, label, *([split] if split else [])], problems=problems):
        smiles, value, *parts = (cell.strip() for cell in row.values)
        if not value:
            unlabelled += 1
            continue
        try:
            graph = molecule_graph(smiles, label=value, origin=f"{file.path.name}:{row.line}")
        except BadSmiles as error:
            what = f"SMILES '{smiles[:60]}{'...' if len(smiles) > 60 else ''}': {error.what}"
            step = "correct or delete the row"
            problems.add(Problem(file.path, row.line, error.column, what, error.expected, step))
            continue
        part = read_split(parts[0], file.path, row.line, problems) if parts else ""
        graphs.append(replace(graph, split=part))
    problems.check()
    notes = [*file.notes, f"molecules from column '{text}', labels from column '{label}'"]
    if unlabelled:
        notes.append(f"{unlabelled:,} rows without '{label}' are left out")
    return Graphs(tuple(graphs), "graph", tuple(notes), smiles=True, column=label, files=(str(file.path),))


def label_column(file: DataFile, settings: GraphSettings) -> str:
    """Return the column of the labels: given, of a usual name, or the only one that can be; else the user is asked."""
    if settings.label_column:
        pick_columns(file.path, file.columns, [settings.label_column])
        return settings.label_column
    lowered = {name.strip().lower(): name for name in file.columns}
    usual = next((lowered[name] for name in LABELS if name in lowered), "")
    if usual:
        return usual
    others = (smiles_column(file, settings), _split_column(file.columns))
    candidates = _candidates({name: cells for name, cells in sample_columns(file).items() if name not in others})
    if len(candidates) == 1:
        return candidates[0]
    listed = ", ".join(f"'{name}'" for name in (candidates or file.columns)[:8])
    count = "no column" if not candidates else f"{len(candidates)} columns ({listed})"
    what = f"{count} may hold the labels"
    step = "name it with --label-column NAME; several labels at once are not supported"
    raise BadRows([Problem(file.path, 1, None, what, "one", step)])


def _split_column(names: Sequence[str]) -> str:
    """Return the column that divides the molecules; empty if there is none."""
    return next((name for name in names if name.strip().lower() == "split"), "")


def _candidates(sample: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the columns of classes, or else of numbers, that are not the numbers of the rows."""
    values = {name: [cell for cell in cells if cell] for name, cells in sample.items()}
    numbers = [name for name, cells in values.items() if cells and all(map(is_number, cells)) and not _counts(cells)]
    binary = [name for name in numbers if set(values[name]) <= {"0", "1", "0.0", "1.0"}]
    few = [name for name, cells in values.items() if 1 < len(set(cells)) <= min(FEW, len(cells) // 5)]
    return binary or numbers or few


def _counts(cells: Sequence[str]) -> bool:
    """Whether cells count the rows."""
    return all(cell.isdecimal() for cell in cells) and len(set(cells)) == len(cells)
