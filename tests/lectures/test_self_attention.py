"""Lecture rows R28-R34: self-attention, its heads, its masks, cross-attention (with trap T10)."""

import math
import re
import time

import pytest
import torch
from torch import nn

from saccade.errors import UsageError
from saccade.lectures.self_attention import project
from saccade.nn.attention import Attention
from saccade.nn.masks import Causal
from saccade.nn.positions import Rotary
from saccade.nn.probe import watch
from saccade.nn.transformer import Transformer, TransformerConfig


def test_r28_a_2x4_matrix_times_a_4x3_matrix_is_2x3():
    """One row a token: K = X W_K, as in the picture."""
    attention = Attention(3, 1, memory_dim=4, bias=False)
    x = torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 2.0, 0.0, 2.0]])
    w_k = attention.kv.weight.T[:, :3]
    assert (x.shape, w_k.shape) == ((2, 4), (4, 3))
    keys = attention.kv(x)[:, :3]
    assert keys.shape == (2, 3)
    torch.testing.assert_close(keys, torch.stack((w_k[0] + w_k[2], 2 * w_k[1] + 2 * w_k[3])))


def test_r28_runs_on_the_matrices_of_the_user():
    x, w = (
        torch.tensor([[1.0, 2.0], [0.0, 3.0], [5.0, 0.0]]),
        torch.tensor([[1.0, 0.0, 1.0, 2.0], [0.0, 1.0, 1.0, 4.0]]),
    )
    text = project(x, w)
    assert "X W, 3 x 4" in text and "FAILED" not in text and text.count(" ok ") == 2
    for row in (x @ w).int().tolist():
        assert re.search(r"\s+".join(map(str, row)), text)
    with pytest.raises(
        UsageError, match="as many columns as W has rows, but X is 3 x 2 and W is 3 x 2; vectors are rows"
    ):
        project(x, x)


def test_r28_an_embedding_of_512_gives_queries_keys_and_values_of_64():
    attention = Attention(512, 8)
    q, k, v = attention._project_self(torch.randn(1, 2, 512), 0)
    assert q.shape == k.shape == v.shape == (1, 8, 2, 64)


def test_t10_rows_times_matrix_is_the_transpose_of_matrix_times_columns():
    """One deck writes W x for columns, the others x W for rows (ours); both are the same numbers, transposed.

    And self-attention means that q, k and v come from one input: the layer refuses a second one.
    """
    attention = Attention(6, 2, bias=False)
    x = torch.randn(4, 6)
    torch.testing.assert_close(attention.qkv(x), (attention.qkv.weight @ x.T).T)
    with pytest.raises(ValueError, match="memory must be None for a layer without memory_dim"):
        attention(x[None], x[None])


def by_loop(attention, x):
    """b_i = sum_j softmax_j(q_i . k_j / sqrt(E)) v_j, one output after the other, one head after the other."""
    q, k, v = (part.unflatten(-1, (attention.heads, -1)) for part in attention.qkv(x).chunk(3, dim=-1))  # (T, H, E)
    rows = []
    for i in range(len(x)):
        heads = []
        for h in range(attention.heads):
            e = torch.stack([q[i, h] @ k[j, h] for j in range(len(x))]) / math.sqrt(attention.head_dim)
            heads.append(sum(a * v[j, h] for j, a in enumerate(e.softmax(0))))
        rows.append(torch.cat(heads))
    return attention.out(torch.stack(rows))


def seconds(function):
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def test_r29_the_loop_equals_the_matrix_form_which_is_faster():
    attention, x = Attention(16, 2).requires_grad_(False), torch.randn(40, 16)
    torch.testing.assert_close(attention(x[None])[0], by_loop(attention, x), atol=1e-6, rtol=1e-5)
    matrix = min(seconds(lambda: attention(x[None])) for _ in range(5))
    assert matrix < seconds(lambda: by_loop(attention, x)) / 5


def test_r30_shuffling_the_inputs_shuffles_the_outputs():
    """f(s(x)) = s(f(x)): a set, not a sequence; a mask or a position breaks the symmetry."""
    x, shuffle = torch.randn(2, 6, 16).double(), torch.randperm(6)
    attention = Attention(16, 4).double()
    torch.testing.assert_close(attention(x[:, shuffle]), attention(x)[:, shuffle], atol=1e-12, rtol=1e-12)
    stack = Transformer(TransformerConfig(dim=16, depth=3, heads=4, position="none")).double()
    torch.testing.assert_close(stack(x[:, shuffle]), stack(x)[:, shuffle], atol=1e-12, rtol=1e-12)
    masked = attention(x[:, shuffle], mask=Causal()) - attention(x, mask=Causal())[:, shuffle]
    assert masked.abs().max() > 1e-3
    turned = Attention(16, 4, rotate=Rotary(4)).double()
    assert (turned(x[:, shuffle]) - turned(x)[:, shuffle]).abs().max() > 1e-4


def test_r31_a_later_token_changes_no_earlier_output():
    attention, x = Attention(16, 4), torch.randn(1, 8, 16)
    before = attention(x, mask=Causal())
    for position in range(8):
        changed = x.clone()
        changed[:, position] += 1
        moved = (attention(changed, mask=Causal()) - before).abs().sum(-1)[0]
        assert (moved[:position] == 0).all()
        assert (moved[position:] > 0).all()


def contributions(attention, x):
    """Return the contribution of each head to the output: its weighted values through its own columns of W_O."""
    with watch(attention) as maps:
        attention(x)
    values = attention.qkv(x).chunk(3, dim=-1)[2].unflatten(-1, (attention.heads, -1)).transpose(1, 2)
    heads = maps[""].rows() @ values  # (B, H, T, E)
    columns = attention.out.weight.unflatten(1, (attention.heads, -1))  # (D, H, E)
    return torch.einsum("bhte,dhe->bhtd", heads, columns)


@pytest.mark.parametrize(("heads", "width"), [(8, 64), (2, 256)])
def test_r32_split_attend_concatenate_and_w_o(heads, width):
    attention = Attention(512, heads).requires_grad_(False)
    assert (attention.heads, attention.head_dim) == (heads, width)
    x = torch.randn(1, 5, 512)
    parts = contributions(attention, x)
    assert parts.shape == (1, heads, 5, 512)
    torch.testing.assert_close(parts.sum(1) + attention.out.bias, attention(x), atol=1e-5, rtol=1e-5)


def test_r32_ablating_a_head_increases_the_loss():
    """The target is what all heads say together; without one of them the loss is what that head contributed."""
    attention, x = Attention(16, 4).requires_grad_(False), torch.randn(2, 6, 16)
    target, parts = attention(x), contributions(attention, x)
    whole = attention.out.weight.clone()
    for head in range(4):
        attention.out.weight.copy_(whole)
        attention.out.weight[:, 4 * head : 4 * head + 4] = 0
        loss = (attention(x) - target).square().mean()
        torch.testing.assert_close(loss, parts[:, head].square().mean(), atol=1e-8, rtol=1e-4)
        assert loss > 1e-6


def test_r33_a_second_matrix_for_each_head_merges_into_one():
    """q^{i,h} = W^{q,h} q^i with q^i = W^q a^i is one matrix, W^{q,h} W^q; the same for k and v."""
    dim, heads, width = 12, 3, 4
    first = {name: nn.Linear(dim, dim, bias=False) for name in "qkv"}
    second = {name: [nn.Linear(dim, width, bias=False) for _ in range(heads)] for name in "qkv"}
    attention = Attention(dim, heads, bias=False)
    merged = [matrix.weight @ first[name].weight for name in "qkv" for matrix in second[name]]
    with torch.no_grad():
        attention.qkv.weight.copy_(torch.cat(merged))
    a, outputs = torch.randn(5, dim), []
    for h in range(heads):
        q, k, v = (second[name][h](first[name](a)) for name in "qkv")
        outputs.append((q @ k.T / math.sqrt(width)).softmax(-1) @ v)
    two_steps = attention.out(torch.cat(outputs, dim=-1))
    torch.testing.assert_close(attention(a[None])[0], two_steps, atol=1e-6, rtol=1e-5)


def test_r34_cross_attention_takes_q_from_the_decoder_and_k_and_v_from_the_encoder():
    target_length, source_length = 3, 7
    decoder = Transformer(TransformerConfig(dim=16, depth=2, heads=4), memory_dim=10)
    x, memory = torch.randn(1, target_length, 16), torch.randn(1, source_length, 10)
    with watch(decoder, "*.cross") as maps:
        decoder(x, memory, mask=Causal())
    for attention_map in maps.values():
        matrix = attention_map.rows()[0, 0]
        assert matrix.shape == (target_length, source_length)
        torch.testing.assert_close(matrix.sum(-1), torch.ones(target_length))
    cross = decoder.get_submodule("0.cross")
    assert cross.q.in_features == 16
    assert cross.kv.in_features == 10
