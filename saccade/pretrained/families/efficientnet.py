"""EfficientNet-Lite of the catalogue, whose batch norms become part of the convolutions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from saccade.models.vision.efficientnet import EfficientNet, EfficientNetConfig
from saccade.pretrained.families.family import Family, Names
from saccade.pretrained.families.mapping import GetTensor, WeightMapping
from saccade.pretrained.families.vit import prepare
from saccade.pretrained.image_processors import read_image_processor

EPSILON = 1e-3  # of the batch norms


@dataclass(frozen=True)
class EfficientNetFields:
    """Fields of config.json, which the catalogue writes."""

    stages: tuple[tuple[int, ...], ...] = EfficientNetConfig.stages


@dataclass(frozen=True)
class FoldedWeight(WeightMapping):
    """The weight of a convolution times the scale of its batch norm: (weight, gain, variance)."""

    def load(self, get: GetTensor) -> Tensor:
        weight, gain, variance = (get(name) for name in self.hf_names)
        return weight * (gain / (variance + EPSILON).sqrt())[:, None, None, None]


@dataclass(frozen=True)
class FoldedBias(WeightMapping):
    """The bias of a convolution that replaces its batch norm: (bias, gain, mean, variance)."""

    def load(self, get: GetTensor) -> Tensor:
        bias, gain, mean, variance = (get(name) for name in self.hf_names)
        return bias - mean * gain / (variance + EPSILON).sqrt()


def folded(name: str, convolution: str, norm: str) -> list[WeightMapping]:
    """Map a convolution and the batch norm after it to one convolution."""
    gain, bias, mean, variance = (f"{norm}.{part}" for part in ("weight", "bias", "running_mean", "running_var"))
    weight = FoldedWeight(f"{name}.weight", (f"{convolution}.weight", gain, variance))
    return [weight, FoldedBias(f"{name}.bias", (bias, gain, mean, variance))]


def read_config(fields: EfficientNetFields, _: Names) -> EfficientNetConfig:
    return EfficientNetConfig(stages=fields.stages)


def write_config(config: EfficientNetConfig, _: nn.Module) -> dict[str, Any]:
    raise ValueError("transformers has no EfficientNet-Lite")


def build(config: EfficientNetConfig, fields: Any, _: Names) -> nn.Module:
    return EfficientNet(config)


def body(config: EfficientNetConfig) -> list[WeightMapping]:
    mappings = [*folded("stem", "_conv_stem", "_bn0"), *folded("head", "_conv_head", "_bn1")]
    for number in range(config.depth):
        ours, theirs = f"blocks.{number}", f"_blocks.{number}"
        mappings += folded(f"{ours}.expand", f"{theirs}._expand_conv", f"{theirs}._bn0")
        mappings += folded(f"{ours}.depthwise", f"{theirs}._depthwise_conv", f"{theirs}._bn1")
        mappings += folded(f"{ours}.project", f"{theirs}._project_conv", f"{theirs}._bn2")
    return mappings


def read_processor(folder: Path, values: Mapping[str, Any]) -> Any:
    return read_image_processor(folder, {**values, "model_type": "vit"})


FAMILY = Family(
    name="efficientnet_lite",
    fields=EfficientNetFields,
    config=EfficientNetConfig,
    task=lambda _: "image_classification",
    read_config=read_config,
    write_config=write_config,
    build=build,
    body=body,
    head=(),
    prefix="",
    network_prefix="",
    architecture=lambda _: "EfficientNetLite",
    read_processor=read_processor,
    write_processor=None,
    prepare=prepare,
    ignored=("num_batches_tracked", "_fc.weight", "_fc.bias"),
)
