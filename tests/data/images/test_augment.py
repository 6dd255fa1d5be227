"""Augmentation: a pure function of the seed that changes what it says and nothing else."""

import numpy as np
import pytest

from saccade.data.images.augment import RECOLOURS, WARPS, Augment, augment, centre, mix

NONE = Augment(flip=False)
STRONG = Augment(shift=2, zoom=0.5, colour=0.4, operations=2, erase=0.3)


def images(count: int = 6, size: int = 12) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, (count, size, size, 3), dtype=np.uint8)


def test_without_changes_the_images_are_returned_as_they_are() -> None:
    x = images()
    assert np.array_equal(augment(x, 12, NONE, 1), x)


def test_the_same_seed_gives_the_same_images_and_another_one_others() -> None:
    x = images()
    before = x.copy()
    assert np.array_equal(augment(x, 10, STRONG, 7), augment(x, 10, STRONG, 7))
    assert not np.array_equal(augment(x, 10, STRONG, 7), augment(x, 10, STRONG, 8))
    assert np.array_equal(x, before), "the input is not changed"


def test_half_of_the_images_are_mirrored() -> None:
    x = images(400, 4)
    y = augment(x, 4, Augment(), 1)
    same, mirrored = ((y == other).all((1, 2, 3)) for other in (x, x[:, :, ::-1]))
    assert (same | mirrored).all() and 150 < same.sum() < 250


def test_a_shift_moves_the_image_and_reflects_the_border() -> None:
    x = images(50, 8)
    padded = np.pad(x, ((0, 0), (2, 2), (2, 2), (0, 0)), mode="reflect")
    y = augment(x, 8, Augment(flip=False, shift=2), 5)
    offsets = {
        (row, column)
        for number in range(50)
        for row in range(5)
        for column in range(5)
        if np.array_equal(y[number], padded[number, row : row + 8, column : column + 8])
    }
    assert len(offsets) > 15  # of 25
    assert all(
        any(
            np.array_equal(y[number], padded[number, row : row + 8, column : column + 8])
            for row in range(5)
            for column in range(5)
        )
        for number in range(50)
    )


def test_a_smaller_size_is_a_random_crop_and_the_centre_is_fixed() -> None:
    x = images(30, 10)
    y = augment(x, 6, NONE, 2)
    assert y.shape == (30, 6, 6, 3)
    windows = np.lib.stride_tricks.sliding_window_view(x, (6, 6), axis=(1, 2)).transpose(0, 1, 2, 4, 5, 3)
    assert all((windows[number] == y[number]).all((2, 3, 4)).any() for number in range(30))
    assert np.array_equal(centre(x, 6), x[:, 2:8, 2:8])


def test_an_erased_square_is_grey_and_the_rest_unchanged() -> None:
    x = np.zeros((20, 12, 12, 3), dtype=np.uint8)
    y = augment(x, 12, Augment(flip=False, erase=0.5), 4)
    assert set(np.unique(y)) == {0, 128}
    assert (y[..., 0] == 128).sum((1, 2)).max() <= 36  # 6 x 6; less at the border


def test_zoom_enlarges_a_part() -> None:
    gradient = np.tile(np.arange(0, 240, 10, dtype=np.uint8)[None, :, None, None], (8, 1, 24, 3))
    y = augment(gradient, 24, Augment(flip=False, zoom=0.75), 1).astype(int)
    spread = y[:, -1, 0, 0] - y[:, 0, 0, 0]
    assert (spread < 230).any() and (spread > 90).all()


@pytest.mark.parametrize("operation", range(len(WARPS) + len(RECOLOURS)))
def test_every_random_operation_changes_an_image_and_nothing_at_strength_0(operation: int) -> None:
    x = images(1)[0]
    if operation < len(WARPS):
        assert np.allclose(WARPS[operation](0.0), np.eye(3)) and not np.allclose(WARPS[operation](0.5), np.eye(3))
        return
    recolour = RECOLOURS[operation - len(WARPS)]
    assert recolour.__name__ == "_autocontrast" or np.allclose(recolour(x, 0.0), x)
    assert not np.allclose(recolour(x // 2, 0.7), x // 2)


def test_mixup_and_cutmix_weigh_labels_by_what_is_visible() -> None:
    x = np.stack([np.full((10, 10, 3), value, dtype=np.uint8) for value in (0, 200)])
    for config in (Augment(mixup=1.0), Augment(cutmix=1.0)):
        for seed in range(20):
            mixed, mixture = mix(x, config, seed)
            assert mixture is not None
            own, other = mixture.weight[0].item(), int(mixture.partner[0])
            expected = own * x[0].mean() + (1 - own) * x[other].mean()
            assert mixed[0].mean() == pytest.approx(expected, abs=0.6)
    assert mix(x, Augment(), 1)[1] is None
    assert mix(x[:1], Augment(mixup=1.0), 1)[1] is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shift": -1}, "shift must be 0 or more, but is -1"),
        ({"zoom": 0.99}, "zoom must be from 0 to 0.95, but is 0.99"),
        ({"magnitude": 2.0}, "magnitude must be from 0 to 1, but is 2.0"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Augment(**settings)
