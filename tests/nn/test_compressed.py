"""Causal windows in blocks and compressed attention: equal to their plain forms, causal, cached, linear."""

import math
import time

import pytest
import torch

from saccade.nn.attention import Additive, Attention, Cosine, Dot, Heads
from saccade.nn.cache import KVCache
from saccade.nn.compressed import CompressedAttention, CompressedCausal
from saccade.nn.masks import Causal, CausalWindow, Window
from saccade.nn.positions import Rotary
from saccade.nn.probe import watch


def assert_same(a, b):
    torch.testing.assert_close(a, b, atol=1e-9, rtol=1e-9)


def compressed(kv_heads=2, **given):
    attention = CompressedAttention(8, Heads(2, kv_heads), **given).double()
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return attention


# --- causal windows ---


@pytest.mark.parametrize("tokens", [1, 3, 4, 5, 8, 13])
@pytest.mark.parametrize("score", [Dot, Cosine, lambda: Additive(4)])
def test_blocks_equal_the_mask_of_all_positions_with_their_gradients(tokens, score):
    attention = Attention(8, Heads(2, 1), score=score(), rotate=Rotary(4)).double()
    x = torch.randn(3, tokens, 8, dtype=torch.float64, requires_grad=True)
    direction = torch.randn(3, tokens, 8, dtype=torch.float64)
    found, gradients = [], []
    for mask in (CausalWindow(4), Causal() & Window(4)):
        out = attention(x, mask=mask)
        found.append(out)
        gradients.append(torch.autograd.grad((out * direction).sum(), [x, *attention.parameters()]))
    assert_same(found[0], found[1])
    for one, other in zip(*gradients, strict=True):
        assert_same(one, other)


def test_a_causal_window_sees_the_last_few_tokens_only():
    allowed = CausalWindow(3).allow(torch.arange(5)[None], torch.arange(5))[0]
    assert [row.nonzero().flatten().tolist() for row in allowed] == [[0], [0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]]


def test_a_causal_window_continues_from_a_cache_and_the_probe_shows_its_weights():
    attention, x = Attention(8, 2).double(), torch.randn(2, 9, 8, dtype=torch.float64)
    whole = attention(x, mask=CausalWindow(4))
    cache = KVCache(9)
    parts = []
    with watch(attention) as maps:
        for part in x.split([6, 1, 2], dim=1):
            parts.append(attention(part, mask=CausalWindow(4), cache=cache.layer("self")))
            cache.advance(part.shape[1])
        weights = maps[""].rows()
    assert_same(torch.cat(parts, dim=1), whole)
    assert_same(weights.sum(-1), torch.ones(2, 2, 9).double())
    assert ((weights > 0) == CausalWindow(4).allow(torch.arange(9)[None], torch.arange(9))).all()


def saved_bytes(attention, x, mask):
    """What the forward pass keeps for the backward pass."""
    sizes: dict[int, int] = {}

    def keep(tensor):
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = attention(x, mask=mask)
    out.sum().backward()
    return sum(sizes.values())


def test_memory_and_time_of_local_attention_are_linear_in_the_length():
    attention = Attention(16, 2)
    rows = {tokens: torch.randn(1, tokens, 16) for tokens in (1024, 4096)}
    kept = {tokens: saved_bytes(attention, x, CausalWindow(64)) for tokens, x in rows.items()}
    assert 3.5 < kept[4096] / kept[1024] < 4.5
    square = {tokens: saved_bytes(attention, x, Causal() & Window(64)) for tokens, x in rows.items()}
    assert square[4096] / square[1024] > 10  # what it would be without blocks

    def best(x):
        times = []
        for _ in range(7):
            begin = time.process_time()
            with torch.no_grad():
                attention(x, mask=CausalWindow(64))
            times.append(time.process_time() - begin)
        return min(times)

    assert best(rows[4096]) < 9 * best(rows[1024])  # 16 if it were the square


# --- the past, shortened ---


def test_a_window_is_visible_from_its_last_token_and_the_null_key_always():
    allowed = CompressedCausal(3).allow(torch.arange(7)[None], torch.arange(4))[0]
    assert [row.nonzero().flatten().tolist() for row in allowed] == [
        *[[0], [0], [0, 1]],
        *[[0, 1], [0, 1], [0, 1, 2]],
        [0, 1, 2],
    ]


def test_keys_and_values_are_a_strided_convolution_and_the_weights_a_softmax_over_them():
    attention, x = compressed(), torch.randn(2, 7, 8, dtype=torch.float64)
    kernel = attention.kv.weight.unflatten(1, (3, 8)).transpose(1, 2)  # (2D, D, 3)
    short = torch.nn.functional.conv1d(x.transpose(1, 2), kernel, attention.kv.bias, stride=3).transpose(1, 2)
    k, v = (torch.cat((torch.zeros(2, 1, 8).double(), part), dim=1) for part in short.chunk(2, dim=-1))  # null first
    q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in (attention.q(x), k, v))
    scores = q @ k.transpose(-2, -1) / math.sqrt(4)
    for query in range(7):
        scores[:, :, query, 1 + (query + 1) // 3 :] = -math.inf
    expected = attention.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
    assert_same(attention(x), expected)


def test_the_future_does_not_change_the_past():
    attention, x = compressed(), torch.randn(1, 10, 8, dtype=torch.float64, requires_grad=True)
    out = attention(x)
    for token in range(10):
        (gradient,) = torch.autograd.grad(out[0, token].sum(), x, retain_graph=True)
        reached = gradient[0].abs().sum(-1) > 0
        full = (token + 1) // 3 * 3
        # Before the first window is full there is only the null key, whose value is 0 whatever the query.
        assert reached.nonzero().flatten().tolist() == (sorted({*range(full), token}) if full else [])


def test_a_window_of_one_is_refused():
    with pytest.raises(ValueError, match="stride must be at least 2, but is 1"):
        CompressedAttention(8, 2, stride=1)


@pytest.mark.parametrize("stride", [2, 3, 5])
@torch.no_grad()
def test_rows_of_different_lengths_continue_from_a_cache_and_are_reordered(stride):
    attention = compressed(stride=stride, kv_heads=1)
    first, lengths = torch.randn(3, 7, 8, dtype=torch.float64), [7, 2, 5]
    written = [row[:length] for row, length in zip(first, lengths, strict=True)]
    cache = KVCache(20)
    layer = cache.layer("self")
    attention(first, cache=layer)
    cache.advance(torch.tensor(lengths))
    for count, order in ((1, [2, 0, 0, 1]), (4, [3, 1, 2]), (1, [0, 1, 2]), (2, [1, 1])):
        cache.reorder(torch.tensor(order))
        new = torch.randn(len(order), count, 8, dtype=torch.float64)
        written = [torch.cat((written[row], more)) for row, more in zip(order, new, strict=True)]
        out = attention(new, cache=layer)
        cache.advance(count)
        for row, found in zip(written, out, strict=True):
            assert_same(found, attention(row[None])[0, -count:])


@torch.no_grad()
def test_the_probe_shows_the_weights_of_the_windows():
    attention, x = compressed(), torch.randn(2, 8, 8, dtype=torch.float64)
    with watch(attention) as maps:
        attention(x)
        at_once = maps[""].rows()
    assert at_once.shape == (2, 2, 8, 4)  # the null key, two full windows and one that nobody sees
    assert_same(at_once.sum(-1), torch.ones(2, 2, 8).double())
    assert (at_once[..., 3] == 0).all()
    cache = KVCache(8)
    with watch(attention) as maps:
        for token in x.unbind(1):
            attention(token[:, None], cache=cache.layer("self"))
            cache.advance(1)
        assert_same(maps[""].rows(), at_once[..., :3])


@pytest.mark.parametrize("stride", [2, 3])
@torch.no_grad()
def test_uninitialized_memory_is_never_read(stride):
    """New memory filled with nan, as torch does on demand; rows of different lengths are reordered at every step.

    Reordering moves the used part into new memory. Later the longest row makes windows visible that a shorter row has
    not filled: masked, but with a weight of 0 x nan.
    """
    attention, x = CompressedAttention(8, 2, stride=stride).double().eval(), torch.randn(3, 30, 8).double()
    whole, lengths = attention(x), torch.tensor([9, 4, 1])
    torch.use_deterministic_algorithms(True)
    try:
        cache = KVCache(30)
        attention(x[:, :9], cache=cache.layer("a"))
        cache.advance(lengths)
        for step in range(20):
            cache.reorder(torch.arange(3))
            at = torch.arange(3), lengths + step
            found = attention(x[at][:, None], cache=cache.layer("a"))
            cache.advance(1)
            torch.testing.assert_close(found[:, 0], whole[at], atol=1e-10, rtol=1e-10)
    finally:
        torch.use_deterministic_algorithms(False)


@torch.no_grad()
def test_rows_that_join_keep_their_windows():
    """One row after 7 tokens and one after 2 in the same cache: the states have different widths and lengths."""
    attention, x = compressed(stride=3), torch.randn(2, 12, 8, dtype=torch.float64)
    whole, first, second = attention(x), KVCache(12), KVCache(6)
    attention(x[:1, :7], cache=first.layer("a"))
    first.advance(7)
    for token in x[1:, :2].split(1, dim=1):
        attention(token, cache=second.layer("a"))
        second.advance(1)
    first.join(second)
    for step in range(5):
        at = torch.arange(2), torch.tensor([7, 2]) + step
        found = attention(x[at][:, None], cache=first.layer("a"))
        first.advance(1)
        assert_same(found[:, 0], whole[at])
