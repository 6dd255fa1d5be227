"""DeiT: a ViT with a second token that learned from a teacher (https://arxiv.org/abs/2012.12877)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from saccade.models.vision.vit import ViTConfig
from saccade.pretrained.families import vit
from saccade.pretrained.families.family import Names
from saccade.pretrained.families.mapping import GetTensor, WeightMapping

PUBLISHED: dict[str, Any] = {**vit.PUBLISHED, "distillation_token": True}


def read_config(fields: vit.ViTFields, _: Names) -> ViTConfig:
    return vit.config_of(fields, PUBLISHED)


def read_distilled_config(fields: vit.ViTFields, _: Names) -> ViTConfig:
    """Return the config of a network whose head reads both tokens."""
    return vit.config_of(fields, {**PUBLISHED, "pooling": "distilled"})


@dataclass(frozen=True)
class AveragedHeads(WeightMapping):
    """A head over the vectors of both tokens, stored as one head for each, whose outputs are averaged."""

    def load(self, get: GetTensor) -> Tensor:
        first, second = (get(name) for name in self.hf_names)
        return (first + second) / 2 if first.ndim == 1 else torch.cat((first, second), dim=1) / 2

    def store(self, parameter: Tensor) -> dict[str, Tensor]:
        halves = (parameter, parameter.clone()) if parameter.ndim == 1 else (2 * parameter).chunk(2, dim=1)
        return {name: half.contiguous() for name, half in zip(self.hf_names, halves, strict=True)}


def averaged_heads(first: str, second: str) -> list[WeightMapping]:
    """Map the head of a classifier that reads both tokens."""
    return [AveragedHeads(f"head.{kind}", (f"{first}.{kind}", f"{second}.{kind}")) for kind in ("weight", "bias")]


FAMILY = replace(
    vit.FAMILY,
    name="deit",
    read_config=read_config,
    prefix="deit.",
    architecture=lambda _: "DeiTModel",
)
