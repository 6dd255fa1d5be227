"""Feature extractor of a run: a small network trained once on its images, whose features compare sets of images.

With labels it learns to classify the images, without them to tell by which multiple of 90 degrees an image is rotated
(https://arxiv.org/abs/1803.07728). Shapes: N images, C channels, H x W pixels, D features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from saccade.core.callback import Progress, ignore_progress
from saccade.models.vision.gan import normalized
from saccade.models.vision.small_cnn import SmallCNN

FILE = "extractor.safetensors"
STEPS, BATCH, LR = 400, 128, 3e-3
SEED = 1  # the extractor is the same for all runs on the same images
BLOCK = 512  # images of a batch at inference
MEASURED = 4096  # images whose features have mean 0 and variance 1
ROTATIONS = 4

Read = Callable[[Sequence[int]], Tensor]
"""returns some of the training images: uint8 (B, C, H, W)"""


def train_extractor(
    read: Read, count: int, labels: NDArray[np.int64] | None, file: Path, progress: Progress = ignore_progress
) -> str:
    """Train the extractor on `count` images and write it to a file; returns a note for the user."""
    draw = np.random.default_rng(SEED)
    channels = read([0]).shape[1]
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(SEED)
        network = SmallCNN(channels, ROTATIONS if labels is None else int(labels.max()) + 1)
    optimizer = torch.optim.AdamW(network.parameters(), LR)
    losses = []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = LR * (1 - step / STEPS)
        rows = draw.integers(count, size=min(BATCH, count))
        images, targets = _examples(normalized(read(rows.tolist())), None if labels is None else labels[rows], draw)
        loss = network(images, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(float(loss.detach()))
        progress((step + 1) / STEPS)
    with torch.no_grad():
        rows = np.unique(np.linspace(0, count - 1, min(MEASURED, count)).astype(int))
        blocks = np.array_split(rows, -(-len(rows) // BLOCK))
        vectors = torch.cat([network.pool(normalized(read(block.tolist()))) for block in blocks])
        network.mean.copy_(vectors.mean(0))
        network.deviation.copy_(vectors.std(0, correction=0).clamp_min(1e-6))
    save_file({name: value.contiguous() for name, value in network.state_dict().items()}, file)
    learned = "rotation" if labels is None else "label"
    final = sum(losses[-20:]) / len(losses[-20:])
    return f"feature extractor of the score: trained to tell the {learned} of an image, cross-entropy {final:.2f}"


def _examples(images: Tensor, labels: NDArray[np.int64] | None, draw: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Return images with what is to be predicted: their labels, or the rotation of each."""
    if labels is not None:
        return images, torch.from_numpy(labels)
    quarters = torch.from_numpy(draw.integers(ROTATIONS, size=len(images)))
    turned = torch.stack([image.rot90(int(number), (1, 2)) for image, number in zip(images, quarters, strict=True)])
    return turned, quarters


def read_extractor(file: Path) -> SmallCNN:
    """Return the extractor of a file."""
    tensors = load_file(file)
    channels = tensors["convolutions.0.weight"].shape[1]
    network = SmallCNN(channels, len(tensors["head.weight"]))
    network.load_state_dict(tensors)
    return network.eval().requires_grad_(False)


@torch.no_grad()
def features(network: SmallCNN, images: Tensor) -> NDArray[np.float64]:
    """Return the features (N, D) of images (N, C, H, W) with values from -1 to 1."""
    parts = [network.features(block).double().numpy() for block in images.float().cpu().split(BLOCK)]
    return np.concatenate(parts)
