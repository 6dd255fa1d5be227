"""Splitting image data: copies of a picture stay together, classes keep their proportions, copies are reported."""

import numpy as np
import pytest

from saccade.data.formats.image_rows import ImageSettings, read_image_rows, split_image_rows
from saccade.data.images.decoded import decode_pictures
from saccade.data.images.resizing import Resize
from saccade.errors import DataError
from saccade.tasks.image_classification import Task


def test_copies_of_a_picture_stay_together(write, tmp_path):
    write(*(f"{label}/{number}.png" for label in "ab" for number in range(40)))
    for number in range(0, 40, 2):
        (tmp_path / f"a/{number + 1}.png").write_bytes((tmp_path / f"a/{number}.png").read_bytes())
    rows = read_image_rows(tmp_path, ("label",), ImageSettings())
    hashes = decode_pictures(rows.pictures, Resize("exact", 2)).hashes
    train, valid = split_image_rows(rows, ImageSettings(valid_fraction=0.25))
    assert not set(hashes[train.picture].tolist()) & set(hashes[valid.picture].tolist())
    assert list(valid.texts["label"]).count("b") == 10
    assert list(valid.texts["label"]).count("a") == 10
    assert "15 of 60 training pictures are duplicates" in train.notes()
    again = split_image_rows(rows, ImageSettings(valid_fraction=0.25), hashes)
    assert np.array_equal(again[0].picture, train.picture) and np.array_equal(again[1].picture, valid.picture)


def test_all_captions_of_a_picture_are_in_one_part(write, tmp_path):
    write(*(f"{number}.png" for number in range(20)))
    lines = [f"{number}.png#{index}\tcaption {index}" for number in range(20) for index in range(5)]
    (tmp_path / "captions.token.txt").write_text("\n".join(lines) + "\n")
    rows = read_image_rows(tmp_path, ("caption",), ImageSettings())
    train, valid = split_image_rows(rows, ImageSettings())
    assert (len(train), len(valid)) == (90, 10)
    assert not set(train.picture.tolist()) & set(valid.picture.tolist())


def test_copies_across_given_parts_are_reported(write, tmp_path):
    write("train/a/1.png", "train/a/2.png", "train/b/3.png", "val/a/4.png", "val/b/5.png")
    (tmp_path / "val/a/4.png").write_bytes((tmp_path / "train/a/1.png").read_bytes())
    (tmp_path / "train/b/3.png").write_bytes((tmp_path / "train/a/2.png").read_bytes())
    rows = read_image_rows(tmp_path, ("label",), ImageSettings())
    train, _ = split_image_rows(rows, ImageSettings())
    assert train.notes()[1:] == [
        "1 of 3 training pictures are duplicates",
        "1 of 2 validation pictures are also in the training part",
    ]


def test_a_test_part_validates_or_is_left_for_an_evaluation(write, tmp_path):
    write("train/a/1.png", "train/b/2.png", "test/a/3.png", "test/b/4.png")
    train, valid = split_image_rows(read_image_rows(tmp_path, ("label",), ImageSettings()), ImageSettings())
    optimistic = "no validation part: the test part (2 rows) chooses the checkpoint; its score is optimistic"
    assert (len(train), len(valid)) == (2, 2) and optimistic in train.notes()
    write("val/a/5.png", "val/b/6.png", "val/b/7.png", first=10)
    train, valid = split_image_rows(read_image_rows(tmp_path, ("label",), ImageSettings()), ImageSettings())
    assert (len(train), len(valid)) == (2, 3) and optimistic not in train.notes()
    assert "test part: 2 rows, left for `saccade evaluate RUN --data`" in train.notes()


def test_validation_data_of_their_own_are_compared_with_the_training_part(write, tmp_path):
    write("data/train/a/1.png", "data/train/a/2.png", "data/train/b/3.png", "data/val/a/4.png", "data/val/b/5.png")
    write("other/a/6.png", "other/b/7.png", first=20)
    (tmp_path / "other/a/6.png").write_bytes((tmp_path / "data/train/a/1.png").read_bytes())
    (tmp_path / "other/b/7.png").write_bytes((tmp_path / "data/val/b/5.png").read_bytes())
    settings = ImageSettings(valid=str(tmp_path / "other"))
    train, valid, notes = Task.read(settings, tmp_path / "data")
    assert (len(train), len(valid)) == (3, 2)
    assert notes[1:] == [
        "data: 3 of 5 rows are its training part; the others are not used",
        "1 of 2 validation pictures are also in the training part",
    ]
    plain, _, notes = Task.read(ImageSettings(valid=str(tmp_path / "data")), tmp_path / "other")
    assert len(plain) == 2 and notes[1:] == ["2 of 5 validation pictures are also in the training part"]


def test_one_picture_cannot_be_divided(write, tmp_path):
    write("1.png")
    (tmp_path / "a.csv").write_text("path,caption\n1.png,a cat\n1.png,a black cat\n")
    rows = read_image_rows(tmp_path / "a.csv", ("caption",), ImageSettings())
    with pytest.raises(DataError, match="1 distinct picture, expected at least 2 to hold one out; add pictures"):
        split_image_rows(rows, ImageSettings())
