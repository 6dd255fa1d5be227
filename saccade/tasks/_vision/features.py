"""Features of a frozen encoder: computed once for each picture, on all cores, and kept in the cache.

Training then costs no more than the layers that are trained. Shapes: P pictures, B rows, N positions, D width.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from saccade.core import Progress, ignore_progress
from saccade.data.cache import EntryWriter, Record, cached
from saccade.data.images.augment import centre
from saccade.data.images.decoded import DecodedPictures
from saccade.models.vision.encoder import VisionEncoder
from saccade.tasks._parallel import parallel_map
from saccade.tasks._vision.image_format import ImageFormat, to_array, to_tensor

BLOCK = 16  # pictures encoded at once

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class GridFeatures:
    """Vectors of a frozen encoder for each picture, and for its mirror image where training needs it."""

    vectors: NDArray[np.float16]  # (P, N, D)
    mirrored: NDArray[np.float16] | None = None  # (P, N, D)

    def batch(self, pictures: Rows, seed: int | None = None) -> Tensor:
        """Return the vectors (B, N, D) of some pictures, in half precision; with a seed, half of them mirrored."""
        vectors = self.vectors[pictures]
        if seed is not None and self.mirrored is not None:
            chosen = np.random.default_rng(seed).random(len(pictures)) < 0.5
            vectors[chosen] = self.mirrored[pictures[chosen]]
        return torch.from_numpy(vectors)

    def mean(self, pictures: Rows) -> Tensor:
        """Return the mean vector of each position over some pictures: (N, D)."""
        return torch.from_numpy(self.vectors[pictures].mean(0, dtype=np.float32))


def grid_features(
    encoder: VisionEncoder,
    images: DecodedPictures,
    format: ImageFormat,
    *,
    mirror: bool = False,
    progress: Progress = ignore_progress,
) -> GridFeatures:
    """Return what a frozen encoder computes for all pictures, from the cache if it is there; `mirror`: mirrored too."""
    if not mirror:
        return GridFeatures(_encode(encoder, images, format, mirror=False, progress=progress))
    vectors = _encode(encoder, images, format, mirror=False, progress=lambda fraction: progress(fraction / 2))
    mirrored = _encode(encoder, images, format, mirror=True, progress=lambda fraction: progress((1 + fraction) / 2))
    return GridFeatures(vectors, mirrored)


def _encode(
    encoder: VisionEncoder, images: DecodedPictures, format: ImageFormat, *, mirror: bool, progress: Progress
) -> NDArray[np.float16]:
    """Return the vectors (P, N, D) of all pictures, mirrored or not."""
    device = next(encoder.parameters()).device

    @torch.no_grad()
    def compute(first: int) -> NDArray[np.float16]:
        numbers = np.arange(first, min(first + BLOCK, len(images)))
        pixels = to_tensor(centre(to_array(images.batch(numbers)), format.size))
        vectors: Tensor = encoder((pixels.flip(3) if mirror else pixels).to(device))
        half: NDArray[np.float16] = vectors.to(torch.float16).cpu().numpy()
        return half

    def build(writer: EntryWriter) -> Record:
        array, starts = writer.array("vectors", "float16"), range(0, len(images), BLOCK)
        shape: tuple[int, ...] = ()
        for number, vectors in enumerate(
            parallel_map(compute, starts) if device.type == "cpu" else map(compute, starts)
        ):
            array.write(vectors)
            shape = vectors.shape[1:]
            progress((number + 1) / len(starts))
        return {"shape": list(shape)}

    training = encoder.training
    encoder.eval()  # a new network is in training mode until the loop has it
    try:
        parts = [images.fingerprint(), asdict(format), hash_weights(encoder), mirror]
        entry = cached("features", parts, build)
    finally:
        encoder.train(training)
    return entry.arrays["vectors"].reshape(len(images), *entry.record["shape"])


def hash_weights(network: nn.Module) -> str:
    """Return a hash of all weights and buffers of a network, with their names."""
    digest = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(_bytes(value))
    return digest.hexdigest()


def _bytes(value: Tensor) -> Any:
    return value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
