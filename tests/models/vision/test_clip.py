"""CLIP: published sizes, the losses, pooling of texts, any encoder as a tower."""

import math

import pytest
import torch
import torch.nn.functional as F

from saccade.config import from_json
from saccade.models import presets
from saccade.models.text.bert import Bert, BertConfig
from saccade.models.vision.clip import CLIP, BertText, CLIPConfig, TextConfig, TextTransformer
from saccade.models.vision.efficientnet import EfficientNet, EfficientNetConfig
from saccade.models.vision.vit import ViTConfig

VISION = ViTConfig(dim=16, depth=1, heads=2, hidden=32, image_size=8, patch=4)
TEXT = TextConfig(dim=12, depth=1, heads=2, hidden=24, max_positions=10)
PUBLISHED = {  # parameters, size of the vocabulary
    "clip-vit-base-32": (151_277_313, 49408),
    "clip-vit-base-16": (149_620_737, 49408),
    "clip-vit-large-14": (427_616_513, 49408),
    "siglip-base-16": (203_155_970, 32000),
}


def batch(rows=4):
    generator = torch.Generator().manual_seed(2)
    pixels = torch.randint(0, 256, (rows, 3, 8, 8), dtype=torch.uint8, generator=generator)
    return pixels, torch.randint(2, 20, (rows, 6), generator=generator)


@pytest.mark.parametrize("name", presets.CLIP)
def test_presets_have_their_published_number_of_parameters(name):
    expected, vocabulary = PUBLISHED[name]
    with torch.device("meta"):
        network = CLIP.from_config(from_json(CLIPConfig, presets.CLIP[name]), vocabulary)
    assert sum(parameter.numel() for parameter in network.parameters()) == expected


def test_the_softmax_loss_is_that_of_both_directions():
    network, (pixels, ids) = CLIP.from_config(CLIPConfig(VISION, TEXT, 8), 20), batch()
    logits = network.logits(network.image_vectors(pixels), network.text_vectors(ids))
    labels = torch.arange(4)
    expected = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2
    torch.testing.assert_close(network(pixels, ids), expected)
    assert math.isclose(network.logit_scale.exp().item(), 1 / 0.07, rel_tol=1e-5)


def test_the_sigmoid_loss_judges_every_pair_on_its_own():
    network, (pixels, ids) = CLIP.from_config(CLIPConfig(VISION, TEXT, 8, loss="sigmoid"), 20), batch()
    logits = network.logits(network.image_vectors(pixels), network.text_vectors(ids))
    expected = F.binary_cross_entropy_with_logits(logits, torch.eye(4), reduction="sum") / 4
    torch.testing.assert_close(network(pixels, ids), expected)


@pytest.mark.parametrize("loss", ["softmax", "sigmoid"])
def test_a_text_can_belong_to_several_images(loss):
    network, (pixels, ids) = CLIP.from_config(CLIPConfig(VISION, TEXT, 8, loss=loss), 20), batch()
    logits = network.logits(network.image_vectors(pixels), network.text_vectors(ids))
    matches = torch.eye(4)
    matches[0, 1] = matches[1, 0] = 1  # two captions of one picture
    if loss == "softmax":
        probs = matches / matches.sum(1, keepdim=True)
        expected = (F.cross_entropy(logits, probs) + F.cross_entropy(logits.t(), probs)) / 2
    else:
        expected = F.binary_cross_entropy_with_logits(logits, matches, reduction="sum") / 4
    torch.testing.assert_close(network(pixels, ids, matches=matches.bool()), expected)
    assert network(pixels, ids).item() != expected.item()


def test_the_temperature_is_limited_in_the_loss_alone():
    network, (pixels, ids) = CLIP.from_config(CLIPConfig(VISION, TEXT, 8), 20), batch()
    with torch.no_grad():
        network.logit_scale.fill_(math.log(200))
        images, texts = network.image_vectors(pixels), network.text_vectors(ids)
        torch.testing.assert_close(network.logits(images, texts), 200 * images @ texts.t(), rtol=1e-4, atol=1e-4)
        loss = network(pixels, ids)
        network.logit_scale.fill_(math.log(100))
        torch.testing.assert_close(network(pixels, ids), loss, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("pooling", ["mean", "eos", "last"])
def test_padding_does_not_change_the_vector_of_a_text(causal, pooling):
    torch.manual_seed(3)
    config = {"dim": 12, "depth": 2, "heads": 2, "hidden": 24, "max_positions": 10, "init": "normal"}
    encoder = TextTransformer(TextConfig(**config, causal=causal, pooling=pooling, eos_id=19, pad_id=1), 20).eval()
    ids = torch.tensor([[3, 4, 5, 19]])
    padded = torch.tensor([[3, 4, 5, 19, 7, 8]])
    keep = torch.arange(6)[None] < 4
    torch.testing.assert_close(encoder(ids), encoder(padded, keep))


def test_a_text_ends_at_its_first_end_token_or_at_its_largest_id():
    for eos, end in ((5, 2), (-1, 3)):
        encoder = TextTransformer(TextConfig(dim=12, depth=0, heads=2, hidden=24, pooling="eos", eos_id=eos), 20)
        ids = torch.tensor([[3, 4, 5, 19, 5]])
        torch.testing.assert_close(encoder(ids), encoder.encoder(encoder.norm(encoder.embedding(ids)))[:, end])


def test_any_encoder_of_images_and_a_bert_can_be_the_towers():
    vision = EfficientNet(EfficientNetConfig(stages=((1, 3, 2, 1, 8), (1, 3, 2, 2, 8)), dim=24))
    text = BertText(Bert(BertConfig(dim=12, depth=1, heads=2, hidden=24), 20))
    network, (pixels, ids) = CLIP(vision, text, CLIPConfig(projection=8)), batch()
    loss = network(pixels, ids, torch.ones(4, 6, dtype=torch.bool))
    loss.backward()
    assert torch.isfinite(loss) and network.image_projection.weight.grad.abs().sum() > 0


def test_the_loss_falls_on_pairs_that_can_be_told_apart():
    torch.manual_seed(1)
    network, (pixels, ids) = CLIP.from_config(CLIPConfig(VISION, TEXT, 8), 20), batch(8)
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    first = network(pixels, ids).item()
    for _ in range(60):
        optimizer.zero_grad()
        loss = network(pixels, ids)
        loss.backward()
        optimizer.step()
    assert loss.item() < first / 4


def test_configs_that_cannot_work_name_the_field_and_the_value():
    with pytest.raises(ValueError, match=r"projection must be the width of the image vectors \(16\) .*, but is 8"):
        CLIPConfig(VISION, TEXT, 8, project_image=False)
    with pytest.raises(ValueError, match="projection must be at least 1, but is 0"):
        CLIPConfig(projection=0)
    with pytest.raises(ValueError, match="eos_id and pad_id must be ids of tokens, but are -2 and 1"):
        TextConfig(eos_id=-2)
