"""Compiled attention of short rows: equal to torch's, for any padding; what it cannot compute it leaves."""

import pytest
import torch
import torch.nn.functional as F

from saccade.decode.kernels import attention_kernel
from saccade.models.text.bert import Bert, BertConfig
from saccade.nn.masks import Causal, Padding, Segments
from saccade.nn.packed import pack

pytest.importorskip("numba", reason="the extra 'fast' is not installed")
from saccade.decode.compiled.rows import MAX_KEYS, attend_rows


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.no_grad():
        yield
    torch.set_num_threads(threads)


def heads(rows, tokens, count, width):
    """Return q, k and v (B, H, T, E) as an attention layer has them: views of one tensor."""
    joint = torch.randn(rows, tokens, 3, count, width)
    return joint.transpose(1, 3).unbind(2)


@pytest.mark.parametrize("tokens", [1, 2, 15, 16, 17, 40, 65, 129])
@pytest.mark.parametrize("width", [16, 32, 48, 64])
def test_the_result_is_that_of_torch(tokens, width):
    q, k, v = heads(3, tokens, 2, width)
    expected = F.scaled_dot_product_attention(q, k, v, scale=0.3)
    torch.testing.assert_close(attend_rows(q, k, v, None, 0.3), expected, rtol=1e-5, atol=3e-6)


def test_hidden_keys_do_not_count_wherever_they_are():
    q, k, v = heads(4, 37, 2, 32)
    keep = torch.rand(4, 37) < 0.5
    keep[1], keep[2] = True, torch.arange(37) < 20
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None], scale=0.2)
    hidden = ~keep[:, None, :, None]
    y = attend_rows(q, k.masked_fill(hidden, 1e30), v.masked_fill(hidden, torch.nan), Padding(keep), 0.2)
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=3e-6)


def test_a_row_without_visible_keys_is_zero():
    q, k, v = heads(2, 5, 1, 16)
    y = attend_rows(q, k, v, Padding(torch.tensor([[False] * 5, [True] * 5])), 1.0)
    assert (y[0] == 0).all() and (y[1] != 0).any()


@pytest.mark.parametrize("lengths", [[5], [1, 16, 33, 2], [17] * 9])
def test_segments_see_themselves_alone(lengths):
    mask, tokens = Segments.of(torch.tensor(lengths)), sum(lengths)
    q, k, v = heads(1, tokens, 2, 32)
    allowed = mask.lower(tokens, tokens, 0, q.device).tensor
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, scale=0.2)
    torch.testing.assert_close(attend_rows(q, k, v, mask, 0.2), expected, rtol=1e-5, atol=3e-6)


def test_queries_and_keys_can_differ_in_number():
    q, _, _ = heads(2, 3, 2, 16)
    _, k, v = heads(2, 50, 2, 16)
    expected = F.scaled_dot_product_attention(q, k, v, scale=1.0)
    torch.testing.assert_close(attend_rows(q, k, v, None, 1.0), expected, rtol=1e-5, atol=3e-6)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_numbers_that_are_not_finite_are_not_hidden(value):
    q, k, v = heads(1, 20, 1, 16)
    q = q.clone()
    q[0, 0, 3, 0] = value
    y = attend_rows(q, k, v, None, 1.0)
    assert y[0, 0, 3].isnan().all()
    assert y[0, 0, 4].isfinite().all()


def test_large_scores_do_not_overflow():
    q, k, v = heads(1, 20, 1, 16)
    expected = F.scaled_dot_product_attention(1000 * q, k, v, scale=1.0)
    torch.testing.assert_close(attend_rows(1000 * q, k, v, None, 1.0), expected, rtol=1e-4, atol=1e-4)


def test_what_it_cannot_compute_is_left_to_torch():
    q, k, v = heads(1, 4, 2, 16)
    assert attend_rows(q, k[:, :1], v[:, :1], None, 1.0) is None  # grouped queries
    assert attend_rows(*(x.double() for x in (q, k, v)), None, 1.0) is None
    assert attend_rows(*heads(1, 4, 2, 24), None, 1.0) is None
    assert attend_rows(*heads(1, MAX_KEYS + 1, 1, 16), None, 1.0) is None
    assert attend_rows(*heads(1, 4, 2, 16), Causal(), 1.0) is None
    assert attend_rows(*heads(1, 4, 2, 16), Segments(torch.tensor([[0, 1, 1, 0]])), 1.0) is None  # not in order
    assert attend_rows(*heads(1, MAX_KEYS + 3, 1, 16), Segments.of(torch.tensor([2, MAX_KEYS + 1])), 1.0) is None
    with torch.enable_grad():
        assert attend_rows(q, k, v, None, 1.0) is None
    torch.set_num_threads(2)
    assert attend_rows(q, k, v, None, 1.0) is None


def test_a_packed_encoder_uses_it():
    kernel, calls = attention_kernel(), []

    def counting(*arguments):
        calls.append(arguments)
        return kernel(*arguments)

    config = BertConfig(dim=64, depth=2, heads=2, hidden=128, position="learned", score="scaled_dot", init="normal")
    model = Bert(config, 50).eval()
    ids, keep = torch.randint(50, (3, 9)), torch.arange(9) < torch.tensor([[9], [4], [7]])
    expected = model(ids, keep)
    packed = pack(model, 64, counting)
    torch.testing.assert_close(packed(ids, keep)[keep], expected[keep], rtol=1e-5, atol=1e-5)
    assert len(calls) == 2
    assert all(getattr(module, "kernel", None) is None for module in model.modules())


def test_texts_in_one_row_have_the_vectors_of_texts_alone():
    config = BertConfig(dim=64, depth=2, heads=2, hidden=128, position="learned", score="scaled_dot", init="normal")
    model = Bert(config, 50).eval()
    texts = [torch.randint(50, (1, length)) for length in (9, 4, 7)]
    expected = torch.cat([model(text) for text in texts], dim=1)
    lengths = torch.tensor([text.shape[1] for text in texts])
    for network in (model, pack(model, 64, attention_kernel())):
        y = network(torch.cat(texts, dim=1), lengths=lengths)
        torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)


def test_several_texts_in_a_row_need_learned_positions():
    model = Bert(BertConfig(dim=16, depth=1, heads=1, hidden=16, position="rotary"), 50).eval()
    with pytest.raises(ValueError, match="position must be learned for several texts in a row, but is rotary"):
        model(torch.tensor([[1, 2]]), lengths=torch.tensor([1, 1]))
