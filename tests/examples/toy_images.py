"""A toy image classifier in one file: is the bright square in the left or the right half?

Train it like any task: `saccade train squares.npz --task tests.examples.toy_images`.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image as Pillow
from torch import Tensor, nn

from saccade import core
from saccade.core import Base, Evaluation, Prediction, Progress, Split, ignore_progress
from saccade.data.batching import BucketedBatches
from saccade.nn.ablation import patch_embeddings
from saccade.nn.probe import RecordedRow, watch
from saccade.nn.transformer import Transformer, TransformerConfig

LABELS = ("left", "right")
SIZE, PATCH = 12, 4
GRID = SIZE // PATCH


@dataclass(frozen=True)
class Config:
    """Settings of the classifier."""

    model: TransformerConfig = field(
        default_factory=lambda: TransformerConfig(dim=16, depth=1, heads=2, hidden=32, position="none")
    )
    batch_size: int = 16
    """images per step"""


@dataclass(frozen=True)
class Images:
    """Images (N, H, W) in memory."""

    pixels: Tensor
    labels: Tensor

    @property
    def lengths(self) -> np.ndarray:
        return np.ones(len(self.labels), dtype=np.int64)


@dataclass(frozen=True)
class ImageBatch:
    """Images (B, H, W) and their labels (B,)."""

    pixels: Tensor
    labels: Tensor
    numbers: tuple[int, ...]

    @property
    def count(self) -> int:
        return len(self.labels)

    @property
    def units(self) -> int:
        return len(self.labels)

    @property
    def rows(self) -> list[str]:
        return [f"image {number}" for number in self.numbers]

    def to(self, device: Any) -> ImageBatch:
        return ImageBatch(self.pixels.to(device), self.labels.to(device), self.numbers)


class Classifier(nn.Module):
    """Transformer over patches, with a classifier on its concatenated outputs."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.patches = nn.Linear(PATCH * PATCH, config.dim)
        self.encoder = Transformer(config)
        self.head = nn.Linear(GRID * GRID * config.dim, len(LABELS))

    def forward(self, pixels: Tensor, labels: Tensor | None = None, *, states: list[Tensor] | None = None) -> Tensor:
        """Return logits (B, 2) of images (B, H, W), or the mean loss if labels (B,) are given."""
        x = (pixels.to(self.head.weight.dtype) / 255).unfold(1, PATCH, PATCH).unfold(2, PATCH, PATCH)  # (B, G, G, P, P)
        x = patch_embeddings(self.patches(x.flatten(3).flatten(1, 2)))  # (B, G * G, D)
        logits: Tensor = self.head(self.encoder(x, states=states).flatten(1))
        return logits if labels is None else F.cross_entropy(logits, labels)


class Task(core.Task):
    """Left or right."""

    Config: ClassVar[type[Any]] = Config
    summary: ClassVar[str] = "learn in which half of an image the bright square is"
    unit: ClassVar[str] = "images"
    inputs = (core.Image("image", help="a grey image of 12 x 12 pixels"),)
    metric = core.Metric("accuracy", True, "%")

    def __init__(self, config: Config) -> None:
        self.config, self.model = config, Classifier(config.model)
        self.parts: dict[Split, Images] = {}

    @classmethod
    def train_defaults(cls, config: Any) -> list[str]:
        return ["train.optim.kind=adamw", "train.optim.lr=0.01"]

    @classmethod
    def prepare(
        cls,
        config: Any,
        data: Path,
        assets: Path,
        *,
        base: Base = None,
        progress: Progress = ignore_progress,
    ) -> list[str]:
        return [f"labels: {', '.join(LABELS)}"]

    @classmethod
    def open(cls, config: Any, assets: Path) -> Task:
        return cls(config)

    def load_data(self, data: Path, *, eval_only: bool = False, progress: Progress = ignore_progress) -> list[str]:
        with np.load(data) as arrays:
            pixels, labels = torch.from_numpy(arrays["pixels"]), torch.from_numpy(arrays["labels"])
        self.fingerprint = hashlib.sha256(data.read_bytes()).hexdigest()[:16]
        cut = 0 if eval_only else len(labels) * 3 // 4
        train, valid = Images(pixels[:cut], labels[:cut]), Images(pixels[cut:], labels[cut:])
        self.parts = {Split.TRAIN: train, Split.VALID: valid}
        return [f"images: {len(train.labels)} to train on, {len(valid.labels)} held out"]

    def source(self, split: Split, seed: int) -> core.Source:
        images = self.parts[split]

        def collate(rows: list[int]) -> ImageBatch:
            return ImageBatch(images.pixels[rows], images.labels[rows], tuple(rows))

        return BucketedBatches(images, collate, budget=self.config.batch_size, seed=seed)

    def networks(self) -> dict[str, nn.Module]:
        return {"model": self.model}

    def losses(self, batch: ImageBatch, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        yield "model", networks["model"](batch.pixels, batch.labels)

    @torch.no_grad()
    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        images = self.parts[split]
        logits = self.model(images.pixels.to(self.device())).cpu()
        accuracy = 100 * float((logits.argmax(-1) == images.labels).float().mean())
        loss = float(F.cross_entropy(logits, images.labels))
        return Evaluation({"accuracy": accuracy, "loss": loss, "images": len(images.labels)})

    @torch.no_grad()
    def predict(self, inputs: Sequence[Mapping[str, Any]], options: Any) -> Iterator[Prediction]:
        pixels = torch.stack([_pixels(one["image"]) for one in inputs]).to(self.device())
        maps: Mapping[str, Any] = {}
        if options.attention:
            with watch(self.model) as maps:
                logits = self.model(pixels)
        else:
            logits = self.model(pixels)
        for row, probabilities in enumerate(logits.softmax(-1).tolist()):
            ranked = dict(sorted(zip(LABELS, probabilities, strict=True), key=lambda pair: -pair[1]))
            axis = self._axis(pixels[row])
            attention = [core.AttentionMap(name, RecordedRow(one, row), axis, axis) for name, one in maps.items()]
            output = core.LabelOutput((next(iter(ranked)),), ranked)
            yield Prediction(inputs[row], output, ranked, core.AttentionMaps(attention), trace=pixels[row])

    def rerun(self, prediction: Prediction, *, layers: bool = False) -> core.ForwardTrace:
        states: list[Tensor] = []
        logits = self.model(prediction.trace[None], states=states)
        by_layer = [(f"encoder.{n}", self.model.head(x.flatten(1))) for n, x in enumerate(states[1:])] if layers else []
        chosen, position = (int(logits.argmax()),), core.StepAxis(core.Role.LABEL, ("label",))
        return core.ForwardTrace(
            logits, chosen, position, (self._axis(prediction.trace),), LABELS.__getitem__, tuple(by_layer)
        )

    def attention_snapshot(self) -> list[Prediction]:
        pixels = self.parts[Split.VALID].pixels[0]
        return list(self.predict([{"image": pixels[None]}], core.PredictOptions(attention=True)))

    @staticmethod
    def _axis(pixels: Tensor) -> core.GridAxis:
        return core.GridAxis(core.Role.IMAGE, GRID, GRID, pixels[None].cpu())


def _pixels(image: bytes | Tensor) -> Tensor:
    """Return the grey pixels (H, W) of an input."""
    if isinstance(image, Tensor):
        return image[0]
    with Pillow.open(io.BytesIO(image)) as opened:
        grey = opened.convert("L")
        return torch.frombuffer(bytearray(grey.tobytes()), dtype=torch.uint8).reshape(grey.height, grey.width)


# Used by the task battery
SETTINGS: list[str] = []


def write_data(folder: Path) -> Path:
    """Write images of noise with a bright square."""
    generator = np.random.default_rng(5)
    pixels = generator.integers(0, 80, (240, SIZE, SIZE), dtype=np.uint8)
    labels = generator.integers(0, 2, 240)
    for image, label in zip(pixels, labels, strict=True):
        row, column = generator.integers(0, SIZE - 3), generator.integers(0, 3) + label * SIZE // 2
        image[row : row + 3, column : column + 3] = 255
    path = folder / "squares.npz"
    np.savez(path, pixels=pixels, labels=labels.astype(np.int64))
    return path


def example_inputs() -> dict[str, Any]:
    """Return the inputs of one example."""
    pixels = np.zeros((SIZE, SIZE), dtype=np.uint8)
    pixels[2:5, 7:10] = 255
    return {"image": pixels}
