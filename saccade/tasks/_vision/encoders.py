"""Encoders of image tasks in the assets of a run: their shape, and the weights of a pretrained one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from saccade.atomic_io import read_json, write_json
from saccade.config import from_json, to_json
from saccade.core import Base, Pretrained
from saccade.data.images.decoded import DecodedPictures
from saccade.errors import UsageError
from saccade.models.vision.architectures import ENCODERS, VisionConfig, shape
from saccade.models.vision.encoder import VisionEncoder
from saccade.pretrained.adapters import add_lora

ENCODER, WEIGHTS = "encoder.json", "base.safetensors"
MAX_SIDE = 1 << 14  # pixels
SAMPLED = 1000  # images from which weights are computed


def base_encoder(base: Pretrained, ref: str) -> VisionEncoder:
    """Return the image encoder of a pretrained model; one without is refused."""
    network = base.network
    encoder = network if isinstance(network, VisionEncoder) else getattr(network, "encoder", None)
    if not isinstance(encoder, VisionEncoder):
        kind = base.task if base.family is None else base.family.name
        raise UsageError(f"base must be a model that reads images, but {ref} is a {kind}")
    return encoder


def write_encoder(
    config: Any, model: VisionConfig, size: int, images: DecodedPictures, assets: Path, base: Base
) -> list[str]:
    """Write shape and initial weights of the encoder to the assets; returns notes for the user.

    The weights are those of a pretrained encoder, or the few that are computed from the training images.
    """
    if base is None:
        create = ENCODERS[model.architecture][1]
        encoder, notes = create(shape(model, size), size), list[str]()
        if not min(encoder.grid(size, size)):
            least = next(side for side in range(size, MAX_SIDE) if min(encoder.grid(side, side)))
            rule = (
                f"size must be at least {least} for the architecture {model.architecture}, but the images are read as"
            )
            raise UsageError(f"{rule} {size} x {size} pixels; set size={least} or more, or choose vit")
        weights = {part: encoder.state_dict()[part] for part in encoder.adapt(sample_images(images))}
    else:
        encoder = base_encoder(base, config.base)
        weights = encoder.state_dict()
        count = sum(value.numel() for value in encoder.parameters())
        notes = [f"base: {config.base}, {encoder.name}, {count / 1e6:.1f} M parameters"]
    write_json(assets / ENCODER, {"name": encoder.name, "config": to_json(encoder.config), "size": size})
    save_file({part: value.contiguous() for part, value in weights.items()}, assets / WEIGHTS)
    return notes


def read_encoder(config: Any, assets: Path) -> VisionEncoder:
    """Return the encoder that `write_encoder` described, with its initial weights; `tune` says what is trained."""
    described = read_json(assets / ENCODER)
    kind, create = ENCODERS[described["name"]]
    encoder = create(from_json(kind, described["config"]), described["size"])
    if not next(encoder.parameters()).is_meta:
        encoder.load_state_dict(load_file(assets / WEIGHTS), strict=bool(config.base))
    if config.base:
        tune(encoder, config.tune, config.rank)
    return encoder


def tune(encoder: nn.Module, what: str, rank: int) -> None:
    """Freeze an encoder (head), or all of it but low-rank adapters (lora)."""
    if what == "lora":
        add_lora(encoder, rank)
    elif what == "head":
        encoder.requires_grad_(False)


def sample_images(images: DecodedPictures) -> Tensor:
    """Return some training images (N, 3, H, W), from which weights are computed; those of other shapes are left out."""
    rows = np.unique(np.linspace(0, len(images) - 1, min(SAMPLED, len(images))).astype(int))
    return torch.stack([image for image in map(images.__getitem__, rows.tolist()) if image.shape == images[0].shape])
