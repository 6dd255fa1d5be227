"""Pictures of digits: complete, centred within a shift, the same for the same seed, in a folder for each digit."""

import io
import random

import numpy as np
import pytest

from saccade.data.formats.image_rows import ImageSettings, read_pictures, split_image_rows
from saccade.demo import digits
from saccade.demo._lines import font_names

Image = pytest.importorskip("PIL.Image", reason="the demo needs Pillow; pip install 'saccade[demo]'")


def pixels(digit, seed):
    return np.asarray(Image.open(io.BytesIO(digits.render_digit(digit, random.Random(seed)))))


def test_a_digit_is_white_on_black_and_the_same_for_the_same_seed():
    picture = pixels("7", 3)
    assert picture.shape == (digits.SIZE, digits.SIZE) and picture.dtype == np.uint8
    assert picture.max() > 200 and np.median(picture) == 0
    assert np.array_equal(picture, pixels("7", 3)) and not np.array_equal(picture, pixels("7", 4))


@pytest.mark.parametrize("digit", "0123456789")
def test_no_digit_is_cut_off(digit):
    for seed in range(60):
        picture = pixels(digit, seed)
        border = np.concatenate((picture[[0, -1]].ravel(), picture[:, [0, -1]].ravel()))
        assert border.max() < 128, f"seed {seed} of {len(font_names())} fonts"


def test_the_files_are_classes_for_training_and_validation(tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    files = digits.write_digits(tmp_path / "digits", train_rows=40, valid_rows=20)
    assert "40 pictures of digits for training and 20 held out" in files.plan
    rows = read_pictures(files.train, ImageSettings())
    train, valid = split_image_rows(rows, ImageSettings())
    assert (len(train), len(valid)) == (40, 20)
    assert sorted(set(train.texts["label"])) == sorted(set(valid.texts["label"])) == list("0123456789")
