"""Lecture rows R19-R25: the generic attention layer, its scores, and the numbers worked by hand (with trap T1)."""

import math

import pytest
import torch

from saccade.nn.attention import Additive, Attention, Cosine, Dot, softmax
from saccade.nn.probe import watch


def bare(dim, score):
    """Attention whose projections do nothing: queries, keys and values are the vectors themselves."""
    attention = Attention(dim, 1, memory_dim=dim, score=score, bias=False)
    with torch.no_grad():
        attention.q.weight.copy_(torch.eye(dim))
        attention.kv.weight.copy_(torch.eye(dim).repeat(2, 1))
        attention.out.weight.copy_(torch.eye(dim))
    return attention.requires_grad_(False)


def run(attention, q, x):
    """Queries (N_Q, D) over inputs (N_X, D): the weights (N_Q, N_X) and the outputs (N_Q, D)."""
    with watch(attention) as maps:
        y = attention(q[None], x[None])[0]
    return maps[""].rows()[0, 0], y


def test_r19_any_similarity_one_query_gives_scores_weights_and_an_output():
    """q (D_Q), X (N_X x D_X) -> e (N_X), a (N_X), y (D_X), here with e_i = w . tanh(q + x_i)."""
    inputs, width = 5, 4
    score = Additive(width)
    q, x = torch.randn(width), torch.randn(inputs, width)
    a, y = run(bare(width, score), q[None], x)
    e = torch.stack([score.weight @ torch.tanh(q + x_i) for x_i in x])
    assert e.shape == a[0].shape == (inputs,)
    assert y[0].shape == (width,)
    torch.testing.assert_close(a[0], e.exp() / e.exp().sum())
    torch.testing.assert_close(y[0], sum(a_i * x_i for a_i, x_i in zip(a[0], x, strict=True)))


def test_r19_query_and_inputs_may_have_widths_of_their_own():
    attention = Attention(6, 1, memory_dim=4, score=Additive(6))
    a, y = run(attention, torch.randn(1, 6), torch.randn(5, 4))
    assert a.shape == (1, 5)
    assert y.shape == (1, 6)


@pytest.mark.parametrize(
    ("score", "formula"),
    [
        (Dot(1.0), lambda q, x: q @ x),
        (Dot(), lambda q, x: q @ x / math.sqrt(len(q))),
        (Cosine(), lambda q, x: 10 * torch.cosine_similarity(q, x, dim=0)),
    ],
    ids=["dot", "scaled_dot", "cosine"],
)
def test_r20_the_same_call_with_another_scorer(score, formula):
    """e_i = q . X_i for the dot product."""
    q, x = torch.randn(4), torch.randn(5, 4)
    a, y = run(bare(4, score), q[None], x)
    e = torch.stack([formula(q, x_i) for x_i in x])
    torch.testing.assert_close(a[0], e.softmax(0), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(y[0], e.softmax(0) @ x, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("width", [4, 64, 256])
def test_r21_the_dot_product_has_mean_0_and_variance_d_and_scaled_variance_1(width):
    q, k = torch.randn(40_000, 1, width), torch.randn(40_000, 1, width)
    for score, variance in ((Dot(1.0), width), (Dot(), 1.0)):
        e = score(q, k).flatten()
        assert abs(e.mean().item()) < 4 * math.sqrt(variance / 40_000)  # four standard errors
        assert e.var().item() == pytest.approx(variance, rel=0.05)


@pytest.mark.parametrize("width", [1, 16, 512])
def test_r21_a_constant_vector_has_norm_a_times_root_d(width):
    assert torch.full((width,), 0.3).norm().item() == pytest.approx(0.3 * math.sqrt(width), rel=1e-5)


def entropy_and_gradient(score, width, keys=16):
    """Return the mean entropy of the weights, and the mean norm of their gradient with respect to the scores."""
    q, k = torch.randn(500, 1, width), torch.randn(500, keys, width)
    e = score(q, k).requires_grad_()
    a = softmax(e, None)
    entropy = -(a * a.clamp(min=1e-30).log()).sum(-1).mean().item()
    (slope,) = torch.autograd.grad(a[..., 0].sum(), e)
    return entropy, slope.abs().sum(-1).mean().item()


def test_r21_without_the_scale_softmax_saturates_and_gradients_vanish_as_d_grows():
    widths = [4, 16, 64, 256, 1024]
    plain = [entropy_and_gradient(Dot(1.0), width) for width in widths]
    scaled = [entropy_and_gradient(Dot(), width) for width in widths]
    for (wide_entropy, wide_slope), (entropy, slope) in zip(plain[1:], plain, strict=False):
        assert wide_entropy < entropy
        assert wide_slope < slope
    assert plain[-1][0] < 0.25  # nearly one-hot
    assert plain[-1][1] < scaled[-1][1] / 4
    for entropy, slope in scaled:  # the same at every width; the most is log 16 = 2.77
        assert 2.2 < entropy < 2.7
        assert slope == pytest.approx(scaled[-1][1], rel=0.2)


def test_r22_many_queries_at_once_equal_the_loop():
    """E = Q X^T / sqrt(D_Q) is N_Q x N_X, A = softmax(E, dim=1), Y = A X."""
    queries, x, attention = torch.randn(3, 4), torch.randn(5, 4), bare(4, Dot())
    a, y = run(attention, queries, x)
    e = queries @ x.T / math.sqrt(4)
    assert e.shape == a.shape == (3, 5)
    torch.testing.assert_close(a, e.softmax(dim=1))
    torch.testing.assert_close(a.sum(dim=1), torch.ones(3))
    torch.testing.assert_close(y, a @ x)
    looped = torch.cat([run(attention, q[None], x)[1] for q in queries])
    torch.testing.assert_close(y, looped, atol=1e-6, rtol=1e-6)


def test_r23_keys_and_values_are_projections_of_their_own():
    """K = X W_K (N_X x D_Q), V = X W_V (N_X x D_V), Y = A V (N_Q x D_V)."""
    attention = Attention(6, 1, memory_dim=4, bias=False).requires_grad_(False)
    q, x = torch.randn(3, 6), torch.randn(5, 4)
    w_k, w_v = attention.kv.weight.T.chunk(2, dim=1)
    keys, values = x @ w_k, x @ w_v
    assert keys.shape == values.shape == (5, 6)
    a, y = run(attention, q, x)
    torch.testing.assert_close(a, (attention.q(q) @ keys.T / math.sqrt(6)).softmax(dim=1))
    mixed = a @ values
    assert mixed.shape == (3, 6)
    torch.testing.assert_close(y, attention.out(mixed))


def test_r23_keys_decide_where_and_values_decide_what():
    attention = Attention(6, 1, memory_dim=4, bias=False).requires_grad_(False)
    q, x = torch.randn(3, 6), torch.randn(5, 4)
    a, y = run(attention, q, x)
    w_k, w_v = attention.kv.weight.chunk(2)
    w_v *= 2
    a_values, y_values = run(attention, q, x)
    assert torch.equal(a_values, a)
    torch.testing.assert_close(y_values, 2 * y)
    w_k *= 2
    a_keys, _ = run(attention, q, x)
    assert (a_keys - a).abs().max() > 0.01


def test_r24_the_worked_example():
    """112 and 96, divided by 8 = sqrt(64): 14 and 12; softmax: 0.88 and 0.12; then the weighted sum."""
    q, k = torch.ones(1, 64), torch.tensor([[112.0], [96.0]]) / 64 * torch.ones(2, 64)
    assert Dot(1.0)(q, k)[0].tolist() == [112.0, 96.0]
    assert Dot()(q, k)[0].tolist() == [14.0, 12.0]
    weights = softmax(Dot()(q, k), None)[0]
    assert [round(weight, 4) for weight in weights.tolist()] == [0.8808, 0.1192]
    a, y = run(bare(64, Dot()), q, k)
    torch.testing.assert_close(a[0], weights)
    torch.testing.assert_close(y[0], weights[0] * k[0] + weights[1] * k[1])


def test_r25_score_softmax_weighted_sum_of_1_1_1_5_and_t1_what_the_slide_divides_by():
    """T1: softmax(1, 1, 1, 5) is 0.0174 and 0.9479; the 0.05 and 0.85 of the slide are those of scores / sqrt(2)."""
    q, x = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 3.0], [1.0, 0.0], [1.0, 7.0], [5.0, 2.0]])
    for score, expected in ((Dot(1.0), [0.0174, 0.0174, 0.0174, 0.9479]), (Dot(), [0.0502, 0.0502, 0.0502, 0.8494])):
        a, y = run(bare(2, score), q, x)
        assert a[0].tolist() == pytest.approx(expected, abs=5e-5)
        torch.testing.assert_close(y[0], a[0] @ x)
    assert [round(value, 2) for value in a[0].tolist()] == [0.05, 0.05, 0.05, 0.85]
