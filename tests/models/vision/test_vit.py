"""ViT: published sizes, positions for other image sizes, patches as a convolution sees them, pooling."""

import pytest
import torch
import torch.nn.functional as F

from saccade.models import presets
from saccade.models.vision.classifier import ImageClassifier
from saccade.models.vision.vit import ViT, ViTConfig, split_patches
from saccade.nn.positions import LearnedGrid, SinusoidalGrid
from saccade.nn.probe import watch

SMALL = {"dim": 16, "depth": 2, "heads": 2, "hidden": 32, "image_size": 8, "patch": 2}
# With 1000 labels, as timm and transformers count them.
PUBLISHED = {
    "vit-tiny-16": 5_717_416,
    "vit-small-16": 22_050_664,
    "vit-base-16": 86_567_656,
    "vit-base-32": 88_224_232,
    "vit-large-16": 304_326_632,
    "deit-tiny-16": 5_910_800,
    "deit-small-16": 22_436_432,
    "deit-base-16": 87_338_192,
}


def images(rows=2, height=8, width=8):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (rows, 3, height, width), dtype=torch.uint8, generator=generator)


@pytest.mark.parametrize("name", presets.VIT)
def test_presets_have_their_published_number_of_parameters(name):
    with torch.device("meta"):
        network = ImageClassifier(ViT(ViTConfig(**presets.VIT[name])), 1000)
    count = sum(parameter.numel() for parameter in network.parameters())
    if name.startswith("deit"):  # one head over both tokens has one bias where the published two heads have two
        count += 1000
    assert count == PUBLISHED[name]


def test_patches_and_one_linear_layer_equal_a_convolution():
    x, weight = torch.randn(2, 3, 12, 9), torch.randn(5, 3, 3, 3)
    convolution = F.conv2d(x, weight, stride=3).flatten(2).transpose(1, 2)
    torch.testing.assert_close(split_patches(x, 3) @ weight.flatten(1).t(), convolution)


def test_pixels_are_normalized_by_the_mean_and_deviation_of_each_colour():
    encoder = ViT(ViTConfig(**SMALL), mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    pixels = images()
    for colour, (mean, std) in enumerate(((0.1, 0.5), (0.2, 0.6), (0.3, 0.7))):
        expected = (pixels[:, colour] / 255 - mean) / std
        torch.testing.assert_close(encoder.normalize(pixels)[:, colour], expected)
    assert encoder.to(torch.bfloat16).normalize(pixels).dtype == torch.bfloat16
    assert {"mean", "std"} <= encoder.state_dict().keys()


@pytest.mark.parametrize("stem", ["patches", "convolution"])
@pytest.mark.parametrize("position", ["learned", "sinusoidal", "none"])
@pytest.mark.parametrize("size", [(8, 8), (12, 8), (5, 9)])
def test_every_stem_and_position_gives_one_vector_for_each_patch(stem, position, size):
    encoder = ViT(ViTConfig(**{**SMALL, "stem": stem, "position": position, "class_token": True}))
    rows, columns = encoder.grid(*size)
    states = []
    out = encoder(images(2, *size), states=states)
    assert out.shape == (2, 1 + rows * columns, 16) and len(states) == 3
    assert encoder.extra == ("class",) and (rows, columns) == (size[0] // 2, size[1] // 2)


def test_the_attention_of_a_layer_is_over_the_grid_and_sums_to_1():
    encoder = ViT(ViTConfig(**{**SMALL, "class_token": True, "init": "normal"}))
    with watch(encoder) as maps:
        encoder(images())
    weights = maps["encoder.1.self"].rows(0, 17)
    assert weights.shape[-2:] == (17, 17)
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))


def test_learned_positions_are_used_as_they_are_or_interpolated():
    position = LearnedGrid((3, 4), 8, extra=1)
    assert position(3, 4) is position.table
    larger = position(6, 8)
    assert larger.shape == (1 + 48, 8) and torch.equal(larger[0], position.table[0])
    with torch.no_grad():
        position.table[1:] = 2.0  # a constant stays constant
    torch.testing.assert_close(position(7, 5)[1:], torch.full((35, 8), 2.0))


def test_sinusoidal_positions_have_the_row_in_the_left_half_and_the_column_in_the_right():
    table = SinusoidalGrid(8)(3, 5, torch.device("cpu")).view(3, 5, 8)
    assert table.shape == (3, 5, 8)
    assert torch.equal(table[1, 0, :4], table[1, 4, :4]) and torch.equal(table[0, 2, 4:], table[2, 2, 4:])
    assert len(torch.unique(table.view(15, 8), dim=0)) == 15


def test_the_vector_of_an_image_is_what_the_pooling_says():
    for pooling, expected in (
        ("mean", lambda x: x[:, 2:].mean(1)),
        ("class", lambda x: x[:, 0]),
        ("distilled", lambda x: torch.cat((x[:, 0], x[:, 1]), dim=-1)),
    ):
        tokens = {"class_token": True, "distillation_token": True}
        encoder = ViT(ViTConfig(**{**SMALL, **tokens, "pooling": pooling}))
        features = encoder(images())
        assert torch.equal(encoder.pool(features), expected(features))
        assert encoder.pool(features).shape == (2, encoder.pooled_dim)
    encoder = ViT(ViTConfig(**{**SMALL, "pooling": "attention"}))
    assert encoder.pool(encoder(images())).shape == (2, 16)


def test_a_new_network_is_the_identity_behind_its_embedding():
    encoder = ViT(ViTConfig(**SMALL))
    states = []
    encoder(images(), states=states)
    torch.testing.assert_close(states[0], states[1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"patch": 9}, "patch must be from 1 to the image size, but is 9 for images of 8 x 8"),
        ({"patch": 3, "stem": "convolution"}, "patch must be a power of 2 for convolutions of stride 2, but is 3"),
        (
            {"dim": 18, "position": "sinusoidal"},
            "dim must be a multiple of 4 for sinusoidal positions on a grid, but is 18",
        ),
        ({"pooling": "class"}, "class_token must be true for the pooling class, but is false"),
        ({"pooling": "distilled", "class_token": True}, "distillation_token must be true for the pooling distilled"),
        ({"distillation_token": True}, "class_token must be true for a distillation token, but is false"),
        ({"embedding_dropout": 1.0}, "embedding_dropout must be at least 0 and below 1, but is 1.0"),
    ],
)
def test_a_config_that_cannot_work_names_the_field_and_the_value(changes, message):
    with pytest.raises(ValueError, match=message):
        ViTConfig(**{**SMALL, **changes})


def test_an_image_smaller_than_a_patch_is_refused_with_its_size():
    with pytest.raises(ValueError, match="an image must be at least 2 x 2 pixels, but is 1 x 8"):
        ViT(ViTConfig(**SMALL))(images(1, 1, 8))


@pytest.mark.parametrize("pooling", ["class", "distilled"])
@pytest.mark.parametrize("norm_first", [True, False])
def test_the_last_layer_computes_only_what_the_pooling_reads(pooling, norm_first):
    torch.manual_seed(0)
    shape = {"dim": 24, "depth": 2, "heads": 2, "hidden": 48, "norm": "layer", "bias": True, "image_size": 16}
    tokens = {"class_token": True, "distillation_token": pooling == "distilled", "pooling": pooling}
    model = ViT(ViTConfig(**shape, **tokens, init="normal", norm_first=norm_first))
    pixels = torch.randint(0, 256, (3, 3, 16, 16), dtype=torch.uint8)
    direction = torch.randn(model.pooled_dim)
    seen = []
    model.encoder.get_submodule("1").feed.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].shape[1]))
    whole, few = model.pool(model(pixels)), model.vectors(pixels)
    assert seen == [16 + len(model.extra), len(model.extra)]
    torch.testing.assert_close(few, whole)
    expected = torch.autograd.grad((whole @ direction).sum(), list(model.parameters()))
    grads = torch.autograd.grad((few @ direction).sum(), list(model.parameters()))
    for grad, other in zip(grads, expected, strict=True):
        torch.testing.assert_close(grad, other, rtol=1e-4, atol=1e-4)
    with watch(model) as maps:
        watched = model.vectors(pixels)
    assert maps["encoder.1.self"].shape[2] == 16 + len(model.extra)
    torch.testing.assert_close(watched, few)
