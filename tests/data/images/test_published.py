"""Image data sets as their authors publish them."""

import numpy as np
import pytest

from saccade.data.formats.image_rows import ImageSettings, read_image_rows, split_image_rows
from saccade.data.images.decoded import decode_pictures
from saccade.data.images.resizing import Resize
from saccade.errors import DataError
from saccade.tasks import guess_task


def test_mnist(dataset):
    path = dataset("vision/mnist")
    assert guess_task(path) == "image_classification"
    rows = read_image_rows(path, ("label",), ImageSettings())
    assert (len(rows), (rows.parts == 0).sum(), (rows.parts == 2).sum()) == (70_000, 60_000, 10_000)
    assert sorted(set(rows.texts["label"])) == list("0123456789")
    assert rows.pictures.read(0).shape == (28, 28, 3)


def test_cifar_10_in_npz_files(dataset):
    path = dataset("vision/cifar10")
    assert guess_task(path) == "image_classification"
    rows = read_image_rows(path, ("label",), ImageSettings())
    counts = dict(zip(*np.unique(list(rows.texts["label"]), return_counts=True), strict=True))
    assert len(counts) == 10 and counts["airplane"] == 6000
    assert (rows.parts == 0).sum() == 50_000


def test_flickr_as_it_is_published(dataset):
    path = dataset("caption/flickr8k_mini")
    assert guess_task(path) == "captioning"
    rows = read_image_rows(path, ("caption",), ImageSettings())
    assert (len(rows), len(rows.pictures)) == (10_000, 2_000)
    assert rows.texts["caption"][1] == "A girl going into a wooden building ."
    decoded = decode_pictures(rows.pictures, Resize("crop", 32))
    assert decoded.uniform and len(decoded) == 2000
    train, valid = split_image_rows(rows, ImageSettings(), decoded.hashes)
    assert (len(train), len(valid)) == (9_000, 1_000)


def test_emoji_have_no_labels(dataset):
    with pytest.raises(
        DataError, match=r"names\.json: a file inside an archive, expected the texts of its pictures outside"
    ):
        guess_task(dataset("caption/twemoji_72px.zip"))
