"""Image tasks whose encoder may be frozen: each image is then encoded once, and its vectors are kept in the cache.

Shapes: I images, N positions of the encoder, D its width.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.core import Base, Batch, Progress, Split
from saccade.core.callback import ignore_progress
from saccade.data.images.pictures import Pictures
from saccade.models.vision.encoder import VisionEncoder
from saccade.tasks._vision.features import GridFeatures, grid_features
from saccade.tasks._vision.image_format import ImageFormat
from saccade.tasks._vision.task import ImageConfig, ImageExamples, ImageTask


@dataclass(frozen=True)
class FrozenConfig(ImageConfig):
    """Settings of a task that freezes a pretrained image encoder by default."""

    tune: Literal["all", "lora", "head"] = "head"
    """trained weights of a pretrained encoder: all, low-rank adapters (LoRA), or none of them (frozen)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        changes = {name: value for name, value in vars(self.augment).items() if name not in ("flip", "magnitude")}
        name = next((name for name, value in changes.items() if value), None)
        if self.base and self.tune == "head" and name is not None:
            rule = f"augment.{name} must be 0 for a frozen encoder, which sees each image once"
            raise ValueError(f"{rule}, but is {changes[name]}; choose tune=all or tune=lora")


@dataclass(frozen=True, eq=False)
class FrozenExamples(ImageExamples):
    """The rows of one split with their decoded images, and what a frozen encoder computes for them."""

    features: GridFeatures | None = None

    def stored(self, pictures: NDArray[np.int64]) -> Tensor:
        """Return pictures as they are stored: pixels (I, 3, H, W), or vectors (I, N, D) of a frozen encoder."""
        return self.images.batch(pictures) if self.features is None else self.features.batch(pictures)


class FrozenImageTask(ImageTask):
    """A task whose batches have the numbers of their pictures, and `pixels` as `FrozenExamples` stores them."""

    @classmethod
    def train_defaults(cls, config: Any) -> list[str]:
        """Return a small learning rate for a pretrained encoder that is trained on."""
        if not config.base or config.tune == "head":
            return ["train.precision=fastest"]
        lr = {"all": "2e-4", "lora": "1e-3"}[config.tune]
        return ["train.precision=fastest", "train.optim.kind=adamw", f"train.optim.lr={lr}", "train.optim.clip=1"]

    @classmethod
    def choose_format(cls, config: Any, pictures: Pictures, base: Base) -> ImageFormat:
        """Return how images are read: without a margin, since a text may be about what is at the border."""
        format = super().choose_format(config, pictures, base)
        return replace(format, stored=format.size)

    @property
    @abc.abstractmethod
    def backbone(self) -> VisionEncoder:
        """The encoder that reads pixels."""

    @property
    def frozen(self) -> bool:
        """Whether this encoder is not trained."""
        return bool(self.config.base) and self.config.tune == "head"

    def load_data(self, data: Path, *, eval_only: bool = False, progress: Progress = ignore_progress) -> list[str]:
        notes = super().load_data(data, eval_only=eval_only, progress=progress)
        if self.frozen:
            for split, examples in self.splits.items():
                assert isinstance(examples, FrozenExamples)
                mirror = self.config.augment.flip and split == Split.TRAIN
                features = grid_features(self.backbone, examples.images, self.format, mirror=mirror, progress=progress)
                self.splits[split] = replace(examples, features=features)
        return notes

    def augmented(self, batch: Any, seed: int) -> Batch:
        examples = self.splits[Split.TRAIN]
        assert isinstance(examples, FrozenExamples)
        if examples.features is None:
            return super().augmented(batch, seed)
        changed: Batch = replace(batch, pixels=examples.features.batch(np.array(batch.pictures), seed))
        return changed

    def centred(self, pixels: Tensor) -> Tensor:
        return super().centred(pixels) if pixels.dtype == torch.uint8 else pixels
