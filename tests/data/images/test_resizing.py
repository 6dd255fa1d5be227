"""Resizing: sizes by mode, equal to Pillow's own resize and to the crop of transformers."""

import numpy as np
import pytest
from PIL import Image

from saccade.data.images.resizing import Resize
from saccade.errors import DataError
from saccade.pretrained.image_processors import ImageProcessor

PIXELS = np.random.default_rng(0).integers(0, 256, (30, 47, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("resize", "shape"),
    [
        (Resize("none", 0), (30, 47)),
        (Resize("short", 15), (15, 23)),
        (Resize("short", 60), (60, 94)),
        (Resize("exact", 16), (16, 16)),
        (Resize("crop", 16), (16, 16)),
        (Resize("crop", 16, crop=15), (15, 15)),
        (Resize("height", 10), (10, 16)),
        (Resize("height", 10, max_width=12), (10, 12)),
    ],
)
def test_sizes_by_mode(resize, shape):
    assert resize.apply(PIXELS).shape == (*shape, 3)
    assert resize.shape(30, 47) == shape


def test_tall_pictures():
    tall = PIXELS.transpose(1, 0, 2)
    assert Resize("short", 15).apply(np.ascontiguousarray(tall)).shape == (23, 15, 3)
    assert Resize("height", 4).shape(1000, 3) == (4, 1)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "lanczos"])
def test_pixels_are_those_of_pillow(interpolation):
    method = Image.Resampling[interpolation.upper()]
    expected = np.asarray(Image.fromarray(PIXELS).resize((23, 15), method))
    assert np.array_equal(Resize("short", 15, interpolation=interpolation).apply(PIXELS), expected)
    assert np.array_equal(Resize("crop", 15, interpolation=interpolation).apply(PIXELS), expected[:, 4:19])


@pytest.mark.parametrize(("height", "width"), [(200_000, 1), (1, 200_000)])
def test_a_long_thin_picture_is_refused_before_it_is_resized(height, width):
    pixels = np.zeros((height, width, 3), np.uint8)
    after = (64 * height, 64 * width)
    message = (
        f"{width:,} x {height:,} pixels, resized {after[1]:,} x {after[0]:,}, expected at most 64 million after "
        "resizing; cut the picture into parts, or remove it"
    )
    for mode in ("short", "crop"):
        with pytest.raises(DataError, match=f"^thin.png: {message}$"):
            Resize(mode, 64).apply(pixels, "thin.png")
    with pytest.raises(DataError, match=f"^picture: {message}$"):
        ImageProcessor((64,), (64, 64)).apply(pixels)
    assert Resize("exact", 64).apply(pixels).shape == (64, 64, 3)


def test_an_unchanged_size_changes_no_pixel():
    assert np.array_equal(Resize("short", 30).apply(PIXELS), PIXELS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "square", "size": 3}, "mode must be one of none, short, exact, height, crop, but is 'square'"),
        ({"mode": "exact", "size": 0}, "size must be at least 1, but is 0"),
        ({"mode": "crop", "size": 3, "crop": 4}, "crop must be 0, or from 1 to size with mode crop, but is 4"),
        ({"mode": "exact", "size": 3, "crop": 2}, "crop must be 0, or from 1 to size with mode crop, but is 2"),
        ({"mode": "height", "size": 3, "max_width": -1}, "max_width must be at least 0, but is -1"),
        (
            {"mode": "exact", "size": 3, "interpolation": "cubic"},
            "interpolation must be one of bilinear, bicubic, lanczos",
        ),
    ],
)
def test_wrong_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        Resize(**settings)
