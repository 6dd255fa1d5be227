"""The probe: recorded weights equal the explicit softmax, only in the context of the recorder."""

import gc
import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from saccade.models.text.gpt import GPT, GPTConfig
from saccade.nn.attention import Additive, Attention, Cosine, Dot, Heads, QKNorm
from saccade.nn.cache import KVCache
from saccade.nn.masks import Causal, Padding, Window
from saccade.nn.probe import RecordedRow, record, watch
from saccade.nn.transformer import Transformer, TransformerConfig

DIM, HEADS, TOKENS, VOCABULARY = 16, 4, 7, 11
SHAPES = {
    "default": {},
    "cosine": {"score": "cosine"},
    "scaled_dot": {"score": "scaled_dot", "position": "learned", "bias": True, "norm": "layer"},
    "one_key_head": {"kv_heads": 1},
    "two_key_heads": {"kv_heads": 2, "score": "scaled_dot"},
    "window": {"window": 3},
    "post_norm": {"norm_first": False, "position": "sinusoidal"},
}


def randomised(model):
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model


def make_gpt(shape="default"):
    return randomised(
        GPT(GPTConfig(dim=DIM, depth=3, heads=HEADS, hidden=24, max_positions=16, **SHAPES[shape]), VOCABULARY)
    )


def some_ids(rows=2, tokens=TOKENS):
    return torch.randint(VOCABULARY, (rows, tokens))


def eager_weights(attention, x, memory, rule):
    """The weights of one attention, computed slowly and separately from its input: (B, H, Q, K)."""
    width = attention.head_dim
    if memory is None:
        q, k, _ = attention.qkv(x).split([heads * width for heads in (HEADS, *[attention.kv_heads] * 2)], dim=-1)
    else:
        q, k = attention.q(x), attention.kv(memory).chunk(2, dim=-1)[0]
    q, k = q.unflatten(-1, (-1, width)), k.unflatten(-1, (-1, width))  # (B, T, H, E)
    if isinstance(attention.score, Cosine | QKNorm):
        q, k = (z / (z.square().mean(-1, keepdim=True) + 1e-6).sqrt() for z in (q, k))
    if attention.rotate is not None:
        speed = torch.tensor([10000 ** (-2 * i / width) for i in range(width // 2)])
        angle = torch.arange(q.shape[1])[:, None, None] * speed
        circle = torch.polar(torch.ones_like(angle), angle)
        q, k = (torch.complex(z[..., 0::2], z[..., 1::2]) * circle for z in (q, k))
        q, k = (torch.cat((z.real, z.imag), dim=-1) for z in (q, k))  # the order of features does not matter to q.k
    k = k.repeat_interleave(HEADS // attention.kv_heads, dim=2)
    scores = torch.einsum("bqhe,bkhe->bhqk", q, k)
    scores = scores * 10 / width if isinstance(attention.score, Cosine) else scores / width**0.5
    hidden = [[[not rule(b, i, j) for j in range(k.shape[1])] for i in range(q.shape[1])] for b in range(len(x))]
    return scores.masked_fill(torch.tensor(hidden)[:, None], float("-inf")).softmax(-1)


def inputs_of(model):
    """Hooks that keep what each attention was given, by name."""
    seen = {}
    for name, module in model.named_modules():
        if isinstance(module, Attention):
            module.register_forward_pre_hook(lambda _, args, name=name: seen.__setitem__(name, args))
    return seen


def causal(b, q, k):
    return k <= q


# --- exact ---


@pytest.mark.parametrize("shape", SHAPES)
def test_every_layer_and_head_equals_the_eager_softmax(shape):
    model = make_gpt(shape)
    seen = inputs_of(model)
    rule = (lambda b, q, k: q - 3 < k <= q) if shape == "window" else causal
    with watch(model) as maps:
        model(some_ids())
    assert list(maps) == ["decoder.0.self", "decoder.1.self", "decoder.2.self"]
    for name, attention_map in maps.items():
        expected = eager_weights(model.get_submodule(name), seen[name][0], None, rule)
        assert attention_map.shape == (2, HEADS, TOKENS, TOKENS)
        torch.testing.assert_close(attention_map.rows(), expected, atol=1e-6, rtol=0)
        assert torch.equal(attention_map.rows() == 0, expected == 0)


@pytest.mark.parametrize("kv_heads", [0, 2])
def test_cross_attention_and_padding_equal_the_eager_softmax(kv_heads):
    config = TransformerConfig(dim=DIM, depth=2, heads=HEADS, kv_heads=kv_heads, hidden=24)
    decoder = randomised(Transformer(config, memory_dim=6))
    seen = inputs_of(decoder)
    keep, memory_keep = torch.arange(5) < torch.tensor([[5], [3]]), torch.arange(4) < torch.tensor([[2], [4]])
    with watch(decoder) as maps:
        decoder(
            torch.randn(2, 5, DIM),
            torch.randn(2, 4, 6),
            mask=Causal() & Padding(keep),
            memory_mask=Padding(memory_keep),
        )
    rules = {"self": lambda b, q, k: k <= q and keep[b, k], "cross": lambda b, q, k: memory_keep[b, k]}
    for name in ("0.self", "0.cross", "1.self", "1.cross"):
        memory = seen[name][1] if name.endswith("cross") else None
        expected = eager_weights(decoder.get_submodule(name), seen[name][0], memory, rules[name[2:]])
        torch.testing.assert_close(maps[name].rows(), expected, atol=1e-6, rtol=0)
    assert maps["0.cross"].shape == (2, HEADS, 5, 4)


@pytest.mark.parametrize("score", [Dot, lambda: Dot(1.0), Cosine, lambda: Additive(DIM // HEADS)])
def test_weights_times_values_is_the_output(score):
    """Recorded weights are those of the layer, with any score."""
    attention = randomised(Attention(DIM, HEADS, score=score()))
    x = torch.randn(2, TOKENS, DIM)
    mask = Causal() & Window(4)
    with watch(attention) as maps:
        y = attention(x, mask=mask)
    values = attention.qkv(x).chunk(3, dim=-1)[2].unflatten(-1, (HEADS, -1)).transpose(1, 2)
    mixed = (maps[""].rows() @ values).transpose(1, 2).flatten(2)
    torch.testing.assert_close(attention.out(mixed), y, atol=1e-5, rtol=1e-5)


def test_a_query_that_sees_nothing_has_weights_zero():
    attention = Attention(DIM, HEADS)
    with watch(attention) as maps:
        attention(torch.randn(2, 3, DIM), mask=Padding(torch.tensor([[True, True, False], [False] * 3])))
    torch.testing.assert_close(maps[""].rows().sum(-1)[0], torch.ones(HEADS, 3))
    assert (maps[""].rows()[1] == 0).all()
    assert (maps[""].rows()[0, :, :, 2] == 0).all()


@given(chosen=st.sets(st.integers(0, TOKENS - 1)), head=st.sampled_from([None, 0, HEADS - 1]))
@pytest.mark.parametrize("sizes", [(TOKENS,), (2, 1, 1, TOKENS - 4)])
def test_any_queries_are_rows_of_the_full_map(sizes, chosen, head):
    model, ids, cache = make_gpt(), some_ids(), KVCache(TOKENS)
    with torch.no_grad(), watch(model) as maps:
        for part in ids.split(sizes, dim=1):
            model(part, cache=cache)
    queries = torch.tensor(sorted(chosen), dtype=torch.long)
    expected = maps["decoder.1.self"].rows()[:, slice(None) if head is None else slice(head, head + 1), queries]
    torch.testing.assert_close(maps["decoder.1.self"].select(queries, head), expected, atol=1e-6, rtol=0)


def test_the_memory_of_a_map_is_that_of_q_and_k():
    model, ids = make_gpt(), some_ids()
    with torch.no_grad(), watch(model) as maps:
        model(ids)
    found = maps["decoder.0.self"]
    heads = found.shape[1] + found._attention.kv_heads
    assert found.nbytes == len(ids) * TOKENS * heads * found._attention.head_dim * 4
    assert RecordedRow(found, 0).nbytes == found.nbytes // len(ids)


@given(first=st.integers(-2, 9), last=st.integers(-2, 9))
def test_any_rows_are_a_slice_of_the_full_map(first, last):
    attention = Attention(DIM, HEADS)
    with watch(attention) as maps:
        attention(torch.randn(1, TOKENS, DIM), mask=Causal())
    whole = maps[""].rows()
    begin, end = max(first, 0), max(min(last, TOKENS), 0)
    torch.testing.assert_close(maps[""].rows(first, last), whole[:, :, begin:end], atol=1e-6, rtol=0)


def test_watching_does_not_change_the_logits():
    model, ids = make_gpt(), some_ids()
    alone = model(ids)
    with watch(model):
        assert torch.equal(model(ids), alone)


def test_a_map_is_not_part_of_the_graph():
    model = make_gpt()
    with watch(model) as maps:
        model(some_ids()).sum().backward()
    assert not maps["decoder.0.self"].rows().requires_grad
    assert model.decoder.get_parameter("0.self.qkv.weight").grad.any()


# --- what is watched ---


@pytest.mark.parametrize("shape", ["default", "one_key_head", "two_key_heads"])
@pytest.mark.parametrize("heads", [[0], [3, 1], [2, 2, 0]])
def test_only_the_requested_heads_are_recorded(shape, heads):
    model, ids = make_gpt(shape), some_ids()
    with watch(model) as everything, watch(model, heads=heads) as chosen:
        model(ids)
    for name in everything:
        assert chosen[name].shape == (2, len(heads), TOKENS, TOKENS)
        torch.testing.assert_close(chosen[name].rows(), everything[name].rows()[:, heads], atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("layers", "found"),
    [
        ("*", ["0.self", "0.cross", "1.self", "1.cross"]),
        ("*.cross", ["0.cross", "1.cross"]),
        ("1.*", ["1.self", "1.cross"]),
        (["0.self", "1.cross"], ["0.self", "1.cross"]),
        (["[!0].self", "nothing"], ["1.self"]),
    ],
)
def test_layers_are_chosen_by_pattern_in_the_order_of_the_model(layers, found):
    decoder = Transformer(TransformerConfig(dim=DIM, depth=2, heads=HEADS), memory_dim=6)
    with watch(decoder, layers=layers) as maps:
        decoder(torch.randn(1, 3, DIM), torch.randn(1, 4, 6))
    assert list(maps) == found
    assert len(maps) == len(found)
    assert all(attention_map.shape[2] == 3 for attention_map in maps.values())


def test_the_last_call_counts():
    model, ids = make_gpt(), some_ids(tokens=4)
    with watch(model) as maps:
        model(some_ids())
        model(ids)
    with watch(model) as once:
        model(ids)
    assert torch.equal(maps["decoder.1.self"].rows(), once["decoder.1.self"].rows())


# --- while generating ---


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("sizes", [[1] * TOKENS, [4, 1, 1, 1], [3, 3, 1]], ids=["tokens", "prompt", "chunks"])
def test_rows_grow_with_a_cache_and_equal_the_uncached_map(shape, sizes):
    model, ids = make_gpt(shape).double(), some_ids()
    with torch.no_grad(), watch(model) as whole:
        model(ids)
    cache, done = KVCache(12), 0
    with torch.no_grad(), watch(model) as maps:
        for chunk in ids.split(sizes, dim=1):
            model(chunk, cache=cache)
            done += chunk.shape[1]
            for name, grown in maps.items():
                assert grown.shape == (2, HEADS, done, done)
                expected = whole[name].rows(0, done)[..., :done]
                torch.testing.assert_close(grown.rows(), expected, atol=1e-10, rtol=0)
                newest = grown.rows(done - 1, done)
                torch.testing.assert_close(newest, expected[:, :, -1:], atol=1e-10, rtol=0)


def test_heads_and_cross_attention_grow_with_a_cache_too():
    config = TransformerConfig(dim=DIM, depth=2, heads=HEADS, kv_heads=2, hidden=24)
    decoder = randomised(Transformer(config, memory_dim=6)).double()
    x, memory = torch.randn(2, 5, DIM).double(), torch.randn(2, 4, 6).double()
    with torch.no_grad(), watch(decoder) as whole:
        decoder(x, memory, mask=Causal())
    cache = KVCache(5)
    with torch.no_grad(), watch(decoder, heads=[3, 0]) as maps:
        for token in x.split(1, dim=1):
            decoder(token, memory, mask=Causal(), cache=cache)
    for name in whole:
        torch.testing.assert_close(maps[name].rows(), whole[name].rows()[:, [3, 0]], atol=1e-6, rtol=0)


def test_a_watch_may_start_during_generation():
    model, ids, cache = make_gpt().double(), some_ids(), KVCache(TOKENS)
    with torch.no_grad(), watch(model) as whole:
        model(ids)
    with torch.no_grad():
        model(ids[:, :4], cache=cache)
        with watch(model) as maps:
            for token in ids[:, 4:].split(1, dim=1):
                model(token, cache=cache)
    for name in maps:
        torch.testing.assert_close(maps[name].rows(), whole[name].rows(4), atol=1e-6, rtol=0)


def test_a_new_cache_starts_a_new_map():
    model, ids = make_gpt(), some_ids(tokens=3)
    with torch.no_grad(), watch(model) as maps:
        for _ in range(2):
            cache = KVCache(3)
            for token in ids.split(1, dim=1):
                model(token, cache=cache)
    assert maps["decoder.0.self"].shape == (2, HEADS, 3, 3)


def test_a_map_follows_reordered_rows():
    model, ids, rows = make_gpt(), some_ids(), torch.tensor([1, 0])
    with torch.no_grad(), watch(model) as whole:
        model(torch.cat((ids[rows, :4], ids[:, 4:]), dim=1))
    cache = KVCache(TOKENS)
    with torch.no_grad(), watch(model) as maps:
        model(ids[:, :4], cache=cache)
        cache.reorder(rows)
        model(ids[:, 4:], cache=cache)
    torch.testing.assert_close(maps["decoder.0.self"].rows(), whole["decoder.0.self"].rows(), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("lengths", "rows"), [((5, 4), [1]), ((5, 2), [1]), ((5, 2), [1, 0, 1])])
def test_a_map_follows_rows_of_different_lengths(lengths, rows):
    model, ids, rows = make_gpt().double(), some_ids(tokens=6), torch.tensor(rows)
    cache = KVCache(8)
    with torch.no_grad(), watch(model) as maps:
        model(ids[:, :5], cache=cache, count=torch.tensor(lengths))
        cache.reorder(rows)
        model(ids[rows][:, 5:], cache=cache)
    for place, row in enumerate(rows.tolist()):
        seen = torch.cat((ids[row, : lengths[row]], ids[row, 5:]))
        with torch.no_grad(), watch(model) as alone:
            model(seen[None])
        for name, found in maps.items():
            width = len(seen)
            torch.testing.assert_close(
                found.rows(5)[place, :, 0, :width], alone[name].rows(width - 1)[0, :, 0], atol=1e-10, rtol=0
            )


def test_a_map_follows_a_padded_memory_when_rows_are_reordered():
    config = TransformerConfig(dim=DIM, depth=1, heads=HEADS, hidden=24)
    decoder = randomised(Transformer(config, memory_dim=6)).double()
    x, memory = torch.randn(2, 3, DIM).double(), torch.randn(2, 4, 6).double()
    padding, rows = Padding(torch.tensor([[True] * 4, [True, True, False, False]])), torch.tensor([1])
    with torch.no_grad(), watch(decoder) as whole:
        decoder(x, memory, mask=Causal(), memory_mask=padding)
    cache = KVCache(3)
    with torch.no_grad(), watch(decoder) as maps:
        decoder(x[:, :2], memory, mask=Causal(), memory_mask=padding, cache=cache)
        cache.reorder(rows)
    torch.testing.assert_close(maps["0.cross"].rows(), whole["0.cross"].rows(0, 2)[rows], atol=1e-10, rtol=0)


# --- who watches ---


def test_nested_watches_record_separately():
    model, first, second = make_gpt(), some_ids(), some_ids(tokens=3)
    with watch(model) as outer:
        model(first)
        with watch(model, "decoder.1.self") as inner:
            model(second)
        assert torch.equal(inner["decoder.1.self"].rows(), outer["decoder.1.self"].rows())
        model(first)
    assert inner["decoder.1.self"].shape == (2, HEADS, 3, 3)
    assert outer["decoder.1.self"].shape == (2, HEADS, TOKENS, TOKENS)


def test_nothing_is_added_after_the_block():
    model = make_gpt()
    with watch(model) as maps:
        model(some_ids())
    before = maps["decoder.0.self"].rows()
    model(some_ids(tokens=3))
    assert torch.equal(maps["decoder.0.self"].rows(), before)


def test_an_error_inside_the_block_ends_the_watch():
    model = make_gpt()
    with pytest.raises(RuntimeError, match="stop"), watch(model) as maps:
        raise RuntimeError("stop")
    model(some_ids())
    assert maps["decoder.0.self"].shape == (0, 0, 0, 0)


def test_another_model_is_not_watched():
    model, other = make_gpt(), make_gpt()
    with watch(model) as maps:
        other(some_ids())
    assert maps["decoder.0.self"].shape == (0, 0, 0, 0)


def test_two_threads_record_one_model_separately():
    """Both threads are inside their own watch and inside the model at the same time."""
    model, both = make_gpt(), threading.Barrier(2, timeout=30)

    def meet(*_):
        both.wait()

    hook = model.decoder.get_submodule("1").register_forward_pre_hook(meet)
    ids, read = [some_ids(tokens=5), some_ids(tokens=5)], {}

    def request(number):
        with torch.no_grad(), watch(model) as maps:
            for _ in range(3):
                model(ids[number])
            read[number] = {name: attention_map.rows() for name, attention_map in maps.items()}

    threads = [threading.Thread(target=request, args=(number,)) for number in (0, 1)]
    with watch(model) as bystander:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert bystander["decoder.0.self"].shape == (0, 0, 0, 0)
    hook.remove()
    for number in (0, 1):
        with torch.no_grad(), watch(model) as alone:
            model(ids[number])
        for name in alone:
            torch.testing.assert_close(read[number][name], alone[name].rows(), atol=1e-6, rtol=0)
    assert not torch.equal(read[0]["decoder.0.self"], read[1]["decoder.0.self"])


# --- a recorder that is entered again ---


def test_a_recorder_records_only_while_it_is_entered():
    model, ids = make_gpt().double(), some_ids(tokens=4)
    recorder, cache = record(model), KVCache(TOKENS)
    with torch.no_grad(), watch(model) as whole:
        model(ids)
    with torch.no_grad():
        model(some_ids())
        for token in ids.split(1, dim=1):
            with recorder:
                model(token, cache=cache)
            model(some_ids())
    for name in whole:
        torch.testing.assert_close(recorder[name].rows(), whole[name].rows(), atol=1e-10, rtol=0)


def test_a_recorder_entered_twice_records_once():
    model, cache = make_gpt().double(), KVCache(TOKENS)
    recorder = record(model)
    with recorder, recorder:
        model(some_ids(tokens=3), cache=cache)
    assert recorder["decoder.0.self"].shape == (2, HEADS, 3, 3)
    model(some_ids(tokens=2), cache=cache)
    assert recorder["decoder.0.self"].shape[2] == 3


def test_a_suspended_generator_records_no_other_calls():
    """Two interleaved generations, with other calls of the model in between: each records only its own calls."""
    model, ids = make_gpt().double(), [some_ids(rows=1), some_ids(rows=1)]

    def stream(number, recorder):
        def steps():
            cache = KVCache(TOKENS)
            for token in ids[number].split(1, dim=1):
                yield model(token, cache=cache)

        yield from recorder.iterate(steps())

    recorders = [record(model), record(model)]
    streams = [stream(number, recorder) for number, recorder in enumerate(recorders)]
    with torch.no_grad(), watch(model) as outer:
        for step in range(5):
            for running in streams:
                next(running)
            before = [recorder["decoder.0.self"].rows() for recorder in recorders]
            model(some_ids(rows=3))  # while both are suspended
            after = [recorder["decoder.0.self"].rows() for recorder in recorders]
            assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
            assert [rows.shape[2] for rows in after] == [step + 1] * 2
        streams[0].close()
        model(some_ids(rows=3))
    assert outer["decoder.0.self"].shape == (3, HEADS, TOKENS, TOKENS)
    for number, recorder in enumerate(recorders):
        with torch.no_grad(), watch(model) as alone:
            model(ids[number][:, :5])
        for name in alone:
            torch.testing.assert_close(recorder[name].rows(), alone[name].rows(), atol=1e-10, rtol=0)


def test_a_recording_restarts_when_rows_join_the_cache():
    model, ids = make_gpt().double(), some_ids(rows=3)
    cache, other = KVCache(TOKENS), KVCache(TOKENS)
    with torch.no_grad(), watch(model) as recorder:
        model(ids[:2, :4], cache=cache)
        model(ids[2:, :2], cache=other)
        cache.join(other)
        for step in range(2):
            model(torch.stack((ids[0, 4 + step], ids[1, 4 + step], ids[2, 2 + step]))[:, None], cache=cache)
        cache.reorder(torch.tensor([2, 0]))
    for at, (row, length) in enumerate(((2, 4), (0, 6))):
        with torch.no_grad(), watch(model) as alone:
            model(ids[row : row + 1, :length])
        for name in alone:
            found = recorder[name].rows()[at]
            assert found.shape == (HEADS, 2, 6)
            torch.testing.assert_close(found[..., :length], alone[name].rows(length - 2)[0], atol=1e-10, rtol=0)


# --- what is kept ---


def bytes_alive():
    """Bytes of every storage that some tensor still holds."""
    gc.collect()
    tensors = [thing for thing in gc.get_objects() if type(thing) in (torch.Tensor, nn.Parameter)]
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


@pytest.mark.parametrize("shape", SHAPES)
def test_only_q_and_k_are_kept_and_no_v(shape):
    model, ids = make_gpt(shape), some_ids()
    with torch.no_grad():
        model(ids)  # fills what the model itself keeps: angles
        before = bytes_alive()
        with watch(model) as maps:
            model(ids)
        added = bytes_alive() - before
    kv_heads = model.config.kv_heads or HEADS
    q_and_k = len(maps) * ids.numel() * (HEADS + kv_heads) * (DIM // HEADS) * 4
    positions = 2 * TOKENS * 8  # of queries and keys, shared by all layers
    assert added == q_and_k + positions


@pytest.mark.parametrize("shape", ["default", "window"])
def test_memory_grows_with_the_length_and_not_with_its_square(shape):
    model = make_gpt(shape).decoder
    model.position = None
    added = []
    with torch.no_grad():
        model(torch.randn(1, 512, DIM), mask=Causal())
        for tokens in (256, 512):
            x = torch.randn(1, tokens, DIM)
            before = bytes_alive()
            with watch(model) as maps:
                model(x, mask=Causal())
            added.append(bytes_alive() - before)
            assert maps["0.self"].shape[2:] == (tokens, tokens)
            del maps
    assert added[1] == 2 * added[0]


# --- what a person can get wrong ---


def test_a_pattern_that_matches_nothing_lists_the_names():
    model = make_gpt()
    message = (
        r"no attention matches \['encoder\.\*'\]; the model has: decoder\.0\.self, decoder\.1\.self, decoder\.2\.self"
    )
    with pytest.raises(ValueError, match=message), watch(model, "encoder.*"):
        pass
    with pytest.raises(ValueError, match=r"no attention matches \['\*'\]; the model has: none"), watch(nn.Linear(2, 2)):
        pass


def test_a_name_that_is_not_watched_lists_the_watched():
    model = make_gpt()
    message = r"no watched attention 'decoder\.7\.self'; watched: decoder\.0\.self, decoder\.2\.self"
    with watch(model, ["decoder.0.*", "decoder.2.*"]) as maps, pytest.raises(KeyError, match=message):
        maps["decoder.7.self"]


def test_reading_before_the_model_has_run_is_refused():
    model = make_gpt()
    message = r"no attention to read: run the model inside the watch\(\.\.\.\) block"
    with watch(model) as maps, pytest.raises(ValueError, match=message):
        maps["decoder.0.self"].rows()


@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize(("first", "last", "step"), [(0, None, 3), (2, 9, 2), (5, 6, 4), (1, 10, 1)])
def test_strided_rows_of_one_head_are_a_slice_of_the_full_map(kv_heads, first, last, step):
    attention = Attention(12, Heads(4, kv_heads)).eval()
    cache = KVCache(10)
    with torch.no_grad(), watch(attention) as maps:
        for part in torch.randn(2, 10, 12).split((4, 1, 5), dim=1):  # rows come from several calls
            attention(part, mask=Causal(), cache=cache.layer("a"))
            cache.advance(part.shape[1])
    whole = maps[""].rows()
    torch.testing.assert_close(maps[""].rows(first, last, step=step), whole[:, :, first:last:step])
    for head in range(4):
        one = maps[""].rows(first, last, step=step, head=head)
        torch.testing.assert_close(one, whole[:, head : head + 1, first:last:step])
