"""KVCache: a model returns the same with and without it, in any chunks of tokens."""

import itertools
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from saccade.models.text.gpt import GPT, GPTConfig
from saccade.nn.attention import Additive, Attention
from saccade.nn.cache import KVCache
from saccade.nn.masks import Causal, Padding
from saccade.nn.transformer import Transformer, TransformerConfig

TOKENS, VOCABULARY = 9, 11
SHAPES = [
    {"position": position, "kv_heads": kv_heads, "window": window, "norm_first": norm_first, "score": score}
    for position, kv_heads, window, norm_first, score in itertools.product(
        ("rotary", "learned", "sinusoidal", "none"), (1, 2, 4), (0, 5), (True, False), ("scaled_dot", "cosine")
    )
]
FEW = [
    {"position": "rotary", "kv_heads": 2, "window": 5, "score": "cosine"},
    {"position": "learned", "kv_heads": 1, "window": 0, "score": "scaled_dot"},
    {"position": "sinusoidal", "kv_heads": 4, "window": 5, "score": "scaled_dot", "norm_first": False},
    {"position": "none", "kv_heads": 2, "window": 0, "score": "cosine"},
]


def name(shape):
    return "-".join(str(value) for value in shape.values())


def randomised(model):
    """Weights large enough that every layer and every position matters, in double precision."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.4)
    return model.double().eval().requires_grad_(False)


def make_gpt(shape):
    return randomised(GPT(GPTConfig(dim=16, depth=2, heads=4, hidden=24, max_positions=16, **shape), VOCABULARY))


def assert_same(a, b):
    torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("shape", SHAPES, ids=name)
def test_token_by_token_and_in_chunks_equals_all_at_once(shape):
    model = make_gpt(shape)
    ids = torch.randint(VOCABULARY, (2, TOKENS))
    whole = model(ids)
    for sizes in ([1] * TOKENS, [4, 1, 3, 1], [TOKENS]):
        cache = KVCache(TOKENS)
        parts = [model(chunk, cache=cache) for chunk in ids.split(sizes, dim=1)]
        assert_same(torch.cat(parts, dim=1), whole)
        assert (cache.start, cache.longest) == (TOKENS, TOKENS)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.sampled_from(FEW))
def test_any_chunks_equal_all_at_once(sizes, shape):
    model, tokens = make_gpt(shape | {"position": "rotary"}), sum(sizes)
    ids = torch.randint(VOCABULARY, (2, tokens))
    cache = KVCache(tokens + 3)
    parts = [model(chunk, cache=cache) for chunk in ids.split(sizes, dim=1)]
    assert_same(torch.cat(parts, dim=1), model(ids))


@pytest.mark.parametrize("shape", SHAPES, ids=name)
def test_rows_of_different_lengths_continue_from_their_own_length(shape):
    """A padded prompt, `count` real tokens a row, then a chunk with its own counts, then one token each."""
    model = make_gpt(shape)
    ids = torch.randint(VOCABULARY, (3, TOKENS))
    cache = KVCache(TOKENS + 3)
    done = torch.zeros(3, dtype=torch.long)
    for width, count in ((5, (5, 3, 1)), (3, (1, 2, 3)), (1, (1, 1, 1))):
        chunk = torch.randint(VOCABULARY, (3, width))  # what stands beyond `count` is garbage
        for row, real in enumerate(count):
            chunk[row, :real] = ids[row, done[row] : done[row] + real]
        logits = model(chunk, cache=cache, count=torch.tensor(count))
        for row, real in enumerate(count):
            end = int(done[row]) + real
            assert_same(logits[row, :real], model(ids[row : row + 1, :end])[0, end - real :])
        done += torch.tensor(count)
    assert torch.equal(cache.start, done)
    assert cache.longest == int(done.max())


@pytest.mark.parametrize("shape", FEW, ids=name)
@pytest.mark.parametrize("apart", [False, True])
def test_after_reorder_each_row_continues_as_the_row_it_replaced(shape, apart):
    """Beams branch, end and are reordered: row i becomes what row rows[i] was."""
    model = make_gpt(shape)
    ids, rows = torch.randint(VOCABULARY, (3, 5)), torch.tensor([2, 0, 0, 1])
    count = torch.tensor([5, 2, 4]) if apart else None
    cache = KVCache(8)
    model(ids, cache=cache, count=count)
    cache.reorder(rows)
    more = torch.randint(VOCABULARY, (4, 2))
    logits = model(more, cache=cache)
    lengths = [5, 5, 5] if count is None else count.tolist()
    for new, old in enumerate(rows.tolist()):
        whole = torch.cat((ids[old, : lengths[old]], more[new]))[None]
        assert_same(logits[new], model(whole)[0, -2:])


@pytest.mark.parametrize("shape", FEW, ids=name)
def test_a_decoder_with_memory_equals_all_at_once_and_projects_the_memory_once(shape):
    config = TransformerConfig(dim=16, depth=2, heads=4, hidden=24, max_positions=16, **shape)
    decoder = randomised(Transformer(config, memory_dim=6))
    x, memory = torch.randn(2, TOKENS, 16).double(), torch.randn(2, 4, 6).double()
    keep = Padding(torch.tensor([[True, True, True, True], [True, True, False, False]]))
    whole = decoder(x, memory, mask=Causal(), memory_mask=keep)
    projected = Counter()
    for path, module in decoder.named_modules():
        if path.endswith("cross.kv"):
            module.register_forward_hook(lambda *_, path=path: projected.update([path]))
    cache = KVCache(TOKENS)
    parts = [decoder(t, memory, mask=Causal(), memory_mask=keep, cache=cache) for t in x.split([3] + [1] * 6, dim=1)]
    assert_same(torch.cat(parts, dim=1), whole)
    assert projected == {"0.cross.kv": 1, "1.cross.kv": 1}


def test_reorder_moves_the_memory_too():
    decoder = randomised(Transformer(TransformerConfig(dim=16, depth=2, heads=4, hidden=24), memory_dim=6))
    x, memory, rows = torch.randn(2, 4, 16).double(), torch.randn(2, 5, 6).double(), torch.tensor([1, 1, 0])
    cache = KVCache(4)
    decoder(x[:, :3], memory, mask=Causal(), cache=cache)
    cache.reorder(rows)
    last = decoder(x[rows, 3:], memory[rows], mask=Causal(), cache=cache)
    assert_same(last[:, 0], decoder(x, memory, mask=Causal())[rows, 3])


def test_a_single_attention_can_be_cached_whatever_its_score():
    attention = Attention(8, 2, score=Additive(4)).double()
    x, cache = torch.randn(2, 4, 8).double(), KVCache(4)
    parts = []
    with torch.no_grad():
        for token in x.split(1, dim=1):
            parts.append(attention(token, mask=Causal(), cache=cache.layer("only")))
            cache.advance(1)
        assert_same(torch.cat(parts, dim=1), attention(x, mask=Causal()))


def test_buffers_are_allocated_once():
    """The keys of a growing sequence are not copied for each new token."""
    model, cache = make_gpt(FEW[0]), KVCache(6)
    model(torch.zeros(1, 2, dtype=torch.long), cache=cache)
    layer = cache.layer("0.self")
    place, shape = layer.keys.data_ptr(), layer.keys.shape
    model(torch.zeros(1, 4, dtype=torch.long), cache=cache)
    assert (layer.keys.data_ptr(), layer.keys.shape) == (place, shape)
    assert shape == (1, 2, 6, 4)


def test_a_full_cache_reports_its_capacity_and_the_required_length():
    model, cache = make_gpt(FEW[0]), KVCache(4)
    model(torch.zeros(1, 3, dtype=torch.long), cache=cache)
    with pytest.raises(ValueError, match="a cache of capacity 4 cannot hold 5 tokens"):
        model(torch.zeros(1, 2, dtype=torch.long), cache=cache)
    assert cache.start == 3


# --- beams that share a memory ---


@pytest.mark.parametrize("shape", FEW, ids=name)
def test_rows_that_share_a_memory_equal_rows_that_have_copies_of_it(shape):
    config = TransformerConfig(dim=16, depth=2, heads=4, hidden=24, max_positions=16, **shape)
    decoder = randomised(Transformer(config, memory_dim=6))
    x, memory = torch.randn(6, 4, 16).double(), torch.randn(2, 5, 6).double()
    real = torch.tensor([[True] * 5, [True, True, False, False, False]])
    copied = decoder(
        x, memory.repeat_interleave(3, 0), mask=Causal(), memory_mask=Padding(real.repeat_interleave(3, 0))
    )
    assert_same(decoder(x, memory, mask=Causal(), memory_mask=Padding(real)), copied)
    cache = KVCache(4)
    parts = [decoder(part, memory, mask=Causal(), memory_mask=Padding(real), cache=cache) for part in x.split(2, dim=1)]
    assert_same(torch.cat(parts, dim=1), copied)


def test_a_shared_memory_is_kept_while_its_rows_are_reordered_and_removed_with_its_sentence():
    decoder = randomised(Transformer(TransformerConfig(dim=16, depth=2, heads=4, hidden=24), memory_dim=6))
    x, memory = torch.randn(6, 4, 16).double(), torch.randn(3, 5, 6).double()
    cache = KVCache(4)
    decoder(x[:, :2], memory, mask=Causal(), cache=cache)
    cache.reorder(torch.tensor([1, 1, 2, 3, 5, 4]), shared=True)
    assert len(cache.layer("0.cross").fixed[0]) == 3
    moved = x[[1, 1, 2, 3, 5, 4]]
    decoder(moved[:, 2:3], memory, mask=Causal(), cache=cache)
    cache.reorder(torch.tensor([4, 4]), torch.tensor([2]), shared=True)
    assert len(cache.layer("0.cross").fixed[0]) == 1
    last = decoder(moved[[4, 4], 3:], memory[2:], mask=Causal(), cache=cache)
    assert_same(last[:, 0], decoder(moved[[4, 4]], memory[[2, 2]], mask=Causal())[:, 3])


def test_the_state_of_a_layer_is_reordered_with_its_row():
    cache = KVCache(4)
    cache.layer("lstm").state = (torch.arange(3.0)[:, None], 10 * torch.arange(3.0)[:, None, None])
    cache.reorder(torch.tensor([2, 0, 0, 1]))
    h, c = cache.layer("lstm").state
    assert h[:, 0].tolist() == [2, 0, 0, 1]
    assert c[:, 0, 0].tolist() == [20, 0, 0, 10]
    assert cache.layer("another").state == ()


def test_repeated_reordering_allocates_no_memory():
    """Memory is that of all keys and values, and one spare buffer."""
    model, cache = make_gpt(FEW[0]), KVCache(8)
    places = set()
    model(torch.zeros(3, 1, dtype=torch.long), cache=cache)
    for _ in range(6):
        cache.reorder(torch.tensor([2, 0, 0]))
        model(torch.zeros(3, 1, dtype=torch.long), cache=cache)
        for layer in cache._layers.values():
            places |= {layer.keys.data_ptr(), layer.values.data_ptr()}
    assert len(places) == 2 * len(cache._layers) + 1


def test_uninitialized_memory_is_never_read():
    """New memory is filled with nan: rows of different lengths leave positions unwritten."""
    model, ids = make_gpt(FEW[0]), torch.randint(VOCABULARY, (2, 5))
    whole = model(ids)
    torch.use_deterministic_algorithms(True)
    try:
        cache = KVCache(9)
        model(ids[:, :3], cache=cache, count=torch.tensor([3, 1]))
        cache.reorder(torch.tensor([0, 1, 0]))
        model(torch.stack((ids[0, 3:4], ids[1, 1:2], ids[0, 3:4])), cache=cache)
        last = model(torch.stack((ids[0, 4:], ids[1, 2:3], ids[0, 4:])), cache=cache)
    finally:
        torch.use_deterministic_algorithms(False)
    assert_same(last[:, 0], torch.stack((whole[0, 4], whole[1, 2], whole[0, 4])))


# --- rows that join and leave ---


@pytest.mark.parametrize("shape", SHAPES, ids=name)
@pytest.mark.parametrize("capacities", [(TOKENS + 3, TOKENS + 3), (7, TOKENS + 3), (TOKENS + 3, 7)])
def test_joined_rows_continue_from_their_own_length(shape, capacities):
    """Two rows of 4 tokens, one of 2 (or 4) joins; later the first leaves; each is as if it were alone."""
    model = make_gpt(shape)
    ids = torch.randint(VOCABULARY, (3, TOKENS))
    for length in (2, 4):
        cache, other = KVCache(capacities[0]), KVCache(capacities[1])
        model(ids[:2, :4], cache=cache)
        model(ids[2:, :length], cache=other)
        cache.join(other)
        assert cache.capacity == max(capacities)
        assert (other.start, other.longest) == (length, length)  # the other one is only read
        starts = [4, 4, length]
        for step, rows in ((0, [0, 1, 2]), (1, [0, 1, 2]), (2, [2, 1])):
            if step == 2:
                cache.reorder(torch.tensor(rows))
            chunk = torch.stack([ids[row, starts[row] + step] for row in rows])[:, None]
            logits = model(chunk, cache=cache)
            for at, row in enumerate(rows):
                assert_same(logits[at, 0], model(ids[row : row + 1, : starts[row] + step + 1])[0, -1])


def test_memories_and_states_join_too():
    """A shorter memory is padded with zeros, which its mask hides; a carried state follows its row."""
    decoder = randomised(Transformer(TransformerConfig(dim=16, depth=2, heads=4, hidden=24), memory_dim=6))
    x, long, short = torch.randn(3, 5, 16).double(), torch.randn(1, 5, 6).double(), torch.randn(2, 3, 6).double()
    first, second = KVCache(5), KVCache(5)
    decoder(x[:1, :4], long, mask=Causal(), cache=first)
    decoder(x[1:, :2], short, mask=Causal(), cache=second)
    first.layer("state").state = (torch.ones(1, 2),)
    second.layer("state").state = (torch.zeros(2, 3),)
    first.join(second)
    assert [part.tolist() for part in first.layer("state").state] == [[[1, 1, 0], [0, 0, 0], [0, 0, 0]]]
    memory = torch.cat((long, torch.nn.functional.pad(short, (0, 0, 0, 2))))
    keep = Padding(torch.tensor([[True] * 5] + [[True] * 3 + [False] * 2] * 2))
    tokens = torch.stack((x[0, 4], x[1, 2], x[2, 2]))[:, None]
    joined = decoder(tokens, memory, mask=Causal(), memory_mask=keep, cache=first)
    assert_same(joined[0, 0], decoder(x[:1], long, mask=Causal())[0, 4])
    assert_same(joined[1:, 0], decoder(x[1:, :3], short, mask=Causal())[:, 2])


def test_caches_of_different_models_cannot_join():
    first, second = KVCache(4), KVCache(4)
    first.layer("0.self")
    second.layer("1.self")
    with pytest.raises(ValueError, match=r"same layers, but one has \['0.self'\] and the other \['1.self'\]"):
        first.join(second)
