"""Audio rows: finds recordings and the texts that belong to them in any layout, and splits them for validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from saccade.core.callback import Progress, ignore_progress
from saccade.data.audio.features import AudioFeatures
from saccade.data.audio.kinds import is_audio_name, is_other_audio_name
from saccade.data.formats.audio_arrays import find_npz_recordings
from saccade.data.formats.audio_folders import ClassFolders, find_sidecars
from saccade.data.formats.audio_layouts import SPEAKER, AudioLayout, AudioRows, RecordingFinder
from saccade.data.formats.audio_sphinx import find_sphinx
from saccade.data.formats.audio_tables import AudioTable, find_tables, sniff_audio_table, table_format
from saccade.data.formats.audio_transcripts import find_transcripts
from saccade.data.images.trees import Folder, Tree, open_tree
from saccade.data.parts import TEST, TRAIN, VALID
from saccade.data.settings import AudioSettings
from saccade.data.splitting import Overlap, SplitSettings, hold_out
from saccade.data.tables.encodings import explain
from saccade.data.tables.files import find
from saccade.data.tables.problems import BadRows, Problem
from saccade.errors import DataError

TABLES = ("csv", "tsv", "jsonl")

__all__ = ["AudioRows", "AudioSettings", "find_audio", "read_audio_rows", "split_audio_rows"]


def find_audio(path: Path, settings: AudioSettings) -> AudioLayout | None:
    """Return the recordings of a path and how the texts belong to them; None if it has no recordings."""
    try:
        if not path.is_dir() and not path.is_file():
            find(path)  # raises what is wrong with it
        arrays = find_npz_recordings(path)
        if arrays is not None:
            return arrays
        tree = open_tree(path) if path.is_dir() or not table_format(path.name) else None
        if tree is not None:
            return _find_in_tree(tree, settings)
        if table_format(path.name) is None or is_audio_name(path.name):
            return None
        try:
            finder = RecordingFinder(Folder(path.parent), by_id=False)
            return find_tables(path, [path], path.parent, settings, finder)
        except DataError:  # reading it as the table it was said to be reports the reason
            return None
    except OSError as error:
        raise explain(path, error) from error


def _find_in_tree(tree: Tree, settings: AudioSettings) -> AudioLayout | None:
    """Return the recordings of a folder or archive: by tables or transcripts in it, or by its folders and names."""
    sphinx = find_sphinx(tree)
    if sphinx is not None:
        return sphinx
    recordings = sum(map(is_audio_name, tree.names))
    others = sum(map(is_other_audio_name, tree.names))
    if not recordings and not others:
        return None
    if not recordings:
        what, step = f"{others:,} files that are not decoded", "convert them, for example: ffmpeg -i INPUT OUTPUT.flac"
        raise BadRows([Problem(tree.path, None, None, what, "WAV, FLAC, OGG or MP3 files", step)])
    finder = RecordingFinder(tree)
    annotated = find_transcripts(tree, finder)
    if annotated is None and isinstance(tree, Folder):
        names = [name for name in tree.names if table_format(name) is not None and name.count("/") < 2]
        files = [tree.path / name for name in sorted(names, key=lambda name: name.count("/"))]
        tables = [file for file in files if sniffable(file)]
        annotated = find_tables(tree.path, tables, tree.path, settings, finder) if tables else None
    annotated = annotated or find_sidecars(tree)
    if annotated is not None:
        return annotated
    texts = sum(table_format(name) is not None for name in tree.names)
    return ClassFolders(tree) if recordings > texts else None


def sniffable(file: Path) -> bool:
    """Whether a file of a folder may be a table, by its name."""
    return table_format(file.name) in TABLES


def read_audio_rows(path: Path, role: str, settings: AudioSettings, progress: Progress = ignore_progress) -> AudioRows:
    """Return all rows of a file or folder with the texts of a role: text or label.

    Bad rows and missing recordings are raised together; the recordings themselves are not decoded.
    """
    path = Path(path)
    layout = find_audio(path, settings)
    if layout is None and path.is_file() and table_format(path.name) in TABLES:
        layout = AudioTable(path, [sniff_audio_table(path, settings)], path.parent, settings)
    if layout is None:
        what = "no recordings, nor a table of paths of recordings"
        expected = "a folder or archive of WAV, FLAC, OGG or MP3 files, or a table with their paths"
        raise BadRows([Problem(path, None, None, what, expected, "name the folder or file you mean")])
    return layout.read(role, settings, progress)


def split_audio_rows(rows: AudioRows, settings: AudioSettings, features: AudioFeatures) -> tuple[AudioRows, AudioRows]:
    """Return training and validation rows: the parts of the data if they have such, else a fraction is held out.

    Copies of a recording are never in both of two parts that are chosen here.
    """
    of_row = features.hashes[rows.recording]
    chosen = next((part for part in (VALID, TEST) if rows.parts is not None and (rows.parts == part).any()), None)
    by_parts = chosen is not None and rows.parts is not None and bool((rows.parts == TRAIN).any())
    if by_parts and settings.split == "recordings":
        assert rows.parts is not None
        in_train, in_valid = rows.parts == TRAIN, rows.parts == chosen
    else:
        in_valid = np.array(_hold_out(rows, of_row, settings))
        in_train = ~in_valid
    train, valid = rows.take(np.flatnonzero(in_train)), rows.take(np.flatnonzero(in_valid))
    notes = _overlap_notes(of_row[in_train], of_row[in_valid])
    if settings.split == "speakers":
        notes.append(f"held out: all recordings of {_listed(sorted(set(valid.texts[SPEAKER])))}")
    return replace(train, read_notes=(*train.read_notes, *notes)), valid


def _hold_out(rows: AudioRows, hashes: NDArray[np.uint64], settings: AudioSettings) -> list[bool]:
    fraction = SplitSettings(fraction=settings.valid_fraction)
    if settings.split == "speakers":
        if SPEAKER not in rows.texts:
            what = "no speaker is named for each recording"
            step = "name the column of the speakers with data.speaker_column, or hold out recordings"
            raise BadRows([Problem(rows.path, None, None, what, "speakers, to hold some of them out", step)])
        return hold_out(list(rows.texts[SPEAKER]), [""] * len(rows), fraction, rows.path, unit="speaker")
    strata = list(rows.texts["label"]) if "label" in rows.texts else [""] * len(rows)
    keys = [str(value) for value in hashes.tolist()]
    return hold_out(keys, strata, fraction, rows.path, unit="recording")


def _overlap_notes(train: NDArray[np.uint64], valid: NDArray[np.uint64]) -> list[str]:
    """Return notes on copies of recordings within the training rows, and in the validation rows."""
    distinct, valid_distinct = np.unique(train), np.unique(valid)
    overlap = Overlap(
        train_total=len(train),
        valid_total=len(valid_distinct),
        duplicates_in_train=len(train) - len(distinct),
        valid_also_in_train=int(np.isin(valid_distinct, distinct).sum()),
        unit="recordings",
    )
    return list(overlap.notes())


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8:,} more"
