"""Layers over another image encoder: pooling by hand, and vectors of the backbone computed before."""

import pytest
import torch
from torch import nn

from saccade.models.vision.grid_transformer import GridTransformer
from saccade.models.vision.resnet import ResNet, ResNetConfig
from saccade.models.vision.vit import ViT, ViTConfig
from saccade.nn.probe import watch
from saccade.nn.transformer import TransformerConfig

SHAPE = TransformerConfig(dim=8, depth=1, heads=2, hidden=16, position="none")


def build(kind: str) -> GridTransformer:
    shape = {"dim": 12, "depth": 1, "heads": 2, "hidden": 16, "image_size": 16, "patch": 4, "class_token": True}
    cnn = ResNet(ResNetConfig(widths=(6, 6), attention_stage=1), attention=False, size=16)
    network = GridTransformer(ViT(ViTConfig(**shape)) if kind == "vit" else cnn, SHAPE)
    for value in network.parameters():
        nn.init.normal_(value, std=0.5)
    return network.eval()


@pytest.mark.parametrize("kind", ["cnn", "vit"])
@torch.no_grad()
def test_vectors_of_the_backbone_can_be_computed_before(kind: str) -> None:
    network, pixels = build(kind), torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8)
    vectors = network(pixels)
    assert vectors.shape == (2, 16 + (kind == "vit"), 8)
    torch.testing.assert_close(network(network.backbone(pixels)), vectors)
    half = network(network.backbone(pixels).half())
    torch.testing.assert_close(half, vectors, atol=0.05, rtol=0.05)


@torch.no_grad()
def test_pooling_is_the_mean_and_what_it_attends_to() -> None:
    network, features = build("cnn"), torch.randn(3, 16, 8)
    with watch(network) as maps:
        pooled = network.pool(features)
    mean = features.mean(1, keepdim=True)
    torch.testing.assert_close(pooled, (mean + network.attention_pool(network.norm(mean), features))[:, 0])
    torch.testing.assert_close(maps["attention_pool"].rows().sum(-1), torch.ones(3, 2, 1))


def test_a_new_network_pools_the_mean() -> None:
    backbone = ResNet(ResNetConfig(widths=(6, 6), attention_stage=1), attention=False, size=16)
    features = torch.randn(3, 16, 8)
    torch.testing.assert_close(GridTransformer(backbone, SHAPE).pool(features), features.mean(1))


def test_a_width_without_room_for_positions_is_refused() -> None:
    with pytest.raises(ValueError, match="dim must be a multiple of 4 for positions on a grid, but is 6"):
        GridTransformer(build("cnn").backbone, TransformerConfig(dim=6, heads=1))
