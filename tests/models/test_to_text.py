"""Image to text: attention over the grid, pixels and vectors computed before, caches, beams and every decoder."""

import pytest
import torch

from saccade.decode.search import Search, search
from saccade.models.seq2seq.interface import DecoderState
from saccade.models.seq2seq.recurrent import RecurrentDecoderConfig
from saccade.models.seq2seq.to_text import DecoderConfig, TextDecoderConfig, build_to_text
from saccade.models.vision.vit import ViT, ViTConfig
from saccade.nn.attention import Additive
from saccade.nn.cache import KVCache
from saccade.nn.probe import watch

BEGIN, END, VOCABULARY = 0, 1, 9
CELLS = 9  # 3 x 3
CONFIGS = {
    "transformer": DecoderConfig(transformer=TextDecoderConfig(dim=8, depth=2, heads=2, hidden=12)),
    "lstm": DecoderConfig(decoder="lstm", lstm=RecurrentDecoderConfig(dim=8, hidden=6, cell="lstm")),
    "location": DecoderConfig(
        decoder="lstm", lstm=RecurrentDecoderConfig(dim=8, hidden=6, cell="lstm", score="location")
    ),
}
every = pytest.mark.parametrize("name", CONFIGS)


def make(name: str, *, class_token: bool = False):
    """Return a model over a grid of 3 x 3 cells with large weights in double precision."""
    torch.manual_seed(1)
    shape = ViTConfig(dim=8, depth=1, heads=2, hidden=12, image_size=12, patch=4, class_token=class_token)
    model = build_to_text(CONFIGS[name], ViT(shape), VOCABULARY, positions=CELLS + class_token)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model.double().eval()


def some(rows: int = 3, tokens: int = 5, positions: int = CELLS):
    torch.manual_seed(2)
    pixels = torch.randint(0, 256, (rows, 3, 12, 12), dtype=torch.uint8)
    return pixels, torch.ones(rows, positions, dtype=torch.bool), torch.randint(2, VOCABULARY, (rows, tokens))


def assert_same(a, b):
    torch.testing.assert_close(a, b, atol=1e-9, rtol=1e-9)


@every
@pytest.mark.parametrize("class_token", [False, True])
@torch.no_grad()
def test_the_weights_over_the_whole_grid_sum_to_one_at_every_step(name, class_token):
    model, (pixels, keep, ids) = make(name, class_token=class_token), some(positions=CELLS + class_token)
    with watch(model, ["decoder.*.cross", "attention"]) as maps:
        model(pixels, keep, ids)
    assert list(maps) == (["decoder.0.cross", "decoder.1.cross"] if name == "transformer" else ["attention"])
    for recorded in maps.values():
        weights = recorded.rows()
        assert weights.shape[2:] == (5, CELLS + class_token)
        assert_same(weights.sum(-1), torch.ones_like(weights[..., 0]))
        assert float(weights.std()) > 0.01, "it attends to some cells more than to others"


@every
@torch.no_grad()
def test_the_picture_changes_the_words_and_each_row_has_its_own(name):
    model, (pixels, keep, ids) = make(name), some()
    logits = model(pixels, keep, ids)
    for row in range(3):
        assert_same(logits[row], model(pixels[row : row + 1], keep[:1], ids[row : row + 1])[0])
    assert not torch.allclose(logits, model(pixels.flip(0), keep, ids))


@every
@torch.no_grad()
def test_the_position_of_a_cell_matters(name):
    """Otherwise no caption could say what is left of what."""
    model, (pixels, keep, ids) = make(name), some()
    vectors = model.encoder(pixels)
    assert not torch.allclose(model(vectors, keep, ids), model(vectors.flip(1), keep, ids))


@every
@torch.no_grad()
def test_vectors_computed_before_give_what_the_pixels_give(name):
    model, (pixels, keep, ids) = make(name), some()
    assert_same(model(model.encoder(pixels), keep, ids), model(pixels, keep, ids))


@every
@torch.no_grad()
def test_decoding_with_a_cache_equals_decoding_at_once(name):
    model, (pixels, keep, ids) = make(name), some()
    memory, cache = model.encode(pixels, keep), KVCache(5)
    steps = [model.decode(ids[:, at : at + 1], memory, cache=cache) for at in range(5)]
    assert_same(torch.cat(steps, dim=1), model.decode(ids, memory))


@every
@torch.no_grad()
def test_beam_search_of_a_batch_equals_that_of_each_picture(name):
    model, (pixels, keep, _) = make(name), some()
    special = {"start_id": BEGIN, "end_id": END, "settings": Search(beam=3)}
    together = search(DecoderState(model, model.encode(pixels, keep), 9), [8] * 3, **special)
    for row, hypotheses in enumerate(together):
        memory = model.encode(pixels[row : row + 1], keep[:1])
        (alone,) = search(DecoderState(model, memory, 9), [8], **special)
        assert [one.ids for one in hypotheses] == [one.ids for one in alone]
        assert [one.score for one in hypotheses] == pytest.approx([one.score for one in alone])


@every
def test_the_gradient_reaches_every_parameter(name):
    model, (pixels, keep, ids) = make(name), some()
    model(pixels, keep, ids, ids.roll(-1, 1)).backward()
    assert [label for label, value in model.named_parameters() if value.grad is None or not value.grad.any()] == []


@torch.no_grad()
def test_the_lstm_starts_from_the_mean_of_the_grid_and_attends_additively():
    model, (pixels, keep, _) = make("lstm"), some()
    memory = model.encode(pixels, keep)
    assert_same(memory.state[0], memory.values.mean(1))
    assert type(model.attention.score) is Additive
    half = keep.clone()
    half[:, 4:] = False
    assert_same(model.encode(pixels, half).state[0], memory.values[:, :4].mean(1))


def test_a_new_encoder_keeps_its_weights():
    """The decoder is initialized, the encoder, which may be pretrained, is not."""
    encoder = ViT(ViTConfig(dim=8, depth=1, heads=2, hidden=12, image_size=12, patch=4))
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    for config in CONFIGS.values():
        build_to_text(config, encoder, VOCABULARY, positions=CELLS)
        assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())


def test_a_decoder_without_layers_is_refused():
    with pytest.raises(ValueError, match="depth must be at least 1, but is 0"):
        TextDecoderConfig(depth=0)
