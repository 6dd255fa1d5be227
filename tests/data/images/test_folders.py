"""Class folders, splits by folder, and pictures whose names are their texts."""

import os
import sys
import tarfile
import zipfile

import pytest

from saccade.data.formats.image_rows import ImageSettings, read_image_rows, split_image_rows
from saccade.errors import DataError


def read(path, *roles):
    return read_image_rows(path, roles or ("label",), ImageSettings())


def labels(rows):
    return {rows.origins.describe(row): rows.texts["label"][row] for row in range(len(rows))}


def test_one_folder_for_each_class(write):
    rows = read(write("cats/1.png", "dogs/a.jpg", "dogs/b.PNG"))
    assert labels(rows) == {"cats/1.png": "cats", "dogs/a.jpg": "dogs", "dogs/b.PNG": "dogs"}
    assert rows.parts is None
    assert rows.pictures.name(1).endswith("dogs/a.jpg")
    assert rows.notes()[0].endswith(": 3 pictures in 2 classes")


def test_folders_for_training_and_validation(write):
    rows = read(write("train/cat/1.png", "train/dog/2.png", "val/cat/3.png", "test/dog/4.png"))
    assert rows.parts.tolist() == [2, 0, 0, 1]  # in the order of the names: test, train, val
    assert list(rows.texts["label"]) == ["dog", "cat", "dog", "cat"]
    train, valid = split_image_rows(rows, ImageSettings())
    assert list(train.texts["label"]) == ["cat", "dog"]
    assert [valid.origins.describe(row) for row in range(len(valid))] == ["cat/3.png"]


def test_without_validation_the_test_part_is_used(write):
    train, valid = split_image_rows(read(write("train/a/1.png", "train/b/2.png", "test/a/3.png")), ImageSettings())
    assert (len(train), len(valid)) == (2, 1)


def test_a_training_part_alone_is_divided(write):
    names = [f"train/{label}/{number}.png" for label in "ab" for number in range(10)]
    train, valid = split_image_rows(read(write(*names)), ImageSettings(valid_fraction=0.2))
    assert (len(train), len(valid)) == (16, 4)
    assert sorted(valid.texts["label"]) == ["a", "a", "b", "b"]


def test_nested_class_names_and_outer_folders(write, tmp_path):
    write("x/animals/cat/1.png", "x/animals/dog/2.png", "x/plants/3.png")
    assert sorted(read(tmp_path).texts["label"]) == ["animals/cat", "animals/dog", "plants"]
    write("y/tiny/train/n1/images/1.png", "y/tiny/train/n2/images/2.png", "y/tiny/val/n1/images/3.png")
    rows = read(tmp_path / "y")
    assert list(rows.texts["label"]) == ["n1", "n2", "n1"]
    assert rows.parts.tolist() == [0, 0, 1]


def test_other_files_are_named_in_notes(write, tmp_path):
    write("cats/1.png", "cats/2.png", "dogs/3.png", "dogs/4.png")
    (tmp_path / "cats" / "notes.txt").write_text("text")
    (tmp_path / "cats" / ".hidden").write_text("text")
    (tmp_path / "dogs" / "photo.HEIC").write_bytes(b"\0")
    notes = read(tmp_path).notes()
    assert "1 file skipped: .heic is not decoded (first: dogs/photo.HEIC); convert them to JPEG or PNG" in notes
    assert "1 file skipped: not pictures by name (first: cats/notes.txt)" in notes


def test_pictures_outside_of_the_class_folders_are_named(write, tmp_path):
    write("cats/1.png", "dogs/2.png", "lost.png")
    with pytest.raises(
        DataError, match=r"lost\.png: a picture outside of the class folders, expected a folder for each"
    ):
        read(tmp_path)


def test_unlabelled_test_pictures_are_left_out(write):
    rows = read(write("train/a/1.png", "train/b/2.png", "test/3.png", "test/4.png"))
    assert len(rows) == 2
    assert "2 pictures skipped: without a class folder (first: test/3.png)" in rows.notes()


def test_too_few_classes(write, tmp_path):
    write("flat/1.png", "flat/2.png", "one/cats/1.png")
    with pytest.raises(
        DataError, match="flat: no pictures in folders, expected at least two class folders; make a folder"
    ):
        read(tmp_path / "flat")
    with pytest.raises(
        DataError, match="one: every picture is in the class 'cats', expected at least two class folders"
    ):
        read(tmp_path / "one")


def test_roles_that_folders_do_not_have(write, tmp_path):
    write("cats/1.png", "dogs/2.png")
    with pytest.raises(
        DataError, match="pictures in 2 class folders, expected a caption for each picture; choose another"
    ):
        read(tmp_path, "caption")
    with pytest.raises(DataError, match="expected a question and an answer for each picture"):
        read(tmp_path, "question", "answer")


def test_archives_of_class_folders(write, tmp_path):
    write("photos/cats/1.png", "photos/dogs/2.png")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in ("photos/cats/1.png", "photos/dogs/2.png"):
            archive.write(tmp_path / name, name)
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "photos", ".")
    for name in ("a.zip", "a.tar.gz"):
        assert labels(read(tmp_path / name)) == {"cats/1.png": "cats", "dogs/2.png": "dogs"}


@pytest.mark.parametrize(
    ("names", "texts"),
    [
        (["hello.png", "two words.png"], ["hello", "two words"]),
        (["hello_0.png", "hello_1.png", "you_2.png"], ["hello", "hello", "you"]),
        (["1_hello_77.jpg", "2_you_78.jpg"], ["hello", "you"]),
        (["001_hello.png", "002_you.png"], ["hello", "you"]),
        (["hello.png", "you_2.png"], ["hello", "you_2"]),
    ],
)
def test_names_of_pictures_as_their_texts(write, names, texts):
    rows = read(write(*names), "text")
    assert list(rows.texts["text"]) == texts
    assert f"the text of each picture is its file name: '{texts[0]}' for {names[0]}" in rows.notes()


def test_names_in_folders_for_training_and_validation(write):
    rows = read(write("train/a.png", "val/b.png"), "text")
    assert (list(rows.texts["text"]), rows.parts.tolist()) == (["a", "b"], [0, 1])


@pytest.mark.skipif(sys.platform == "darwin", reason="its file names are UTF-8")
def test_a_class_that_is_not_utf8_is_refused(write, tmp_path):
    write("cats/1.png", "dogs/2.png")
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    (tmp_path / "dogs").rename(os.fsdecode(folder))
    with pytest.raises(DataError, match="is not UTF-8, expected a name in UTF-8; rename the folder"):
        read(tmp_path)


def test_a_path_without_pictures(tmp_path):
    (tmp_path / "a.txt").write_text("text\n")
    with pytest.raises(DataError, match="no pictures, nor a table of paths of pictures, expected a folder or archive"):
        read(tmp_path)
    with pytest.raises(DataError, match="no such file or folder"):
        read(tmp_path / "missing")
