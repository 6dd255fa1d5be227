"""Encoders of image tasks in the assets of a run: their shape, and the weights of a pretrained one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from saccade.atomic_io import read_json, write_json
from saccade.config import from_json, to_json
from saccade.core import Base, Pretrained
from saccade.data.images.decoded import DecodedPictures
from saccade.errors import UsageError
from saccade.models.vision.architectures import ENCODERS, VisionConfig, shape
from saccade.models.vision.encoder import VisionEncoder
from saccade.pretrained.adapters import add_lora

ENCODER, WEIGHTS = "encoder.json", "base.safetensors"
SAMPLED = 1000  # images from which mean and standard deviation are computed


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
    """Write the shape of the encoder to the assets, and the weights of a pretrained one; returns notes for the user."""
    if base is None:
        described = {"name": model.architecture, "config": to_json(shape(model, size)), "size": size}
        mean, std = colour_statistics(images)
        write_json(assets / ENCODER, {**described, "mean": mean, "std": std})
        return []
    encoder = base_encoder(base, config.base)
    described = {"name": encoder.name, "config": to_json(encoder.config), "size": size}
    write_json(assets / ENCODER, {**described, "mean": encoder.mean.tolist(), "std": encoder.std.tolist()})
    save_file({name: value.contiguous() for name, value in encoder.state_dict().items()}, assets / WEIGHTS)
    count = sum(value.numel() for value in encoder.parameters())
    return [f"base: {config.base}, {encoder.name}, {count / 1e6:.1f} M parameters"]


def read_encoder(config: Any, assets: Path) -> VisionEncoder:
    """Return the encoder that `write_encoder` described, with the weights of its base; `tune` says what is trained."""
    described = read_json(assets / ENCODER)
    kind, create = ENCODERS[described["name"]]
    encoder = create(from_json(kind, described["config"]), described["size"])
    encoder.mean.copy_(torch.tensor(described["mean"]))
    encoder.std.copy_(torch.tensor(described["std"]))
    if config.base:
        if not next(encoder.parameters()).is_meta:
            encoder.load_state_dict(load_file(assets / WEIGHTS))
        tune(encoder, config.tune, config.rank)
    return encoder


def tune(encoder: nn.Module, what: str, rank: int) -> None:
    """Freeze an encoder (head), or all of it but low-rank adapters (lora)."""
    if what == "lora":
        add_lora(encoder, rank)
    elif what == "head":
        encoder.requires_grad_(False)


def colour_statistics(images: DecodedPictures) -> tuple[list[float], list[float]]:
    """Return mean and standard deviation of red, green and blue, as fractions of the largest value."""
    rows = np.unique(np.linspace(0, len(images) - 1, min(SAMPLED, len(images))).astype(int))
    sums, squares, count = np.zeros(3), np.zeros(3), 0
    for row in rows:
        pixels = images[int(row)].flatten(1).double() / 255  # (3, H W)
        sums, squares = sums + pixels.sum(1).numpy(), squares + pixels.square().sum(1).numpy()
        count += pixels.shape[1]
    mean = sums / count
    std = np.sqrt(np.maximum(squares / count - mean**2, 1e-4))
    return [round(float(value), 4) for value in mean], [round(float(value), 4) for value in std]
