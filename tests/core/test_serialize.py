"""JSON in parts: the same text as whole, in which no part is long."""

import math

from hypothesis import given
from hypothesis import strategies as st

from saccade.core.serialize import dump_json, json_parts

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
KEYS = st.text(max_size=3) | st.integers()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4) | st.tuples(inner)
)


@given(VALUES)
def test_the_parts_are_the_text(value):
    assert "".join(json_parts(value)) == dump_json(value)


def test_a_part_is_at_most_a_row():
    weights = [[[1 / 3] * 64 for _ in range(64)] for _ in range(8)]
    parts = list(json_parts({"maps": [{"name": "a", "weights": weights}], "score": math.nan}))
    assert max(map(len, parts)) < 64 * 24 and len(parts) > 8 * 64
