"""Augmentation of lines: reproducible by the seed, nothing without settings, and each change what it is called."""

import numpy as np
import pytest

from saccade.data.images.line_augment import LineAugment, augment_lines

NONE = {"shift": 0.0, "slant": 0.0, "contrast": 0.0, "noise": 0.0}


def images(count: int = 6) -> np.ndarray:
    """A dark vertical stroke in the middle of a light line."""
    lines = np.full((count, 16, 48, 3), 220, dtype=np.uint8)
    lines[:, :, 22:26] = 20
    return lines


def test_the_seed_alone_decides():
    first, again, other = (augment_lines(images(), LineAugment(), seed) for seed in (1, 1, 2))
    assert first.dtype == np.uint8 and first.shape == (6, 16, 48, 3)
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert not np.array_equal(first[0], first[1]), "each image is changed on its own"


def test_without_settings_nothing_changes():
    assert np.array_equal(augment_lines(images(), LineAugment(**NONE), 1), images())


def test_a_shift_moves_the_stroke_and_a_slant_leans_it():
    shifted = augment_lines(images(), LineAugment(**NONE | {"shift": 3.0}), 1)
    centres = (255.0 - shifted[:, :, :, 0]).argmax(2)  # of each row of pixels
    assert np.ptp(centres[:, 8]) >= 2 and all(np.ptp(rows) == 0 for rows in centres)
    slanted = augment_lines(images(), LineAugment(**NONE | {"slant": 0.4}), 1)
    assert max(np.ptp((255.0 - line[:, :, 0]).argmax(1)) for line in slanted) >= 3
    assert slanted[:, :, 0].min() > 200, "the border is repeated, not black"


def test_contrast_and_noise_change_levels_of_grey():
    contrast = augment_lines(images(), LineAugment(**NONE | {"contrast": 0.5}), 1)
    assert len({tuple(np.unique(line)) for line in contrast}) == 6
    noisy = augment_lines(images(), LineAugment(**NONE | {"noise": 20.0}), 1).astype(float)
    assert 1 < (noisy - images())[:, :, :20].std() < 20
    assert np.array_equal(noisy[..., 0], noisy[..., 1]), "grey"


@pytest.mark.parametrize(("name", "value"), [("shift", -1.0), ("slant", 2.0), ("contrast", 1.5), ("noise", 200.0)])
def test_a_setting_out_of_range_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be from 0 to .*, but is {value}"):
        LineAugment(**{name: value})
