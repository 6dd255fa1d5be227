"""Odd shapes of Whisper: equal to transformers in both directions, or refused by name."""

import pytest

pytest.importorskip("transformers", reason="the oracle; installed with the [test] extra")

from tests.pretrained.odd_speech import SHAPES, try_shape


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_an_odd_shape_equals_transformers_or_is_refused_by_name(shape, tmp_path):
    outcome, detail = try_shape(shape, tmp_path)
    if shape.refused:
        assert outcome == "refused" and shape.refused in detail, detail
    else:
        assert outcome == "equal", detail
