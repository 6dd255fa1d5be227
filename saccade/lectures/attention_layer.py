"""The generic attention layer, R19 to R26: scores, softmax, weighted sum, pooling."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from saccade.lectures._row import Demonstration, Row, shape
from saccade.nn.attention import Additive, Attention, Cosine, Dot, Score, softmax
from saccade.nn.probe import watch


def bare(dim: int, score: Score) -> Attention:
    """Return attention whose projections do nothing: queries, keys and values are the vectors themselves."""
    attention = Attention(dim, 1, memory_dim=dim, score=score, bias=False)
    with torch.no_grad():
        attention.q.weight.copy_(torch.eye(dim))
        attention.kv.weight.copy_(torch.eye(dim).repeat(2, 1))
        attention.out.weight.copy_(torch.eye(dim))  # type: ignore[operator]
    return attention.requires_grad_(False)


def attend(attention: Attention, queries: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights (N_Q, N_X) and the outputs (N_Q, D) for queries (N_Q, D) over inputs (N_X, D)."""
    with watch(attention) as maps:
        y = attention(queries[None], x[None])[0]
    return maps[""].rows()[0, 0], y


def any_score(show: Demonstration) -> None:
    """R19: one query, N_X inputs, any similarity: here e_i = w . tanh(q + x_i)."""
    score = Additive(4)
    q, x = torch.randn(4), torch.randn(5, 4)
    a, y = attend(bare(4, score), q[None], x)
    e = torch.stack([score.weight @ torch.tanh(q + x_i) for x_i in x]).detach()
    rows = [("q", shape(q), "query (D_Q)"), ("X", shape(x), "inputs (N_X x D_X)")]
    rows += [("e", shape(e), "scores (N_X)"), ("a", shape(a[0]), "weights (N_X)"), ("y", shape(y[0]), "output (D_X)")]
    show.table("shapes", ("", "shape", "what it is"), rows)
    table = [(f"x_{i + 1}", e[i].item(), a[0, i].item()) for i in range(5)]
    show.table("additive attention", ("input", "score e", "weight a"), table)
    show.same("a = softmax(e)", a[0], e.exp() / e.exp().sum(), 1e-6)
    show.same(
        "y = sum of a_i x_i", y[0], sum((a_i * x_i for a_i, x_i in zip(a[0], x, strict=True)), torch.zeros(4)), 1e-6
    )
    wide = Attention(6, 1, memory_dim=4, score=Additive(6)).requires_grad_(False)
    a, _ = attend(wide, torch.randn(1, 6), x)
    show.equal("query of width 6, inputs of width 4: shape of the weights", list(a.shape), [1, 5])
    show.close("and they sum to 1", a.sum().item(), 1.0, 1e-5)


def dot_product(show: Demonstration) -> None:
    """R20: the same call with another scorer."""
    q, x = torch.randn(4), torch.randn(5, 4)
    cases: tuple[tuple[str, Score, Tensor], ...] = (
        ("dot product q.x", Dot(1.0), x @ q),
        ("scaled dot product q.x / sqrt(d)", Dot(), x @ q / 2),
        ("10 cos(q, x)", Cosine(), 10 * torch.cosine_similarity(q[None], x, dim=1)),
    )
    rows = []
    for name, score, e in cases:
        a, y = attend(bare(4, score), q[None], x)
        rows.append((name, *a[0].tolist()))
        show.same(f"{name}: weights = softmax of the scores", a[0], e.softmax(0), 1e-5)
        show.same(f"{name}: output = weighted sum", y[0], e.softmax(0) @ x, 1e-5)
    show.table("weights of one query over five inputs", ("score", "x_1", "x_2", "x_3", "x_4", "x_5"), rows)


def entropy_and_gradient(score: Dot, width: int, keys: int = 16) -> tuple[float, float]:
    """Return the mean entropy of the weights, and the mean norm of their gradient with respect to the scores."""
    q, k = torch.randn(500, 1, width), torch.randn(500, keys, width)
    e = score(q, k).requires_grad_()
    a = softmax(e, None)
    entropy = -(a * a.clamp(min=1e-30).log()).sum(-1).mean().item()
    (gradient,) = torch.autograd.grad(a[..., 0].sum(), e)
    return entropy, gradient.abs().sum(-1).mean().item()


def scaled_dot_product(show: Demonstration) -> None:
    """R21: q.k has variance d; without the scale softmax saturates and its gradient vanishes."""
    rows = []
    for width in (4, 64, 256):
        q, k = torch.randn(40_000, 1, width), torch.randn(40_000, 1, width)
        plain, scaled = (score(q, k).flatten() for score in (Dot(1.0), Dot()))
        rows.append((width, plain.mean().item(), plain.var().item(), scaled.var().item()))
        show.close(f"d = {width}: mean of q.k", plain.mean().item(), 0.0, 4 * math.sqrt(width / 40_000))
        show.close(f"d = {width}: variance of q.k", plain.var().item(), width, 0.05 * width)
        show.close(f"d = {width}: variance of q.k / sqrt(d)", scaled.var().item(), 1.0, 0.05)
    show.table("40,000 random q and k of variance 1", ("d", "mean q.k", "variance q.k", "variance / sqrt(d)"), rows)
    widths = (4, 16, 64, 256, 1024)
    plain_by, scaled_by = ([entropy_and_gradient(score, width) for width in widths] for score in (Dot(1.0), Dot()))
    lines = {"q.k / sqrt(d)": scaled_by, "q.k": plain_by}
    points = {
        name: [(math.log2(width), entropy) for width, (entropy, _) in zip(widths, values, strict=True)]
        for name, values in lines.items()
    }
    show.plot("entropy of the weights over 16 keys (uniform: 2.77)", "log2 d", "entropy", points)
    table = [(w, *p, *s) for w, p, s in zip(widths, plain_by, scaled_by, strict=True)]
    columns = ("d", "entropy, q.k", "gradient, q.k", "entropy, scaled", "gradient, scaled")
    show.table("saturation", columns, table)
    falling = all(later[0] < one[0] and later[1] < one[1] for one, later in itertools.pairwise(plain_by))
    show.holds("without the scale entropy and gradient fall with every d", falling)
    show.below("entropy at d = 1024 without the scale", plain_by[-1][0], 0.25)
    show.between("entropy at d = 1024 with the scale", scaled_by[-1][0], 2.2, 2.7)
    norm = torch.full((512,), 0.3).norm().item()
    show.close("norm of 512 numbers 0.3: a sqrt(D)", norm, 0.3 * math.sqrt(512), 1e-4)


def many_queries(show: Demonstration) -> None:
    """R22: E = Q X^T / sqrt(D_Q), A = softmax(E, dim=1), Y = A X."""
    queries, x, attention = torch.randn(3, 4), torch.randn(5, 4), bare(4, Dot())
    a, y = attend(attention, queries, x)
    e = queries @ x.T / math.sqrt(4)
    show.table(
        "E (N_Q x N_X)", ("", *(f"x_{n}" for n in range(1, 6))), [(f"q_{n + 1}", *e[n].tolist()) for n in range(3)]
    )
    show.table("A", ("", *(f"x_{n}" for n in range(1, 6))), [(f"q_{n + 1}", *a[n].tolist()) for n in range(3)])
    show.equal("shape of E: N_Q x N_X", list(e.shape), [3, 5])
    show.same("A = softmax(E, dim=1)", a, e.softmax(dim=1), 1e-6)
    show.close("rows of A sum to 1", a.sum(1), [1.0, 1.0, 1.0], 1e-6)
    show.same("Y = A X", y, a @ x, 1e-6)
    looped = torch.cat([attend(attention, q[None], x)[1] for q in queries])
    show.same("all queries at once = one after the other", y, looped, 1e-6)


def keys_and_values(show: Demonstration) -> None:
    """R23: K = X W_K, V = X W_V, Y = A V: keys decide where, values decide what."""
    attention = Attention(6, 1, memory_dim=4, bias=False).requires_grad_(False)
    q, x = torch.randn(3, 6), torch.randn(5, 4)
    w_k, w_v = attention.kv.weight.T.chunk(2, dim=1)
    keys, values = x @ w_k, x @ w_v
    a, y = attend(attention, q, x)
    rows = [("Q = decoder states W_Q", shape(attention.q(q)), "what the target word asks for")]
    rows += [("K = X W_K", shape(keys), "what a source word offers"), ("V = X W_V", shape(values), "what it gives")]
    rows += [("A = softmax(Q K^T / sqrt(D_Q))", shape(a), "alignment"), ("Y = A V", shape(a @ values), "context")]
    show.table("roles in translation", ("", "shape", "role"), rows)
    show.same("A from Q and K", a, (attention.q(q) @ keys.T / math.sqrt(6)).softmax(1), 1e-6)
    show.same("Y from A and V, then the output layer", y, attention.out(a @ values), 1e-6)
    attention.kv.weight.chunk(2)[1].mul_(2)
    a_values, y_values = attend(attention, q, x)
    show.same("W_V doubled: the weights stay", a_values, a)
    show.same("W_V doubled: the output doubles", y_values, 2 * y, 1e-5)
    attention.kv.weight.chunk(2)[0].mul_(2)
    a_keys, _ = attend(attention, q, x)
    show.above("W_K doubled: the weights move by", (a_keys - a).abs().max().item(), 0.01)


def worked_example(show: Demonstration) -> None:
    """R24: 112 and 96, divided by 8 = sqrt(64): 14 and 12; softmax: 0.88 and 0.12; then the weighted sum."""
    q, k = torch.ones(1, 64), torch.tensor([[112.0], [96.0]]) / 64 * torch.ones(2, 64)
    raw, scaled = Dot(1.0)(q, k)[0], Dot()(q, k)[0]
    weights = softmax(Dot()(q, k), None)[0]
    a, y = attend(bare(64, Dot()), q, k)
    rows = [("score q.k", *raw.tolist()), ("divided by 8 = sqrt(64)", *scaled.tolist())]
    rows += [("softmax", *weights.tolist())]
    show.table("one query, two words, width 64", ("step", "word 1", "word 2"), rows)
    show.note("Then the values are summed with these weights: z = 0.88 v_1 + 0.12 v_2.")
    show.equal("scores", raw.tolist(), [112.0, 96.0])
    show.equal("scores / 8", scaled.tolist(), [14.0, 12.0])
    show.close("softmax", weights, [0.8808, 0.1192], 5e-5)
    show.same("the attention layer gives the same weights", a[0], weights, 1e-6)
    show.same("and the weighted sum", y[0], weights[0] * k[0] + weights[1] * k[1], 1e-5)


def three_steps(show: Demonstration) -> None:
    """R25: score, softmax, weighted sum of 1, 1, 1, 5; T1: what the slide divides by."""
    q, x = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 3.0], [1.0, 0.0], [1.0, 7.0], [5.0, 2.0]])
    rows = []
    for name, score, expected in (
        ("softmax(1, 1, 1, 5)", Dot(1.0), [0.0174, 0.0174, 0.0174, 0.9479]),
        ("softmax of the scores / sqrt(2)", Dot(), [0.0502, 0.0502, 0.0502, 0.8494]),
    ):
        a, y = attend(bare(2, score), q, x)
        rows.append((name, *a[0].tolist(), y[0].tolist()))
        show.close(name, a[0], expected, 5e-5)
        show.same(f"{name}: weighted sum", y[0], a[0] @ x, 1e-6)
    show.table("q.x = 1, 1, 1, 5", ("step", "a_1", "a_2", "a_3", "a_4", "weighted sum"), rows)
    show.note(
        "The weights 0.05, 0.05, 0.05, 0.85 are often printed for the scores 1, 1, 1, 5: they belong to the second row."
    )
    show.close(
        "0.05 and 0.85 are the second row, rounded",
        [round(value, 2) for value in a[0].tolist()],
        [0.05, 0.05, 0.05, 0.85],
        1e-9,
    )


def pooling(show: Demonstration) -> None:
    """R26: a volitional cue is a query, a non-volitional one a key; average pooling has a constant query."""
    names = ("red cup", "newspaper", "paper", "notebook", "book")
    keys = torch.tensor([[3.0, 0.0], [0.5, 1.0], [0.5, 1.2], [0.5, 2.0], [0.5, 3.0]])  # colour, how much one can read
    values, attention = torch.eye(5), Dot(1.0)
    cues = {"none: average pooling": torch.zeros(1, 2), "wants what stands out": torch.tensor([[1.5, 0.0]])}
    cues["wants to read"] = torch.tensor([[0.0, 1.5]])
    rows, pooled = [], {}
    for name, query in cues.items():
        weights = softmax(attention(query, keys), None)
        pooled[name] = (weights @ values)[0]
        rows.append((name, *weights[0].tolist()))
    show.table("attention pooling of five sensory inputs", ("volitional cue (query)", *names), rows)
    show.same("a query of zeros is average pooling", pooled["none: average pooling"], values.mean(0), 1e-7)
    for name, expected in (("wants what stands out", "red cup"), ("wants to read", "book")):
        show.equal(f"{name}: largest weight", names[int(pooled[name].argmax())], expected)
    other = softmax(attention(torch.full((1, 2), 0.7), torch.ones(5, 2)), None) @ values
    show.same("equal keys (no non-volitional cue) are average pooling too", other[0], values.mean(0), 1e-7)


ROWS = (
    Row("R19", "Attention layer with any similarity: q, X -> e, a, y", any_score, page="lessons"),
    Row("R20", "Dot-product similarity: the same call, another scorer", dot_product, page="lessons"),
    Row("R21", "Scaled dot product: why scores are divided by sqrt(d)", scaled_dot_product, page="lessons"),
    Row("R22", "Many queries at once: E = QX^T / sqrt(D_Q), A = softmax(E), Y = AX", many_queries),
    Row("R23", "Separate keys and values; their roles in translation", keys_and_values),
    Row("R24", "The worked example: 112, 96 -> 14, 12 -> 0.88, 0.12", worked_example, page="lessons"),
    Row("R25", "Score, softmax, weighted sum of 1, 1, 1, 5", three_steps, page="lessons"),
    Row("R26", "Volitional and non-volitional cues: attention pooling and average pooling", pooling),
)
