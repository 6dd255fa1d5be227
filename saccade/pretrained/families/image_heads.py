"""Heads of transformers' image classes: the labels of a classifier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from saccade.errors import ModelFileError, UsageError
from saccade.models.vision.classifier import ImageClassifier
from saccade.models.vision.vit import ViT, ViTConfig
from saccade.pretrained.families import deit
from saccade.pretrained.families.family import Family, Names
from saccade.pretrained.families.heads import read_labels
from saccade.pretrained.families.mapping import weight_and_bias

CLASSIFIER, TEACHER = "ForImageClassification", "ForImageClassificationWithTeacher"
CLASSES = {"vit": ("ViTModel", f"ViT{CLASSIFIER}"), "deit": ("DeiTModel", f"DeiT{CLASSIFIER}", f"DeiT{TEACHER}")}
CLASSES |= {"clip": ("CLIPModel",), "siglip": ("SiglipModel",), "timm": ()}


@dataclass(frozen=True)
class ImageHead:
    """The labels of an image classifier, in order."""

    labels: tuple[str, ...]
    distilled: bool = False
    """whether it reads the class and the distillation token of a DeiT"""


def read_image_head(path: Path, family: Family, values: Mapping[str, Any]) -> ImageHead | None:
    """Return the head that a config.json describes; None: an encoder alone, or a network without labels."""
    if family.name == "timm":
        count, names = values.get("num_classes", 1000), values.get("label_names")
        named = {str(number): name for number, name in enumerate(names)} if isinstance(names, list) else None
        labels = read_labels(path, {"num_labels": count or 1, "id2label": named}, number_repeated=True)
        return ImageHead(labels, "_distilled" in str(values["architecture"])) if count else None
    listed = values.get("architectures")
    name = str(listed[0]) if isinstance(listed, list) and listed else CLASSES[family.name][0]
    if name not in CLASSES[family.name]:
        supported = ", ".join(CLASSES[family.name])
        raise ModelFileError(
            f"{path}: architectures must be one of {supported}, but is {name[:80]!r}; the head of this class is not "
            "supported"
        )
    if name.endswith("Model"):
        return None
    labels, problem = read_labels(path, values, number_repeated=True), values.get("problem_type")
    if problem not in (None, "single_label_classification") or len(labels) < 2:
        rule = "problem_type must be single_label_classification with at least 2 labels"
        shown = f"{str(problem or 'missing')[:80]!r} with {len(labels)}"
        raise ModelFileError(f"{path}: {rule}, but is {shown}; this variant of the head is not supported")
    return ImageHead(labels, name.endswith(TEACHER))


def with_image_head(family: Family, head: ImageHead) -> Family:
    """Return a family that reads and writes classifiers with these labels."""
    if family.name not in ("vit", "deit", "timm") or (head.distilled and family.name == "vit"):
        kind = "distilled image_classification" if head.distilled else "image_classification"
        raise UsageError(f"transformers has no class for a {kind} head on a {family.name}")

    def build(config: ViTConfig, fields: Any, _: Names) -> nn.Module:
        return ImageClassifier(ViT(config), len(head.labels))

    if family.name == "timm":
        mappings = deit.averaged_heads("head", "head_dist") if head.distilled else weight_and_bias("head", "head")
        return replace(family, build=build, head=tuple(mappings), network_prefix="encoder.")
    prefix, suffix = CLASSES[family.name][0].removesuffix("Model"), TEACHER if head.distilled else CLASSIFIER
    distilled = deit.averaged_heads("cls_classifier", "distillation_classifier")
    return replace(
        family,
        build=build,
        head=tuple(distilled if head.distilled else weight_and_bias("head", "classifier")),
        read_config=deit.read_distilled_config if head.distilled else family.read_config,
        network_prefix="encoder.",
        architecture=lambda _: prefix + suffix,
    )


def image_head_fields(head: ImageHead) -> dict[str, Any]:
    """Return the fields of config.json that describe a head."""
    return {
        "id2label": {str(number): label for number, label in enumerate(head.labels)},
        "label2id": {label: number for number, label in enumerate(head.labels)},
        "problem_type": "single_label_classification",
    }
