"""The files of the shapes demo: labels that the pixels confirm, and validation that training has not seen."""

import csv
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage

from saccade.demo import shapes
from saccade.demo._scenes import COLOURS
from saccade.errors import ResourceError

Image = pytest.importorskip("PIL.Image", reason="the demo needs Pillow; pip install 'saccade[demo]'")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """All files of the demo, few of each."""
    folder = tmp_path_factory.mktemp("shapes")
    shapes.write_classes(folder, train_rows=120, valid_rows=48)
    shapes.write_captions(folder, train_rows=150, valid_rows=60)
    shapes.write_questions(folder, train_rows=80, valid_rows=30)
    return folder


def read(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def blobs(path):
    """The objects of a picture, largest first: colour, side of the box around it, centre of the box."""
    picture = np.asarray(Image.open(path).convert("RGB")).astype(float)
    assert picture.shape == (64, 64, 3)
    found = []
    for name, rgb in COLOURS.items():
        close = np.linalg.norm(picture - rgb, axis=2) < 30
        areas, _ = ndimage.label(close, np.ones((3, 3)))
        for rows, columns in ndimage.find_objects(areas):
            side = max(rows.stop - rows.start, columns.stop - columns.start)
            if side > 4:  # not the edge between two other colours
                found.append((side, name, (columns.start + columns.stop) / 2, (rows.start + rows.stop) / 2))
    return sorted(found, reverse=True)


def test_a_class_is_the_colour_of_the_only_large_object(folder):
    for path in (folder / "classes").glob("*/*/*.png"):
        objects = blobs(path)
        assert 3 <= len(objects) <= 5
        assert objects[0][1] == path.parent.name.split("-")[0], path
        assert objects[0][0] > 13 >= objects[1][0]


def test_classes_are_equally_frequent_in_both_parts(folder):
    for part, count in (("train", 5), ("val", 2)):
        counts = Counter(path.parent.name for path in (folder / "classes" / part).glob("*/*.png"))
        assert len(counts) == 24 and set(counts.values()) == {count}


def test_the_colours_of_a_picture_do_not_tell_its_class(folder):
    """Small objects have other colours of classes, and other shapes."""
    several = sum(len({name for _, name, *_ in blobs(path)}) > 1 for path in (folder / "classes").glob("*/*/*.png"))
    assert several > 0.8 * 168


def test_captions_agree_with_the_pixels(folder):
    rows = read(folder / "captions.csv")
    grammar = r"a (small|large) (\w+) (\w+) (left of|right of|above|below) a (small|large) (\w+) (\w+)"
    for row in rows:
        size, colour, _, relation, other_size, other_colour, _ = re.fullmatch(grammar, row["caption"]).groups()
        objects = blobs(folder / row["image"])
        assert sorted(name for _, name, *_ in objects) == sorted([colour, other_colour])
        assert [side > 13 for side, *_ in objects] == sorted([size == "large", other_size == "large"], reverse=True)
        if colour != other_colour:
            (x, y), (other_x, other_y) = (
                next(place for _, found, *place in objects if found == name) for name in (colour, other_colour)
            )
            across, down = x - other_x, y - other_y
            seen = ("left of", "right of")[across > 0] if abs(across) > abs(down) else ("above", "below")[down > 0]
            assert seen == relation, row


def test_captions_of_validation_are_new_and_distinct_but_their_objects_are_not(folder):
    rows = read(folder / "captions.csv")
    train, valid = ([row["caption"] for row in rows if row["split"] == part] for part in ("train", "val"))
    assert (len(train), len(valid)) == (150, 60)
    assert len(set(valid)) == 60 and not set(train) & set(valid)
    words = {word for caption in train for word in caption.split()}
    assert {word for caption in valid for word in caption.split()} <= words


def test_questions_agree_with_the_pixels(folder):
    rows = read(folder / "questions.csv")
    checked = 0
    for row in rows:
        names = [name for _, name, *_ in blobs(folder / row["image"])]
        assert 1 <= len(names) <= 4
        if match := re.fullmatch(r"how many (\w+) objects are there\?", row["question"]):
            assert str(names.count(match[1])) == row["answer"]
            checked += 1
        if row["question"].startswith("what colour"):
            assert row["answer"] in names
            checked += 1
    assert checked > 40


def test_a_picture_is_in_one_part_only(folder):
    for kind in ("captions", "questions"):
        rows = read(folder / f"{kind}.csv")
        assert all(Path(row["image"]).name.startswith(row["split"]) for row in rows)
        assert {row["image"] for row in rows} == {str(p.relative_to(folder)) for p in (folder / kind).iterdir()}
    content = [path.read_bytes() for path in folder.rglob("*.png")]
    assert len(set(content)) == len(content)


def test_plans_and_examples(tmp_path):
    files = shapes.write_classes(tmp_path, train_rows=24, valid_rows=24)
    assert (files.train, files.valid) == (tmp_path / "classes", None)
    assert files.plan == (
        "24 classes, 24 pictures for training and 24 others for validation: a large object, whose colour and shape are "
        "the class, among small ones"
    )
    files = shapes.write_captions(tmp_path, train_rows=20, valid_rows=10)
    assert files.train == tmp_path / "captions.csv"
    assert files.plan == (
        "30 captions of two objects, 20 pictures for training and 10 for validation, whose captions are not in the "
        "training data"
    )
    assert all(example["image"].is_file() for example in files.examples) and len(files.examples) == 3
    paired = shapes.write_image_text(tmp_path, train_rows=20, valid_rows=10)
    assert [example["image"] for example in paired.examples[::3]] == [example["image"] for example in files.examples]
    assert len({example["text"] for example in paired.examples}) == 3 and len(paired.examples) == 9
    files = shapes.write_questions(tmp_path, train_rows=30, valid_rows=10)
    numbers = re.fullmatch(
        r"(\d+) questions of 7 kinds with (\d+) answers, about 30 pictures for training and 10 others for validation",
        files.plan,
    )
    rows = read(tmp_path / "questions.csv")
    assert [int(number) for number in numbers.groups()] == [len(rows), len({row["answer"] for row in rows})]
    pictures = [example["image"] for example in files.examples]
    assert len(pictures) > len(set(pictures)) == 3  # several questions about one picture
    assert not {str(path.relative_to(tmp_path)) for path in pictures} & {row["image"] for row in rows}


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    script = "from pathlib import Path; from saccade.demo import shapes; import sys; folder = Path(sys.argv[1]); "
    script += "shapes.write_captions(folder, seed=3, train_rows=20, valid_rows=5); "
    script += "shapes.write_questions(folder, seed=3, train_rows=20, valid_rows=5)"
    root = Path(shapes.__file__).parents[2]
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "there")], check=True, env=environment, cwd=root)
    for seed, folder in ((3, "here"), (4, "other")):
        shapes.write_captions(tmp_path / folder, seed=seed, train_rows=20, valid_rows=5)
        shapes.write_questions(tmp_path / folder, seed=seed, train_rows=20, valid_rows=5)
    folders = (tmp_path / name for name in ("here", "there", "other"))
    here, there, other = ({str(p.relative_to(f)): p.read_bytes() for p in f.rglob("*.*")} for f in folders)
    assert here == there and len(here) == 58
    assert not [name for name in here if here[name] == other[name]]


def test_a_second_run_leaves_the_files_as_they_are_and_repairs_a_damaged_one(tmp_path):
    shapes.write_captions(tmp_path, train_rows=10, valid_rows=5)
    pictures = sorted(tmp_path.rglob("*.png"))
    content = pictures[0].read_bytes()
    pictures[0].write_bytes(b"damaged")
    for path in pictures:
        os.utime(path, (1, 1))
    shapes.write_captions(tmp_path, train_rows=10, valid_rows=5)
    assert pictures[0].read_bytes() == content
    assert [path for path in pictures if path.stat().st_mtime != 1] == pictures[:1]


def test_a_folder_that_cannot_be_created_is_reported(tmp_path):
    file = tmp_path / "file"
    file.write_text("in the way")
    with pytest.raises(ResourceError, match=re.escape(f"cannot write the pictures into {file}: ")):
        shapes.write_classes(file, train_rows=1, valid_rows=1)
