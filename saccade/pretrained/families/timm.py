"""ViT and DeiT of timm: the shape follows from the name of the architecture (https://arxiv.org/abs/2106.10270)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from saccade.errors import ModelFileError
from saccade.models.vision.vit import ViTConfig
from saccade.pretrained.families import vit
from saccade.pretrained.families.family import Names
from saccade.pretrained.families.mapping import WeightMapping, weight_and_bias
from saccade.pretrained.image_processors import ImageProcessor

SHAPES = {  # width, layers, heads
    "tiny": (192, 12, 3),
    "small": (384, 12, 6),
    "base": (768, 12, 12),
    "large": (1024, 24, 16),
    "huge": (1280, 32, 16),
}
NAME = re.compile(rf"(vit|deit)_({'|'.join(SHAPES)})(_distilled)?_patch(\d{{1,3}})_(\d{{2,4}})(\..+)?")
SUPPORTED_ARGS = ("img_size",)


@dataclass(frozen=True)
class TimmFields:
    """Fields of config.json."""

    architecture: str
    num_classes: int = 1000
    global_pool: str = "token"
    model_args: dict[str, Any] = field(default_factory=dict)


def is_timm(values: Mapping[str, Any]) -> bool:
    """Whether a config.json is one of timm."""
    return "model_type" not in values and isinstance(values.get("architecture"), str)


def read_config(fields: TimmFields, _: Names) -> ViTConfig:
    match = NAME.fullmatch(fields.architecture)
    if match is None:
        rule = "architecture must be vit_{size}_patch{patch}_{image} or deit_{size}_patch{patch}_{image}"
        raise ValueError(f"{rule} with a size of {', '.join(SHAPES)}, but is {fields.architecture[:80]!r}")
    if fields.global_pool != "token":
        raise ValueError(f"global_pool must be token, but is {fields.global_pool[:80]!r}")
    other = next((name for name in fields.model_args if name not in SUPPORTED_ARGS), None)
    if other is not None:
        raise ValueError(f"model_args must be {', '.join(SUPPORTED_ARGS)} alone, but has {other[:80]!r}")
    size = fields.model_args.get("img_size", int(match[5]))
    if not isinstance(size, int):
        raise ValueError(f"img_size must be a number, but is {str(size)[:80]}")
    dim, depth, heads = SHAPES[match[2]]
    distilled = match[3] is not None
    published = {**vit.PUBLISHED, "distillation_token": distilled, "pooling": "distilled" if distilled else "class"}
    return ViTConfig(
        dim=dim,
        depth=depth,
        heads=heads,
        hidden=4 * dim,
        activation="gelu",
        epsilon=1e-6,
        image_size=size,
        patch=int(match[4]),
        **published,
    )


def body(config: ViTConfig) -> list[WeightMapping]:
    tokens = ("cls_token", "dist_token")[: len(config.extra)]
    shapes = ((1, 1, config.dim), (1, config.dim))
    mappings = [
        WeightMapping("tokens", tokens, rows=(1,) * len(tokens), shapes=shapes),
        WeightMapping("position.table", ("pos_embed",), squeeze=True),
        *vit.patch_mapping(config, "patch_embed.proj"),
        *weight_and_bias("encoder.norm", "norm"),
    ]
    for layer in range(config.depth):
        ours, theirs = f"encoder.{layer}", f"blocks.{layer}"
        mappings += weight_and_bias(f"{ours}.self.qkv", f"{theirs}.attn.qkv")
        mappings += weight_and_bias(f"{ours}.self.out", f"{theirs}.attn.proj")
        mappings += weight_and_bias(f"{ours}.self_residual.norm", f"{theirs}.norm1")
        mappings += weight_and_bias(f"{ours}.feed.up", f"{theirs}.mlp.fc1")
        mappings += weight_and_bias(f"{ours}.feed.down", f"{theirs}.mlp.fc2")
        mappings += weight_and_bias(f"{ours}.feed_residual.norm", f"{theirs}.norm2")
    return mappings


def read_processor(folder: Path, values: Mapping[str, Any]) -> ImageProcessor:
    """Return the processor that pretrained_cfg describes: the shorter side resized, then the centre."""
    path, config = folder / "config.json", values.get("pretrained_cfg") or values
    size, part, mode = config.get("input_size"), config.get("crop_pct") or 0.875, config.get("crop_mode") or "center"
    valid = isinstance(size, list) and len(size) == 3 and size[0] == 3 and size[1] == size[2]
    if not valid or not isinstance(size, list):
        raise ModelFileError(f"{path}: input_size must be [3, size, size], but is {str(size)[:80]}; {UNSUPPORTED}")
    if mode != "center" or not isinstance(part, int | float) or not 0.1 <= part <= 1:
        rule = "crop_mode must be center and crop_pct from 0.1 to 1"
        raise ModelFileError(f"{path}: {rule}, but are {str(mode)[:80]!r} and {str(part)[:80]}; {UNSUPPORTED}")
    interpolation = {"bilinear": 2, "bicubic": 3, "lanczos": 1}.get(str(config.get("interpolation")))
    content = {
        "image_processor_type": "ViTImageProcessor",
        "size": {"shortest_edge": math.floor(size[1] / part)},
        "crop_size": {"height": size[1], "width": size[2]},
        "do_center_crop": True,
        "resample": interpolation or 0,
        "image_mean": config.get("mean"),
        "image_std": config.get("std"),
    }
    return ImageProcessor.from_json(path, content, "vit")


UNSUPPORTED = "this image processor is not supported"

FAMILY = replace(
    vit.FAMILY,
    name="timm",
    fields=TimmFields,
    read_config=read_config,
    body=body,
    prefix="",
    read_processor=read_processor,
    write_processor=None,
    renames=(),
)
