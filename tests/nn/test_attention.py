"""Attention: equal to torch's own layer, exact masks, and never NaN."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from saccade.nn.attention import (
    Additive,
    Attention,
    Bilinear,
    Cosine,
    Dot,
    Heads,
    join_beams,
    repeat_heads,
    softmax,
    split_beams,
)
from saccade.nn.cache import KVCache
from saccade.nn.masks import Causal, Graph, Padding
from saccade.nn.positions import Rotary

DIM, HEADS, TOKENS = 12, 3, 5
SCORES = {
    "scaled_dot": Dot,
    "plain_dot": lambda: Dot(1.0),
    "cosine": Cosine,
    "additive": lambda: Additive(DIM // HEADS),
    "bilinear": lambda: Bilinear(DIM // HEADS),
}
KEEP = torch.tensor([[True, True, True, True, True], [True, True, True, False, False]])
MASKS = {
    "nothing": (None, None, None),
    "padding": (Padding(KEEP), ~KEEP, None),
    "causal": (Causal(), None, torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)),
    "both": (Causal() & Padding(KEEP), ~KEEP, torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)),
}
PRECISIONS = [(torch.float32, 1e-6), (torch.float64, 1e-12)]


def torch_twin(attention, memory_dim=None):
    """torch's own layer with the weights of ours."""
    width, dtype = attention.out.weight.shape[0], attention.out.weight.dtype
    twin = nn.MultiheadAttention(
        width, attention.heads, kdim=memory_dim, vdim=memory_dim, batch_first=True, dtype=dtype
    )
    with torch.no_grad():
        if memory_dim is None:
            twin.in_proj_weight.copy_(attention.qkv.weight)
            twin.in_proj_bias.copy_(attention.qkv.bias)
        else:
            parts = (attention.q.weight, *attention.kv.weight.chunk(2))
            if memory_dim == width:  # torch then keeps the three in one matrix
                twin.in_proj_weight.copy_(torch.cat(parts))
            else:
                for name, part in zip("qkv", parts, strict=True):
                    getattr(twin, f"{name}_proj_weight").copy_(part)
            twin.in_proj_bias.copy_(torch.cat((attention.q.bias, attention.kv.bias)))
        twin.out_proj.load_state_dict(attention.out.state_dict())
    return twin


def outputs_and_gradients(function, *inputs):
    """f(inputs) and the gradient of a fixed random projection of it with respect to each input."""
    inputs = [x.clone().requires_grad_() for x in inputs]
    y = function(*inputs)
    direction = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y.dtype)
    return y, *torch.autograd.grad((y * direction).sum(), inputs)


def assert_close(ours, theirs, tolerance):
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


# --- the same as torch.nn.MultiheadAttention ---


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS, ids=["single", "double"])
def test_self_attention_equals_torch(mask, dtype, tolerance):
    attention = Attention(DIM, HEADS).to(dtype)
    twin = torch_twin(attention)
    ours_mask, padding, ahead = MASKS[mask]
    x = torch.randn(2, TOKENS, DIM, dtype=dtype)
    ours = outputs_and_gradients(lambda x: attention(x, mask=ours_mask), x)
    theirs = outputs_and_gradients(lambda x: twin(x, x, x, key_padding_mask=padding, attn_mask=ahead)[0], x)
    assert_close(ours, theirs, tolerance)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("memory_dim", [DIM, 7, 20])
@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS, ids=["single", "double"])
def test_cross_attention_to_a_memory_of_another_width_equals_torch(padded, memory_dim, dtype, tolerance):
    attention = Attention(DIM, HEADS, memory_dim=memory_dim).to(dtype)
    twin = torch_twin(attention, memory_dim)
    x, memory = torch.randn(2, 3, DIM, dtype=dtype), torch.randn(2, TOKENS, memory_dim, dtype=dtype)
    mask = Padding(KEEP) if padded else None
    hidden = ~KEEP if padded else None
    ours = outputs_and_gradients(lambda x, m: attention(x, m, mask=mask), x, memory)
    theirs = outputs_and_gradients(lambda x, m: twin(x, m, m, key_padding_mask=hidden)[0], x, memory)
    assert_close(ours, theirs, tolerance)


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_grouped_heads_are_full_heads_that_share_keys_and_values(kv_heads):
    heads, width = 4, 3
    grouped = Attention(12, Heads(heads, kv_heads)).double()
    full = Attention(12, heads).double()

    def spread(x):  # rows of a (grouped k or v) projection, repeated for each query head that shares them
        return x.unflatten(0, (kv_heads, width)).repeat_interleave(heads // kv_heads, dim=0).flatten(0, 1)

    with torch.no_grad():
        for name in ("weight", "bias"):
            q, k, v = getattr(grouped.qkv, name).split((12, kv_heads * width, kv_heads * width))
            getattr(full.qkv, name).copy_(torch.cat((q, spread(k), spread(v))))
        full.out.load_state_dict(grouped.out.state_dict())
    x = torch.randn(2, TOKENS, 12, dtype=torch.double)
    ours = outputs_and_gradients(lambda x: grouped(x, mask=Causal()), x)
    assert_close(ours, outputs_and_gradients(lambda x: full(x, mask=Causal()), x), 1e-12)


@given(
    rows=st.integers(1, 3),
    tokens=st.integers(1, 7),
    heads=st.sampled_from([1, 2, 4]),
    width=st.sampled_from([1, 2, 5]),
    share=st.sampled_from([1, 2]),
)
def test_any_shape_equals_the_explicit_weights(rows, tokens, heads, width, share):
    """The fused kernel equals the explicit computation of softmax(score(q, k)) v."""
    heads = heads * share
    attention = Attention(heads * width, Heads(heads, heads // share)).double()
    x = torch.randn(rows, tokens, heads * width, dtype=torch.double)
    allowed = torch.rand(rows, tokens, tokens) < 0.7
    q, k, v = attention._project_self(x, 0)
    weights = attention.weights(q, k, allowed[:, None])
    by_hand = attention.out((weights @ repeat_heads(v, heads)).transpose(1, 2).flatten(2))
    torch.testing.assert_close(attention(x, mask=Graph(allowed)), by_hand, atol=1e-12, rtol=1e-12)


# --- scores ---


@given(queries=st.integers(1, 4), keys=st.integers(1, 4), width=st.integers(1, 6))
def test_scores_equal_their_formula_pair_by_pair(queries, keys, width):
    q, k = torch.randn(1, 1, queries, width).double(), torch.randn(1, 1, keys, width).double()
    additive, bilinear = Additive(width).double(), Bilinear(width).double()
    torch.nn.init.normal_(bilinear.weight)
    for i in range(queries):
        for j in range(keys):
            a, b = q[0, 0, i], k[0, 0, j]
            torch.testing.assert_close(Dot()(q, k)[0, 0, i, j], torch.dot(a, b) / math.sqrt(width))
            torch.testing.assert_close(Dot(1.0)(q, k)[0, 0, i, j], torch.dot(a, b))
            torch.testing.assert_close(additive(q, k)[0, 0, i, j], torch.dot(additive.weight, torch.tanh(a + b)))
            torch.testing.assert_close(bilinear(q, k)[0, 0, i, j], a @ bilinear.weight @ b / math.sqrt(width))


def test_a_fresh_bilinear_score_is_the_scaled_dot():
    q, k = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 5, 4)
    torch.testing.assert_close(Bilinear(4)(q, k), Dot()(q, k))


def test_cosine_is_ten_times_the_cosine():
    """The length of a query or key does not matter."""
    score = Cosine()
    q, k = torch.randn(1, 1, 3, 8).double(), torch.randn(1, 1, 4, 8).double()
    cosine = torch.cosine_similarity(q[..., :, None, :], k[..., None, :, :], dim=-1)
    torch.testing.assert_close(score(score.prepare(q, 1), score.prepare(k, 0)), cosine * 10, atol=1e-4, rtol=0)
    torch.testing.assert_close(score.prepare(100 * q, 1), score.prepare(q, 1), atol=1e-4, rtol=0)


# --- weights ---


@given(st.integers(0, 10_000))
def test_weights_sum_to_one_and_are_exactly_zero_where_masked(seed):
    torch.manual_seed(seed)
    scores, allowed = 10 * torch.randn(2, 3, 4, 5), torch.rand(2, 1, 4, 5) < 0.4
    weights = softmax(scores, allowed)
    seen = allowed.expand_as(weights)
    empty = ~allowed.any(-1).expand(2, 3, 4)
    assert (weights[~seen] == 0).all()
    assert (weights[seen] > 0).all()
    assert (weights.sum(-1)[empty] == 0).all()
    torch.testing.assert_close(weights.sum(-1)[~empty], torch.ones(int((~empty).sum())))


@pytest.mark.parametrize("score", SCORES)
def test_a_query_without_visible_keys_gets_zero_output_and_zero_gradient(score):
    """Node 2 sees no node: the input of the output layer is 0, so its output is the bias."""
    adjacency = torch.rand(4, 4) < 0.7
    adjacency[2], adjacency[0, 0] = False, True
    attention = Attention(DIM, HEADS, score=SCORES[score]())
    x = torch.randn(2, 4, DIM, requires_grad=True)
    y = attention(x, mask=Graph(adjacency))
    assert (y[:, 2] == attention.out.bias).all()
    assert (torch.autograd.grad(y[:, 2].sum(), x, retain_graph=True)[0] == 0).all()
    inputs = [x, *attention.parameters()]
    assert all(g.isfinite().all() for g in torch.autograd.grad(y.square().sum(), inputs))
    assert torch.autograd.grad(attention(x, mask=Graph(adjacency))[:, 0].sum(), x)[0].any()


@pytest.mark.parametrize("score", SCORES)
def test_a_mask_without_visible_keys_returns_zero_and_no_gradient(score):
    attention = Attention(DIM, HEADS, score=SCORES[score](), bias=False)
    x = torch.randn(2, 4, DIM, requires_grad=True)
    y = attention(x, mask=Padding(torch.zeros(2, 4, dtype=torch.bool)))
    assert (y == 0).all()
    gradients = torch.autograd.grad(y.sum(), [x, attention.qkv.weight])
    assert all((g == 0).all() for g in gradients)


@pytest.mark.parametrize("score", SCORES)
def test_vectors_of_zeros_give_finite_outputs_and_gradients(score):
    attention = Attention(DIM, HEADS, score=SCORES[score](), bias=False)
    x = torch.zeros(1, 4, DIM, requires_grad=True)
    y = attention(x, mask=Causal())
    assert (y == 0).all()
    assert torch.autograd.grad(y.sum(), x)[0].isfinite().all()


# --- who sees whom, exactly ---


@pytest.mark.parametrize("score", SCORES)
def test_no_look_ahead(score):
    attention = Attention(DIM, HEADS, score=SCORES[score]())
    x = torch.randn(2, TOKENS, DIM)
    changed = x.clone()
    changed[:, 3:] = torch.randn(2, 2, DIM)
    before, after = attention(x, mask=Causal()), attention(changed, mask=Causal())
    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.equal(before[:, 3:], after[:, 3:])
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(attention(x, mask=Causal())[:, :3].square().sum(), x)
    assert (gradient[:, 3:] == 0).all()
    assert gradient[:, :3].any()


@pytest.mark.parametrize("score", SCORES)
def test_values_in_padding_change_nothing(score):
    attention = Attention(DIM, HEADS, score=SCORES[score]())
    x = torch.randn(2, TOKENS, DIM)
    garbage = torch.where(KEEP[..., None], x, 1e4 * torch.randn(2, TOKENS, DIM))
    before, after = attention(x, mask=Padding(KEEP)), attention(garbage, mask=Padding(KEEP))
    assert torch.equal(before[KEEP], after[KEEP])
    assert not torch.equal(attention(x)[1, 0], attention(garbage)[1, 0])
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(attention(x, mask=Padding(KEEP))[KEEP].square().sum(), x)
    assert (gradient[~KEEP] == 0).all()


@pytest.mark.parametrize("score", SCORES)
def test_a_padded_row_equals_the_row_alone(score):
    attention = Attention(DIM, HEADS, score=SCORES[score]()).double()
    x = torch.randn(2, TOKENS, DIM).double()
    alone = attention(x[1:, :3])
    torch.testing.assert_close(attention(x, mask=Padding(KEEP))[1:, :3], alone, atol=1e-12, rtol=1e-12)


# --- dropout ---


@pytest.mark.parametrize("score", SCORES)
def test_dropout_acts_in_training_only(score):
    scorer = SCORES[score]()
    attention, plain = Attention(DIM, HEADS, score=scorer, dropout=0.5), Attention(DIM, HEADS, score=scorer)
    plain.load_state_dict(attention.state_dict())
    x = torch.randn(2, TOKENS, DIM)
    assert not torch.allclose(attention(x), plain(x))
    assert torch.equal(attention.eval()(x), plain(x))


# --- what a person can get wrong ---


def test_a_width_that_heads_do_not_divide_is_refused():
    with pytest.raises(ValueError, match="dim must be a multiple of heads, but 33 is not a multiple of 2"):
        Attention(33, 2)
    with pytest.raises(ValueError, match="heads must be a multiple of kv_heads, but 4 is not a multiple of 3"):
        Attention(32, Heads(4, 3))


def test_a_memory_requires_memory_dim():
    x = torch.randn(1, 2, 8)
    with pytest.raises(ValueError, match="memory must be None for a layer without memory_dim"):
        Attention(8, 2)(x, x)
    with pytest.raises(ValueError, match="memory must be given for a layer with memory_dim"):
        Attention(8, 2, memory_dim=8)(x)


def test_rotated_queries_to_a_memory_are_the_same_with_a_cache():
    attention = Attention(8, 2, memory_dim=6, rotate=Rotary(4)).double().eval()
    x, memory, cache = torch.randn(2, 5, 8).double(), torch.randn(2, 3, 6).double(), KVCache(5)
    parts = []
    for token in x.split(1, dim=1):
        parts.append(attention(token, memory, cache=cache.layer("memory")))
        cache.advance(1)
    torch.testing.assert_close(torch.cat(parts, dim=1), attention(x, memory), atol=1e-12, rtol=0)


# --- beams that share a memory ---


@given(rows=st.integers(1, 3), beams=st.integers(1, 4), queries=st.integers(1, 3))
def test_joined_beams_are_split_again_in_the_same_order(rows, beams, queries):
    q = torch.randn(rows * beams, 2, queries, 3)
    joined = join_beams(q, beams)
    assert joined.shape == (rows, 2, beams * queries, 3)
    assert torch.equal(split_beams(joined, beams), q)
    for row in range(rows):
        for beam in range(beams):
            mine = joined[row, :, beam * queries : (beam + 1) * queries]
            assert torch.equal(mine, q[row * beams + beam])


@pytest.mark.parametrize("kv_heads", [1, 3])
@pytest.mark.parametrize("score", SCORES)
def test_rows_that_share_a_memory_equal_rows_with_copies(score, kv_heads):
    attention = Attention(DIM, Heads(HEADS, kv_heads), memory_dim=7, score=SCORES[score]()).double()
    x, memory = torch.randn(6, 3, DIM).double(), torch.randn(2, TOKENS, 7).double()
    copies, kept = memory.repeat_interleave(3, dim=0), Padding(KEEP.repeat_interleave(3, dim=0))
    ours = outputs_and_gradients(lambda x, m: attention(x, m, mask=Padding(KEEP)), x, memory)
    theirs = outputs_and_gradients(lambda x, m: attention(x, m.repeat_interleave(3, dim=0), mask=kept), x, memory)
    assert_close(ours, theirs, 1e-12)
    assert_close([attention(x, memory)], [attention(x, copies)], 1e-12)
