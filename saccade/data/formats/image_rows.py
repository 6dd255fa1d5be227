"""Image rows: reads pictures and the texts that belong to them in any layout, and splits them for validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from saccade.core.callback import Progress, ignore_progress
from saccade.data.formats.image_layouts import ImageLayout, ImageRows
from saccade.data.formats.image_search import find_images, open_table
from saccade.data.formats.image_tables import PictureTable
from saccade.data.images.decoded import picture_hashes
from saccade.data.parts import TEST, TRAIN, VALID
from saccade.data.settings import ImageSettings, ValidationSplit
from saccade.data.splitting import Overlap, SplitSettings, hold_out
from saccade.data.tables.problems import BadRows, Problem

__all__ = ["ImageRows", "ImageSettings", "pair_image_rows", "read_image_rows", "read_pictures", "split_image_rows"]


def read_image_rows(
    path: Path, roles: Sequence[str], settings: ImageSettings, progress: Progress = ignore_progress
) -> ImageRows:
    """Return all rows of a file or folder with the texts of some roles: label, caption, question and answer, or text.

    Bad rows and missing pictures are raised together; the pictures themselves are not decoded.
    """
    return _find(path, settings).read(roles, settings, progress)


def read_pictures(path: Path, settings: ImageSettings, progress: Progress = ignore_progress) -> ImageRows:
    """Return every picture of a file or folder once, with its label where the data say nothing else of it."""
    layout = _find(path, settings)
    if layout.roles == (("label",),):
        return layout.read(("label",), settings, progress)
    roles = layout.roles[0] if layout.roles else ("text",)  # which for pictures in a folder is the name of the file
    rows = layout.read(() if isinstance(layout, PictureTable) else roles, settings, progress)
    _, first = np.unique(rows.picture, return_index=True)
    notes = (f"{Path(path).name}: {len(first):,} pictures, read without texts",)
    return replace(rows.take(np.sort(first)), texts={}, read_notes=notes)


def _find(path: Path, settings: ImageSettings) -> ImageLayout:
    """Return the layout of a file or folder; one without pictures is refused."""
    layout = find_images(Path(path), settings) or open_table(Path(path), settings)
    if layout is None:
        what = "no pictures, nor a table of paths of pictures"
        expected = "a folder or archive of pictures, a table or JSON file with their paths, or arrays of pixels"
        raise BadRows([Problem(Path(path), None, None, what, expected, "name the folder or file you mean")])
    return layout


def split_image_rows(
    rows: ImageRows, settings: ValidationSplit, hashes: NDArray[np.uint64] | None = None
) -> tuple[ImageRows, ImageRows]:
    """Return training and validation rows: the parts of the data if they have such, else a fraction is held out.

    Copies of a picture are never in both of two parts that are chosen here; where the data choose, the notes of the
    training rows say how many there are. `hashes` are those of `DecodedPictures`, if the pictures are decoded already.
    """
    contents = picture_hashes(rows.pictures) if hashes is None else hashes
    of_row = contents[rows.picture]
    chosen = next((part for part in (VALID, TEST) if rows.parts is not None and (rows.parts == part).any()), None)
    if chosen is None or rows.parts is None or not (rows.parts == TRAIN).any():
        held_out = np.array(_hold_out(rows, of_row, settings))
        train, valid = rows.take(np.flatnonzero(~held_out)), rows.take(np.flatnonzero(held_out))
        return _with_notes(train, of_row[~held_out], of_row[held_out]), valid
    is_train, is_valid = rows.parts == TRAIN, rows.parts == chosen
    train, valid = rows.take(np.flatnonzero(is_train)), rows.take(np.flatnonzero(is_valid))
    train = replace(train, read_notes=(*train.read_notes, *_test_notes(rows.parts, chosen)))
    return _with_notes(train, of_row[is_train], of_row[is_valid]), valid


def pair_image_rows(rows: ImageRows, valid: ImageRows) -> ImageRows:
    """Return the training rows of data whose validation rows are elsewhere, with notes on copies of pictures in both.

    Of data with parts of their own, only the training part is kept.
    """
    is_train = np.ones(len(rows), dtype=bool) if rows.parts is None else rows.parts == TRAIN
    train = rows
    if is_train.any() and not is_train.all():
        train = rows.take(np.flatnonzero(is_train))
        note = f"{rows.path.name}: {len(train):,} of {len(rows):,} rows are its training part; the others are not used"
        train = replace(train, read_notes=(*train.read_notes, note))
    hashes, valid_hashes = picture_hashes(rows.pictures), picture_hashes(valid.pictures)
    return _with_notes(train, hashes[train.picture], valid_hashes[valid.picture])


def _test_notes(parts: NDArray[np.int8], chosen: int) -> list[str]:
    """Return a note for the user on the test part, if there is one: it validates, or is left for an evaluation."""
    count = int((parts == TEST).sum())
    if chosen == TEST:
        return [f"no validation part: the test part ({count:,} rows) chooses the checkpoint; its score is optimistic"]
    return [f"test part: {count:,} rows, left for `saccade evaluate RUN --data`"] if count else []


def _hold_out(rows: ImageRows, hashes: NDArray[np.uint64], settings: ValidationSplit) -> list[bool]:
    keys = [str(value) for value in hashes.tolist()]
    strata = list(rows.texts["label"]) if "label" in rows.texts else [""] * len(rows)
    return hold_out(keys, strata, SplitSettings(fraction=settings.valid_fraction), rows.path, unit="picture")


def _with_notes(train: ImageRows, train_hashes: NDArray[np.uint64], valid_hashes: NDArray[np.uint64]) -> ImageRows:
    """Return the training rows with notes on copies of pictures among them and in the validation rows."""
    train_numbers = np.unique(train.picture)
    distinct = np.unique(train_hashes)
    valid_distinct = np.unique(valid_hashes)
    overlap = Overlap(
        train_total=len(train_numbers),
        valid_total=len(valid_distinct),
        duplicates_in_train=len(train_numbers) - len(distinct),
        valid_also_in_train=int(np.isin(valid_distinct, distinct).sum()),
        unit="pictures",
    )
    return replace(train, read_notes=(*train.read_notes, *overlap.notes()))
