"""The decoder-only model: what is not covered by the tests of every architecture (test_seq2seq.py)."""

import pytest
import torch

from saccade.models.seq2seq.decoder_only import DecoderConfig, DecoderOnly
from saccade.models.seq2seq.interface import DecoderState, Vocabularies
from saccade.nn.cache import KVCache
from saccade.nn.compressed import CompressedAttention
from saccade.nn.probe import watch

SMALL = {"dim": 16, "depth": 4, "heads": 2, "hidden": 24, "window_size": 4, "dropout": 0.0, "embedding_dropout": 0.0}


def make(**shape):
    model = DecoderOnly(DecoderConfig(**{**SMALL, **shape}), Vocabularies(12, 12, joint=True)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.4)
    return model


def some(rows=3, tokens=4):
    source, keep = torch.randint(12, (rows, 14)), torch.arange(14) < torch.tensor([14, 6, 1])[:rows, None]
    return source, keep, torch.randint(12, (rows, tokens))


def test_local_and_compressed_layers_alternate():
    kinds = [type(make().decoder.get_submodule(f"{index}.self")) is CompressedAttention for index in range(4)]
    assert kinds == [False, True, False, True]


@torch.no_grad()
def test_the_target_follows_its_source_directly():
    """In a padded batch the features are those of source and target as one sequence."""
    model, (source, keep, ids) = make(), some()
    features = model.decode(ids, model.encode(source, keep))
    for row, length in enumerate(keep.sum(1).tolist()):
        embedded = (model.source.weight[source[row, :length]], model.target.weight[ids[row]])
        x = torch.cat([model.norm(part) for part in embedded])[None]
        whole = model.decoder(x, mask=model.local)
        torch.testing.assert_close(features[row], whole[0, length:], atol=1e-9, rtol=1e-9)


@torch.no_grad()
def test_every_source_token_reaches_the_output_however_far_away():
    """Local layers see 4 tokens; what is 60 tokens away comes through the compressed ones."""
    model = make()
    source, keep, ids = torch.randint(12, (1, 60)), torch.ones(1, 60, dtype=torch.bool), torch.tensor([[3]])
    logits = model(source, keep, ids)
    for position in (0, 1, 2, 30, 59):
        other = source.clone()
        other[0, position] = (other[0, position] + 1) % 12
        assert not torch.allclose(model(other, keep, ids), logits, atol=1e-12)


@torch.no_grad()
def test_the_cache_has_the_source_too():
    model, (source, keep, ids) = make(), some()
    cache = KVCache(4)
    model.decode(ids, model.encode(source, keep), cache=cache)
    assert cache.start.tolist() == [18, 10, 5]


@torch.no_grad()
def test_beams_that_start_together_share_a_source():
    model, (source, keep, _) = make(), some()
    memory = model.encode(source, keep)
    ids = torch.randint(12, (6, 3))  # two beams a sentence
    together = model.decode(ids, memory)
    apart = model.decode(ids, memory.select(torch.tensor([0, 0, 1, 1, 2, 2])))
    torch.testing.assert_close(together, apart)
    state = DecoderState(model, memory, 3)
    torch.testing.assert_close(state.step(ids), model.head(together[:, -1]))


@torch.no_grad()
def test_weights_on_the_source_are_those_of_local_tokens_and_of_compressed_keys():
    model, (source, keep, ids) = make(), some(rows=1)
    with watch(model) as maps:
        model.decode(ids, model.encode(source, keep))
        near, far = (maps[f"decoder.{index}.self"].rows(14)[0] for index in (0, 1))
    assert torch.equal(model.source_weights("decoder.0.self", near, 14), near[..., :14])
    shared = model.source_weights("decoder.1.self", far, 14)
    assert shared.shape == (2, 4, 14)
    torch.testing.assert_close(shared[..., 3:6], (far[..., 2:3] / 3).expand(-1, -1, 3))
    torch.testing.assert_close(shared[..., :12].sum(-1), far[..., 1:5].sum(-1))


def test_it_learns_to_copy_from_far_away():
    """The first token of each source is 20 tokens back, where local layers see 4."""
    torch.manual_seed(1)
    model = DecoderOnly(DecoderConfig(**{**SMALL, "dim": 32, "depth": 2}), Vocabularies(8, 8, joint=True))
    keep, begin = torch.ones(32, 20, dtype=torch.bool), torch.zeros(32, 1, dtype=torch.long)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def some():
        return torch.cat((torch.randint(4, (32, 1)), torch.randint(4, 8, (32, 19))), dim=1)

    for _ in range(80):
        source = some()
        loss = torch.nn.functional.cross_entropy(model(source, keep, begin)[:, 0], source[:, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    source = some()
    with torch.no_grad():
        right = (model(source, keep, begin)[:, 0].argmax(-1) == source[:, 0]).float().mean()
    assert right > 0.9


@pytest.mark.parametrize(("name", "value"), [("window_size", 0), ("stride", 1)])
def test_invalid_configs_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be at least {value + 1}, but is {value}"):
        DecoderConfig(**{name: value})
