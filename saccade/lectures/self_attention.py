"""Self-attention, R28 to R36: one query per input, heads, masks, cross-attention, cells of a CNN, words of BERT."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade import api
from saccade.core import AttentionMap, GridAxis, Role, TokenAxis
from saccade.errors import UsageError
from saccade.lectures._row import Demonstration, Row, shape
from saccade.lectures._text import to_text
from saccade.look.figure import AttentionFigure
from saccade.look.overlay import OverlayStyle
from saccade.nn.ablation import Ablation, ablated
from saccade.nn.attention import Attention
from saccade.nn.grid_attention import insert_attention
from saccade.nn.masks import Causal
from saccade.nn.positions import Rotary
from saccade.nn.probe import watch
from saccade.nn.transformer import Transformer, TransformerConfig

SENTENCE = "The animal didn't cross the street because it was too tired."
TRAINING_STEPS = 300  # of the model whose heads are switched off
MODEL, LAYER, HEAD = "minilm", 3, 1


def project(x: Tensor, w: Tensor) -> str:
    """Return R28 as text for one's own inputs X (N x D) and matrix W (D x Q): Q = X W (N x Q).

    print(project(torch.eye(4), torch.randn(4, 3)))
    """
    if x.dim() != 2 or w.dim() != 2 or x.shape[1] != len(w):
        raise UsageError(
            f"X must have as many columns as W has rows, but X is {shape(x)} and W is {shape(w)}; vectors are rows: x W"
        )
    show = Demonstration()
    _project(show, x, w)
    return to_text(show)


def _project(show: Demonstration, x: Tensor, w: Tensor) -> None:
    """Project inputs by the attention layer itself, and compare with one query after the other."""
    attention = Attention(w.shape[1], 1, memory_dim=len(w), bias=False).requires_grad_(False)
    attention.kv.weight[: w.shape[1]] = w.T
    projected = attention.kv(x)[:, : w.shape[1]]
    for name, matrix in (("X", x), ("W", w), ("X W", projected)):
        show.table(f"{name}, {shape(matrix)}", [f"{n + 1}" for n in range(matrix.shape[1])], matrix.tolist())
    show.equal(f"{shape(x)} times {shape(w)}", list(projected.shape), [len(x), w.shape[1]])
    rows = [[sum(float(a) * float(b) for a, b in zip(row, column, strict=True)) for column in w.T] for row in x]
    show.same("the layer gives X W, a row for each input", projected, torch.tensor(rows), 1e-5)


def one_query_per_input(show: Demonstration) -> None:
    """R28: X (2 x 4) times W (4 x 3) is 2 x 3, a row for each token."""
    _project(show, torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 2.0, 0.0, 2.0]]), torch.randn(4, 3))
    show.note("Your own matrices: from saccade.lectures.self_attention import project; print(project(X, W))")
    published = Attention(512, 8)
    q, k, v = published._project_self(torch.randn(1, 2, 512), 0)
    for name, part in (("q", q), ("k", k), ("v", v)):
        show.equal(f"embedding 512, 8 heads: {name} of 2 tokens", list(part.shape), [1, 8, 2, 64])


def by_loop(attention: Attention, x: Tensor) -> Tensor:
    """Return b_i = sum_j softmax_j(q_i . k_j / sqrt(E)) v_j, one output after the other, one head after the other."""
    q, k, v = (part.unflatten(-1, (attention.heads, -1)) for part in attention.qkv(x).chunk(3, dim=-1))  # (T, H, E)
    rows = []
    for i in range(len(x)):
        heads = []
        for h in range(attention.heads):
            e = torch.stack([q[i, h] @ k[j, h] for j in range(len(x))]) / math.sqrt(attention.head_dim)
            heads.append(sum((a * v[j, h] for j, a in enumerate(e.softmax(0))), torch.zeros(attention.head_dim)))
        rows.append(torch.cat(heads))
    result: Tensor = attention.out(torch.stack(rows))
    return result


def _seconds(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def in_parallel(show: Demonstration) -> None:
    """R29: every b_i from the whole sequence; loop and matrix form give the same, at another speed."""
    rows = []
    for tokens in (10, 20, 40):
        attention, x = Attention(16, 2).requires_grad_(False), torch.randn(tokens, 16)
        matrix = min(_seconds(lambda: attention(x[None])) for _ in range(5))  # noqa: B023 - called at once
        loop = _seconds(lambda: by_loop(attention, x))  # noqa: B023
        rows.append((tokens, 1e3 * loop, 1e3 * matrix, loop / matrix))
        show.same(f"{tokens} tokens: loop = matrix form", attention(x[None])[0], by_loop(attention, x), 1e-5)
    show.table("time", ("tokens", "loop, ms", "matrix, ms", "ratio"), rows)
    show.above("40 tokens: the matrix form is faster by", rows[-1][3], 5)


def permutation(show: Demonstration) -> None:
    """R30: f(s(x)) = s(f(x)); a mask or positions break the symmetry."""
    x, shuffle = torch.randn(2, 6, 16).double(), torch.tensor([3, 0, 5, 1, 4, 2])
    attention = Attention(16, 4).double()
    stack = Transformer(TransformerConfig(dim=16, depth=3, heads=4, position="none")).double()
    show.note(f"s = {' '.join(str(n + 1) for n in shuffle.tolist())}")
    show.same("self-attention: f(s(x)) = s(f(x))", attention(x[:, shuffle]), attention(x)[:, shuffle], 1e-12)
    show.same("3 layers with norm and feed-forward: the same", stack(x[:, shuffle]), stack(x)[:, shuffle], 1e-12)
    masked = attention(x[:, shuffle], mask=Causal()) - attention(x, mask=Causal())[:, shuffle]
    show.above("with a causal mask it does not hold: difference", masked.abs().max().item(), 1e-3)
    rotated = Attention(16, 4, rotate=Rotary(4)).double()
    moved = (rotated(x[:, shuffle]) - rotated(x)[:, shuffle]).abs().max().item()
    show.above("with positions it does not hold: difference", moved, 1e-4)


@torch.no_grad()
def no_look_ahead(show: Demonstration) -> None:
    """R31: with a causal mask a later token changes no earlier output."""
    attention, x = Attention(16, 4), torch.randn(1, 8, 16)
    before, table = attention(x, mask=Causal()), []
    for position in range(8):
        changed = x.clone()
        changed[:, position] += 1
        table.append((attention(changed, mask=Causal()) - before).abs().sum(-1)[0])
    moved = torch.stack(table)
    rows = [(f"token {n + 1} changed", *moved[n].tolist()) for n in range(8)]
    show.table("how far each output moves", ("", *(f"b_{n + 1}" for n in range(8))), rows)
    show.equal("largest move of an earlier output", moved.tril(-1).max().item(), 0.0)
    show.above("smallest move of the changed and of a later output", moved[moved.triu() > 0].min().item(), 0.0)
    show.equal("outputs that move", int((moved > 0).sum()), 8 * 9 // 2)


def contributions(attention: Attention, x: Tensor) -> Tensor:
    """Return the contribution of each head to the output: its weighted values through its own columns of W_O."""
    with watch(attention) as maps:
        attention(x)
    values = attention.qkv(x).chunk(3, dim=-1)[2].unflatten(-1, (attention.heads, -1)).transpose(1, 2)
    heads = maps[""].rows() @ values  # (B, H, T, E)
    columns = attention.out.weight.unflatten(1, (attention.heads, -1))  # type: ignore[operator]
    return torch.einsum("bhte,dhe->bhtd", heads, columns)


@torch.no_grad()
def heads(show: Demonstration) -> None:
    """R32: split, attend, concatenate, W_O; without a head the loss is what the head contributed."""
    for count, width in ((8, 64), (2, 256)):
        attention = Attention(512, count)
        parts = contributions(attention, x := torch.randn(1, 5, 512))
        show.equal(f"D = 512, {count} heads: width of a head", attention.head_dim, width)
        show.same(
            f"{count} heads: their contributions add up to the output",
            parts.sum(1) + attention.out.get_parameter("bias"),
            attention(x),
            1e-5,
        )
    attention, x = Attention(16, 4), torch.randn(2, 6, 16)
    target, parts, whole = attention(x), contributions(attention, x), attention.out.weight.clone()  # type: ignore[operator]
    rows = []
    for head in range(4):
        attention.out.weight.copy_(whole)  # type: ignore[operator]
        attention.out.weight[:, 4 * head : 4 * head + 4] = 0  # type: ignore[operator]
        loss = (attention(x) - target).square().mean().item()
        rows.append((head, loss, parts[:, head].square().mean().item()))
        show.close(f"loss without head {head} = its contribution", loss, rows[-1][2], 1e-7)
        show.above(f"head {head} matters: loss", loss, 1e-6)
    show.table("one head switched off", ("head", "loss", "square of its contribution"), rows)
    _trained_heads(show)
    show.note("On your own model: saccade look RUN TEXT, or the page Look of the studio, switches any head off.")


class Repeats(nn.Module):
    """One layer with four heads that predicts the last token and the one before it."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(8, 32), nn.Linear(32, 16)
        self.stack = Transformer(TransformerConfig(dim=32, depth=1, heads=4, hidden=64))

    def forward(self, ids: Tensor) -> Tensor:
        """Return the mean loss of the two predictions at each token but the first two."""
        logits = self.head(self.stack(self.table(ids), mask=Causal()))[:, 2:].unflatten(-1, (2, 8))  # (B, T - 2, 2, 8)
        targets = torch.stack((ids[:, 1:-1], ids[:, :-2]), dim=-1)
        return F.cross_entropy(logits.flatten(0, 2), targets.flatten())


def _trained_heads(show: Demonstration) -> None:
    """Train a model, show its heads, and switch each of them off."""
    torch.manual_seed(0)
    network = Repeats()
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
    with torch.enable_grad():
        for _ in range(TRAINING_STEPS):
            loss = network(torch.randint(8, (32, 12)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    ids = torch.randint(8, (64, 12))
    with watch(network) as maps:
        whole = network(ids).item()
    axis = TokenAxis(Role.TEXT, tuple(map(str, ids[0].tolist())))
    losses = []
    for head in range(4):
        weights = maps["stack.0.self"].rows()[0, head : head + 1]
        with ablated(network, [Ablation("stack.0.self", head)]):
            losses.append(network(ids).item())
        about = f"trained to predict the last token and the one before it: {losses[-1]:.3f} is the loss without it"
        show.map(f"head {head}", about, AttentionMap(f"head {head}", weights, axis, axis))
    rows = [("none", whole, 0.0), *((str(head), loss, loss - whole) for head, loss in enumerate(losses))]
    show.table("a trained model with one head switched off", ("head", "loss", "more than with all heads"), rows)
    show.below("loss of the trained model (guessing: log 8 = 2.08)", whole, 0.5)
    show.above("loss without its most important head", max(losses), whole + 0.5)
    show.above("loss without its least important head", min(losses), whole)


@torch.no_grad()
def two_step_heads(show: Demonstration) -> None:
    """R33: q^{i,h} = W^{q,h} q^i with q^i = W^q a^i is one matrix, W^{q,h} W^q; the same for k and v."""
    dim, count, width = 12, 3, 4
    first = {name: nn.Linear(dim, dim, bias=False) for name in "qkv"}
    second = {name: [nn.Linear(dim, width, bias=False) for _ in range(count)] for name in "qkv"}
    attention = Attention(dim, count, bias=False)
    merged = torch.cat([matrix.weight @ first[name].weight for name in "qkv" for matrix in second[name]])
    attention.qkv.weight.copy_(merged)
    a, outputs = torch.randn(5, dim), []
    for h in range(count):
        q, k, v = (second[name][h](first[name](a)) for name in "qkv")
        outputs.append((q @ k.T / math.sqrt(width)).softmax(-1) @ v)
    two_steps = attention.out(torch.cat(outputs, -1))
    rows = [("W^q", f"{dim} x {dim}", ""), ("W^{q,h}", f"{width} x {dim}", "one for each head")]
    show.table(
        "two matrices, or their product",
        ("matrix", "shape", ""),
        [*rows, ("W^{q,h} W^q", f"{width} x {dim}", "one for each head")],
    )
    show.same("both forms give the same function", attention(a[None])[0], two_steps, 1e-5)
    show.equal("shape of the merged matrix of q, k and v", list(merged.shape), [3 * count * width, dim])


@torch.no_grad()
def cross_attention(show: Demonstration) -> None:
    """R34: Q from the decoder, K and V from the encoder: a matrix of target by source."""
    source, target = ["we", "are", "eating", "bread", "now", "please", "."], ["estamos", "comiendo", "pan"]
    decoder = Transformer(TransformerConfig(dim=16, depth=2, heads=4), memory_dim=10)
    x, memory = torch.randn(1, len(target), 16), torch.randn(1, len(source), 10)
    with watch(decoder, "*.cross") as maps:
        decoder(x, memory, mask=Causal())
    for name, recorded in maps.items():
        weights = recorded.rows()[0]
        show.equal(f"{name}: heads x target x source", list(weights.shape), [4, len(target), len(source)])
        show.close(
            f"{name}: smallest and largest sum of a row",
            [weights.sum(-1).min().item(), weights.sum(-1).max().item()],
            [1.0, 1.0],
            1e-5,
        )
    axes = (TokenAxis(Role.TARGET, tuple(target)), TokenAxis(Role.SOURCE, tuple(source)))
    show.map(
        "head 0 of the first layer",
        "an untrained decoder: target words (rows) over source words",
        AttentionMap("0.cross", maps["0.cross"].rows()[0, :1], *axes),
    )
    cross = decoder.get_submodule("0.cross")
    show.equal("width that W_Q reads: the decoder's", cross.q.in_features, 16)  # type: ignore[union-attr, arg-type]
    show.equal("width that W_K and W_V read: the encoder's", cross.kv.in_features, 10)  # type: ignore[union-attr, arg-type]


def inside_a_cnn(show: Demonstration) -> None:
    """R35: self-attention between the cells of a feature map, inserted in any CNN; the identity at first."""
    network = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 4, 3, padding=1))
    picture = torch.rand(1, 3, 8, 8)
    with torch.no_grad():
        before = network(picture)
        module = insert_attention(network, "0", 16)
        show.same("gain 0: the network gives what it gave without the module", network(picture), before)
        module.gain.fill_(1.0)
        show.above("gain 1: its output moves by", (network(picture) - before).abs().max().item(), 1e-3)
        with watch(network) as maps:
            network(picture)
    network(picture).sum().backward()
    show.above("the gain learns: its gradient", module.gain.grad.abs().item(), 0.0)  # type: ignore[union-attr]
    weights = next(iter(maps.values())).rows()[0, :1]
    axis = GridAxis(Role.IMAGE, 8, 8, (255 * picture[0]).byte())
    show.map(
        "the cell in row 2, column 5",
        "where it looks",
        AttentionMap("attention", weights, axis, axis),
        OverlayStyle(at=(2, 5), smooth=False),
    )
    show.equal("a cell sees all cells: shape of the weights", list(weights.shape), [1, 64, 64])
    show.close("weights of a cell sum to", weights[0, 21].sum().item(), 1.0, 1e-5)
    w_q = module.attention.qkv.weight[:16]
    by_convolution = nn.functional.conv2d(before_attention := torch.randn(1, 16, 8, 8), w_q[:, :, None, None])
    by_linear = nn.functional.linear(before_attention.permute(0, 2, 3, 1), w_q).permute(0, 3, 1, 2)
    show.same("W_Q on each cell = a 1x1 convolution", by_linear, by_convolution, 1e-5)


def what_it_refers_to(show: Demonstration) -> None:
    """R36: what does "it" look at: a head of a pretrained encoder whose row of "it" peaks on "animal"."""
    model = api.load(api.get_model(MODEL), device="cpu")
    prediction = model(SENTENCE)
    figure = AttentionFigure.of(prediction, f"bert.encoder.{LAYER}.self", HEAD)
    attention = figure.attention
    words = [label.strip() for label in attention.queries.labels]
    row = attention.weights[0, words.index("it")]
    order = row.argsort(descending=True)[:4].tolist()
    show.figure(f"{MODEL}, layer {LAYER}, head {HEAD}", SENTENCE, figure)
    show.table('what "it" looks at', ("word", "weight"), [(words[at], row[at].item()) for at in order])
    show.equal('the row of "it" peaks on', words[order[0]], "animal")
    show.above("its weight", row[order[0]].item(), 0.5)
    show.above("times the weight of street", (row[order[0]] / row[words.index("street")]).item(), 5)
    show.note("Try it yourself: the page Look of the studio takes your sentence, and any layer and head of your model.")


LOOK = f"look?model={MODEL}&first={SENTENCE.replace(' ', '+')}"
ROWS = (
    Row("R28", "One query per input: Q = XW_Q, 2x4 times 4x3 = 2x3", one_query_per_input),
    Row("R29", "Every output from the whole sequence, all in parallel", in_parallel),
    Row("R30", "Permutation equivariance: attention works on sets", permutation, page="lessons"),
    Row("R31", "Masked self-attention: no look-ahead", no_look_ahead, page="lessons"),
    Row("R32", "Multi-head attention: split, attend, concatenate, W_O", heads, 5.0),
    Row("R33", "Heads with a second matrix each: both forms give the same function", two_step_heads),
    Row("R34", "Cross-attention: Q from the decoder, K and V from the encoder", cross_attention),
    Row("R35", "Self-attention inside a CNN", inside_a_cnn),
    Row(
        "R36",
        'What does "it" look at? Layer and head of a pretrained encoder',
        what_it_refers_to,
        5.0,
        (MODEL,),
        page=LOOK,
    ),
)
