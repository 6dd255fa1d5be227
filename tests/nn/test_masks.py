"""Masks: each class against a plain double loop, and its lowered form."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from saccade.nn.masks import Causal, Full, Graph, Intersection, Mask, Padding, Prefix, Segments, Window, combine

ROWS, TOKENS, CPU = 3, 6, torch.device("cpu")

torch.manual_seed(0)
KEEP = torch.rand(ROWS, TOKENS) < 0.6
LENGTH = torch.tensor([0, 2, 6])
SEGMENT = torch.tensor([[0, 0, 0, 1, 1, 1], [0, 1, 1, 1, 2, 2], [3, 3, 3, 3, 3, 3]])
EDGES = torch.rand(TOKENS, TOKENS) < 0.5
EDGES_BY_ROW = torch.rand(ROWS, TOKENS, TOKENS) < 0.5

# each mask beside its rule for row b, query position q and key position k
RULES = {
    "everything": (Full(), lambda b, q, k: True),
    "causal": (Causal(), lambda b, q, k: k <= q),
    "window": (Window(2), lambda b, q, k: -2 < k - q < 2),
    "window_of_one": (Window(1), lambda b, q, k: k == q),
    "padding": (Padding(KEEP), lambda b, q, k: bool(KEEP[b, k])),
    "prefix": (Prefix(LENGTH), lambda b, q, k: k <= q or k < LENGTH[b]),
    "segments": (Segments(SEGMENT), lambda b, q, k: SEGMENT[b, q] == SEGMENT[b, k]),
    "graph": (Graph(EDGES), lambda b, q, k: bool(EDGES[q, k])),
    "graph_by_row": (Graph(EDGES_BY_ROW), lambda b, q, k: bool(EDGES_BY_ROW[b, q, k])),
    "causal_window": (Causal() & Window(3), lambda b, q, k: q - 3 < k <= q),
    "padding_causal": (Padding(KEEP) & Causal(), lambda b, q, k: k <= q and bool(KEEP[b, k])),
    "three": (
        Segments(SEGMENT) & Causal() & Padding(KEEP),
        lambda b, q, k: SEGMENT[b, q] == SEGMENT[b, k] and k <= q and bool(KEEP[b, k]),
    ),
}


def by_loop(rule, starts, queries, keys):
    table = [[[bool(rule(b, s + q, k)) for k in range(keys)] for q in range(queries)] for b, s in enumerate(starts)]
    return torch.tensor(table)  # (B, Q, K)


def seen(lowered, queries, keys):
    return lowered.allowed(0, queries).expand(ROWS, 1, queries, keys)[:, 0]


@pytest.mark.parametrize("name", RULES)
def test_a_mask_equals_its_rule_for_every_row_query_and_key(name):
    mask, rule = RULES[name]
    lowered = mask.lower(TOKENS, TOKENS, 0, CPU)
    assert torch.equal(seen(lowered, TOKENS, TOKENS), by_loop(rule, [0] * ROWS, TOKENS, TOKENS))


@pytest.mark.parametrize("name", RULES)
def test_positions_continue_after_cached_tokens(name):
    """Two queries that follow four cached tokens are the positions 4 and 5."""
    mask, rule = RULES[name]
    lowered = mask.lower(2, TOKENS, 4, CPU)
    assert torch.equal(seen(lowered, 2, TOKENS), by_loop(rule, [4] * ROWS, 2, TOKENS))


@pytest.mark.parametrize("name", RULES)
def test_rows_may_have_different_starts(name):
    mask, rule = RULES[name]
    starts = torch.tensor([0, 4, 2])
    lowered = mask.lower(2, TOKENS, starts, CPU)
    assert torch.equal(seen(lowered, 2, TOKENS), by_loop(rule, starts.tolist(), 2, TOKENS))


@pytest.mark.parametrize("name", RULES)
def test_a_slice_of_the_rows_is_a_slice_of_the_mask(name):
    mask, _ = RULES[name]
    lowered = mask.lower(TOKENS, TOKENS, 0, CPU)
    whole = seen(lowered, TOKENS, TOKENS)
    assert torch.equal(lowered.allowed(2, 5).expand(ROWS, 1, 3, TOKENS)[:, 0], whole[:, 2:5])


@pytest.mark.parametrize("name", RULES)
def test_the_kernel_mask_equals_the_mask_except_for_empty_queries(name):
    """A softmax over nothing is NaN: a query without keys gets no mask, and its output is set to zero afterwards."""
    mask, rule = RULES[name]
    lowered = mask.lower(TOKENS, TOKENS, 0, CPU)
    expected = by_loop(rule, [0] * ROWS, TOKENS, TOKENS)
    nobody = ~expected.any(-1, keepdim=True)
    if lowered.tensor is None:
        assert lowered.causal == (name == "causal")
        assert not nobody.any()
    else:
        assert torch.equal(lowered.tensor.expand(ROWS, 1, TOKENS, TOKENS)[:, 0], expected | nobody)
        assert torch.equal(lowered.empty.expand(ROWS, 1, TOKENS, 1)[:, 0], nobody)


@pytest.mark.parametrize(
    ("mask", "queries", "keys", "start", "mode"),
    [
        (Full(), 4, 4, 0, "none"),
        (Full(), 1, 9, 8, "none"),
        (Causal(), 4, 4, 0, "causal"),
        (Causal(), 1, 5, 4, "none"),  # the newest token sees all there is
        (Causal(), 2, 6, 4, "tensor"),
        (Causal(), 4, 6, 0, "tensor"),  # not the square that the kernel means by causal
        (Causal(), 1, 5, torch.tensor([4, 2]), "tensor"),
        (Padding(KEEP), 4, 6, 0, "tensor"),
        (Window(3), 4, 4, 0, "tensor"),
        (Causal() & Window(3), 4, 4, 0, "tensor"),
    ],
)
def test_lowering_picks_the_cheapest_mode_of_the_kernel(mask, queries, keys, start, mode):
    lowered = mask.lower(queries, keys, start, CPU)
    found = "causal" if lowered.causal else "none" if lowered.tensor is None else "tensor"
    assert found == mode


@given(st.lists(st.sampled_from(sorted(RULES)), min_size=1, max_size=4))
def test_masks_combine_as_and(names):
    mask = combine(None, *(RULES[name][0] for name in names), None)
    expected = by_loop(lambda b, q, k: all(RULES[n][1](b, q, k) for n in names), [0] * ROWS, TOKENS, TOKENS)
    assert torch.equal(seen(mask.lower(TOKENS, TOKENS, 0, CPU), TOKENS, TOKENS), expected)


def test_combining_no_masks_returns_none_and_one_mask_itself():
    causal = Causal()
    assert combine(None, None) is None
    assert combine(None, causal) is causal
    assert isinstance(causal & Window(2), Intersection)


def test_a_custom_mask_must_implement_allow():
    class Odd(Mask):
        pass

    with pytest.raises(TypeError, match=r"abstract class Odd .*allow"):
        Odd()
