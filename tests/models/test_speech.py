"""Speech encoders: padding changes nothing, shapes, the pyramid equals its definition, and probe = eager."""

import dataclasses

import pytest
import torch

from saccade.models.seq2seq.to_text import DecoderConfig, TextDecoderConfig, build_to_text
from saccade.models.speech.encoders import (
    ConvolutionalConfig,
    PyramidConfig,
    PyramidEncoder,
    SpeechClassifier,
    SpeechEncoderConfig,
    build_speech_encoder,
)
from saccade.nn.attention import softmax
from saccade.nn.probe import record, watch
from saccade.nn.transformer import TransformerConfig

BANDS = 8
STACK = TransformerConfig(dim=16, depth=2, heads=2, hidden=32, position="sinusoidal")
CONFIG = SpeechEncoderConfig(
    convolutional=ConvolutionalConfig(widths=(4, 8), transformer=STACK), pyramid=PyramidConfig(hidden=8, depth=2)
)


@pytest.fixture(params=["convolutional", "pyramid"])
def encoder(request):
    torch.manual_seed(0)
    return build_speech_encoder(dataclasses.replace(CONFIG, encoder=request.param), BANDS).eval()


def test_positions_are_a_fraction_of_the_frames_and_padding_changes_nothing(encoder):
    sound = torch.randn(1, 24, BANDS)
    keep = torch.ones(1, 24 // encoder.stride, dtype=torch.bool)
    alone = encoder.read(sound, keep)
    assert alone.shape == (1, 24 // encoder.stride, encoder.dim) and encoder.stride == 4
    padded = torch.cat((sound, 9 * torch.ones(1, 16, BANDS)), 1)
    mask = torch.cat((keep, torch.zeros(1, 16 // encoder.stride, dtype=torch.bool)), 1)
    both = encoder.read(torch.cat((padded, torch.randn(1, 40, BANDS))), torch.cat((mask, torch.ones_like(mask))))
    if encoder.stride == encoder.embedding_stride:  # convolutions see what lies behind the end
        padded[:, 24:] = 0
        both = encoder.read(torch.cat((padded, torch.randn(1, 40, BANDS))), torch.cat((mask, torch.ones_like(mask))))
    torch.testing.assert_close(both[:1, : keep.shape[1]], alone, atol=1e-5, rtol=1e-4)


def test_every_layer_could_be_the_last(encoder):
    states = []
    for value in encoder.parameters():
        value.data += 0.3 * torch.randn_like(value)
    sound, keep = torch.randn(2, 16, BANDS), torch.ones(2, 16 // encoder.stride, dtype=torch.bool)
    vectors = encoder(sound, keep, states=states)
    assert torch.equal(states[-1], vectors) and all(state.shape == vectors.shape for state in states)
    expected = 1 if encoder.embedding_stride == 1 else 2
    assert len({float(state.detach().sum()) for state in states}) == len(states) == expected


def test_the_pyramid_reads_two_positions_of_the_layer_below_as_one():
    """Against torch's own LSTMs, with the same weights."""
    torch.manual_seed(1)
    encoder = PyramidEncoder(PyramidConfig(hidden=8, depth=2, dropout=0), BANDS).eval()
    sound = torch.randn(2, 12, BANDS)
    x = encoder.norm(encoder.input(sound))
    for number, layer in enumerate(encoder.layers):
        if number:
            x = torch.stack([torch.cat((x[:, 2 * t], x[:, 2 * t + 1]), -1) for t in range(x.shape[1] // 2)], 1)
        x = layer.kernel(x)[0]
    torch.testing.assert_close(encoder.read(sound, torch.ones(2, 3, dtype=torch.bool)), x)


@pytest.mark.parametrize("decoder", ["transformer", "lstm"])
def test_a_decoder_attends_to_the_sound_and_the_probe_reads_what_was_computed(encoder, decoder):
    shape = TextDecoderConfig(dim=16, depth=1, heads=2, hidden=32)
    model = build_to_text(DecoderConfig(decoder, shape), encoder, 11, ctc_frames=1).eval()
    sound, keep = torch.randn(2, 20, BANDS), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    ids = torch.tensor([[1, 2, 3], [1, 4, 5]])
    with record(model) as recorder:
        logits = model(sound, keep, ids)
    assert logits.shape == (2, 3, 11)
    name = next(key for key in recorder if key.endswith("cross") or key == "attention")
    weights = recorder[name].rows(0)
    assert weights.shape[-1] == 5
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))
    assert not weights[1, ..., 3:].any()
    inputs = ids.masked_fill(ids == 1, 1)
    loss = model(sound, keep, inputs, torch.tensor([[2, 3, 0], [4, 5, 0]]))
    loss.backward()
    assert all(value.grad is not None for name, value in model.named_parameters() if not name.startswith("ctc."))


def test_the_query_of_a_classifier_ignores_padding(encoder):
    model = SpeechClassifier(encoder, 3, heads=2).eval()
    torch.nn.init.normal_(model.head.weight)
    sound = torch.randn(1, 16, BANDS)
    padded = torch.cat((sound, torch.zeros(1, 8, BANDS)), 1)
    short, long = torch.ones(1, 4, dtype=torch.bool), torch.tensor([[True] * 4 + [False] * 2])
    torch.testing.assert_close(model(padded, long), model(sound, short), atol=1e-5, rtol=1e-4)
    with watch(model) as maps:
        model(padded, long)
    weights = maps["cross"].rows(0)
    assert weights.shape[-2:] == (1, 6) and not weights[..., 4:].any()
    loss = model(sound, short, torch.tensor([2]), 0.0)
    torch.testing.assert_close(loss, -model(sound, short).log_softmax(-1)[0, 2])


def test_the_probe_equals_the_softmax_of_the_scores(encoder):
    model = SpeechClassifier(encoder, 3, heads=2).eval()
    sound, keep = torch.randn(1, 16, BANDS), torch.ones(1, 4, dtype=torch.bool)
    with watch(model) as maps:
        model(sound, keep)
    vectors = model.encoder.read(sound, keep)
    q = model.cross.q(model.query).unflatten(-1, (2, -1)).transpose(1, 2)
    k = model.cross.kv(vectors).chunk(2, -1)[0].unflatten(-1, (2, -1)).transpose(1, 2)
    eager = softmax(q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5, None)
    torch.testing.assert_close(maps["cross"].rows(0).reshape(eager.shape), eager, atol=1e-5, rtol=1e-4)


def test_shapes_out_of_range_are_refused():
    with pytest.raises(ValueError, match="depth must be at least 1, but is 0"):
        PyramidConfig(depth=0)
    with pytest.raises(ValueError, match="height must be a multiple of 4 for 2 stages, but is 10"):
        build_speech_encoder(CONFIG, 10)
