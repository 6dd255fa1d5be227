"""Scaled rotary frequencies: properties of each kind; tests/pretrained/odd_shapes.py compares with transformers."""

import math

import pytest
import torch

from saccade.nn.positions import Rotary
from saccade.nn.rotary_scaling import RotaryScaling

CPU = torch.device("cpu")


def angles(scaling, count=12, width=8):
    return Rotary(width, 10000.0, scaling).angles(0, count, CPU)[0, :, 0]


def test_interpolation_gives_a_position_the_angles_of_half_of_it():
    torch.testing.assert_close(angles(RotaryScaling("linear", factor=2.0))[::2], angles(None)[:6])


def test_a_factor_of_attention_scales_queries_and_keys_and_not_their_angles():
    scaled = angles(RotaryScaling("yarn", factor=1.0, original_positions=64, attention_factor=1.5))
    torch.testing.assert_close(scaled.abs(), torch.full_like(scaled.abs(), 1.5))
    torch.testing.assert_close(scaled / 1.5, angles(None))


@pytest.mark.parametrize("kind", ["yarn", "llama3"])
def test_fast_rotations_stay_and_slow_ones_are_interpolated(kind):
    scaling = RotaryScaling(kind, factor=4.0, original_positions=512)
    plain, scaled = (s.frequencies(64, 10000.0, 8, CPU) for s in (RotaryScaling(), scaling))
    assert torch.equal(scaled[:4], plain[:4])
    torch.testing.assert_close(scaled[-4:], plain[-4:] / 4)
    assert torch.all(scaled <= plain) and torch.all(scaled >= plain / 4.0001)


def test_dynamic_scaling_starts_beyond_the_original_context():
    scaling = RotaryScaling("dynamic", factor=2.0, original_positions=10)
    assert torch.equal(angles(scaling, 10), angles(None, 10))
    longer = angles(scaling, 11)
    assert torch.equal(longer[:, 0], angles(None, 11)[:, 0])  # the fastest pair always rotates by 1
    assert torch.all(longer[1:, 1:].angle() < angles(None, 11)[1:, 1:].angle())


def test_dynamic_angles_do_not_depend_on_earlier_calls():
    rotary = Rotary(8, 10000.0, RotaryScaling("dynamic", factor=2.0, original_positions=10))
    rotary.angles(0, 30, CPU)
    assert torch.equal(rotary.angles(0, 12, CPU), Rotary(8, 10000.0, rotary.scaling).angles(0, 12, CPU))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"factor": 0.0}, "factor and attention_factor must be above 0, but are 0.0 and 1.0"),
        ({"kind": "yarn"}, "original_positions must be at least 1 for yarn, but is 0"),
        (
            {"kind": "llama3", "original_positions": 8, "low_frequency_factor": 4.0},
            "high_frequency_factor must be above low_frequency_factor",
        ),
        ({"kind": "yarn", "original_positions": 8, "beta_slow": 0.0}, "beta_fast and beta_slow must be above 0"),
    ],
)
def test_impossible_settings_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        RotaryScaling(**values)


def test_the_base_grows_as_published():
    scaling = RotaryScaling("dynamic", factor=2.0, original_positions=10)
    slowest = scaling.frequencies(8, 10000.0, 20, CPU)[-1]
    base = 10000.0 * (2.0 * 20 / 10 - 1) ** (8 / 6)
    assert math.isclose(float(slowest), base ** (-6 / 8), rel_tol=1e-5)
