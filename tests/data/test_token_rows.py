"""TokenRows: rows come back as they were put in, and are padded between special tokens."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from saccade.data.token_rows import TokenRows

ROWS = st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=9), max_size=12)


@given(ROWS)
def test_rows_come_back(rows: list[list[int]]) -> None:
    found = TokenRows.of(rows)
    assert len(found) == len(rows)
    assert [found[at].tolist() for at in range(len(rows))] == rows
    assert found.lengths.tolist() == [len(row) for row in rows]


@given(ROWS.filter(bool), st.lists(st.integers(0, 9), max_size=2), st.lists(st.integers(0, 9), max_size=2), st.data())
def test_rows_are_padded_between_special_tokens(
    rows: list[list[int]], before: list[int], after: list[int], data: st.DataObject
) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=5))
    found = TokenRows.of(rows).pad(chosen, before, after)
    wide = max((len(rows[at]) for at in chosen), default=0) + len(before) + len(after)
    assert found.shape == (len(chosen), wide)
    for line, at in zip(found.tolist(), chosen, strict=True):
        whole = [*before, *rows[at], *after]
        assert line == whole + [-1] * (wide - len(whole))


def test_the_fingerprint_depends_on_tokens_and_rows() -> None:
    rows = [[1, 2], [3], []]
    others = ([[1, 2], [4], []], [[1], [2, 3], []], [[1, 2], [3]], [[3], [1, 2], []], [])
    prints = {TokenRows.of(one).fingerprint() for one in (rows, *others)}
    assert len(prints) == 6
    assert TokenRows.of(np.array(row) for row in rows).fingerprint() == TokenRows.of(rows).fingerprint()
