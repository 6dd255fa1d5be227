"""Image task: base class of all tasks that read images: their data, batches, encoder and attention over the image.

Shapes: B rows, H x W pixels.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from saccade.core import AttentionMap, Axis, Base, Batch, GridAxis, Progress, Role, Source, Split, Task
from saccade.core.callback import ignore_progress
from saccade.data.batching import BucketedBatches
from saccade.data.fingerprints import hash_lines
from saccade.data.formats.image_rows import ImageRows, ImageSettings, pair_image_rows, read_image_rows, split_image_rows
from saccade.data.images.augment import Augment, augment, centre
from saccade.data.images.decoded import DecodedPictures, decode_pictures
from saccade.data.images.pictures import Pictures
from saccade.data.parts import take_evaluated
from saccade.errors import UsageError
from saccade.models.vision.encoder import VisionEncoder
from saccade.nn.probe import RecordedRow, Recorder
from saccade.tasks._vision.image_format import MARGIN, ImageFormat, default_size, median_side, to_array, to_tensor
from saccade.tasks._vision.processors import base_processor, format_of

QUICK_ROWS = 2000  # of a quick evaluation


@dataclass(frozen=True)
class ImageConfig:
    """Settings that all image tasks have."""

    base: str = ""
    """pretrained model: a run, a folder, a name of `saccade models list` or owner/name; empty: from scratch"""
    tune: Literal["all", "lora", "head"] = "all"
    """trained weights of a pretrained encoder: all, low-rank adapters (LoRA), or none of them (frozen)"""
    rank: int = 8
    """rank of the adapters of tune=lora"""
    data: ImageSettings = field(default_factory=ImageSettings)
    augment: Augment = field(default_factory=Augment)
    """random changes of the training images"""
    size: int = 0
    """height and width of the images in pixels; 0: as a pretrained encoder needs them, else that of the images, at
    most 64"""
    batch_size: int = 128
    """images per step"""
    micro_batches: int = 1
    """micro-batches per step, to save memory (gradient accumulation); the result is the same, but for batch norms, each
    of which sees one micro-batch"""

    def __post_init__(self) -> None:
        for name, least in (("rank", 1), ("size", 0), ("batch_size", 1), ("micro_batches", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, but is {getattr(self, name)}")
        if self.tune != type(self).tune and not self.base:
            raise ValueError(f"tune must be {type(self).tune} without a base, but is {self.tune}")


@dataclass(frozen=True, eq=False)
class ImageExamples:
    """The rows of one split with their decoded images."""

    rows: ImageRows
    images: DecodedPictures

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.ones(len(self.rows), dtype=np.int64)

    def pixels(self, indices: Sequence[int]) -> Tensor:
        """Return the stored images (B, 3, stored, stored) of some rows."""
        return self.images.batch(self.rows.picture[np.asarray(indices, dtype=np.int64)])

    def fingerprint(self) -> str:
        """Return a hash of the rows and the content of their images."""
        return hash_lines([self.rows.fingerprint(), self.images.fingerprint()])


class ImageTask(Task):
    """A task on images; its network `model` is built by the subclass."""

    roles: ClassVar[tuple[str, ...]]
    """what a row has besides its image: label, caption, question and answer, text"""
    unit: ClassVar[str] = "images"

    config: Any
    model: Any
    format: ImageFormat

    def __init__(self, config: Any, format: ImageFormat) -> None:
        self.config, self.format = config, format
        self.splits: dict[Split, ImageExamples] = {}

    def networks(self) -> dict[str, nn.Module]:
        return {"model": self.model}

    # Data

    @classmethod
    def read_rows(cls, data: Path, settings: ImageSettings, progress: Progress = ignore_progress) -> ImageRows:
        """Return all rows of a file or folder."""
        return read_image_rows(data, cls.roles, settings, progress)

    @classmethod
    def read(
        cls, settings: ImageSettings, data: Path, progress: Progress = ignore_progress
    ) -> tuple[ImageRows, ImageRows, list[str]]:
        """Return the rows for training and for validation, and notes for the user."""
        rows = cls.read_rows(data, settings, progress)
        if settings.valid:
            valid = cls.read_rows(Path(settings.valid), settings, progress)
            train = pair_image_rows(rows, valid)
            return train, valid, train.notes()
        train, valid = split_image_rows(rows, settings)
        return train, valid, train.notes()

    @classmethod
    def choose_format(cls, config: Any, pictures: Pictures, base: Base) -> ImageFormat:
        """Return how images are read: as a pretrained model needs them, or by the settings and the images."""
        processor = base_processor(base, config.base)
        if processor is not None and not config.size:
            format = format_of(processor)
        else:
            side = median_side(pictures)
            size = config.size or default_size(side)
            stored = size if size > side * MARGIN else round(size / MARGIN)
            format = ImageFormat(size, stored, "bicubic" if processor is None else processor.interpolation)
        if config.augment.shift >= format.size:
            raise UsageError(
                f"augment.shift must be below the size of the images, {format.size}, but is {config.augment.shift}"
            )
        return format

    def load_data(self, data: Path, *, eval_only: bool = False, progress: Progress = ignore_progress) -> list[str]:
        settings = self.config.data
        self.data_notes = ()
        if eval_only:
            rows, self.data_notes = take_evaluated(self.read_rows(data, settings), "rows")
            self.splits = {Split.VALID: self.examples(rows, progress)}
            self.check_rows(rows)
            return [f"images: {len(rows):,}", *self.data_notes]
        train, valid, _ = self.read(settings, data)
        for rows in (train, valid):
            self.check_rows(rows)
        self.splits = {Split.TRAIN: self.examples(train, progress), Split.VALID: self.examples(valid, progress)}
        self.fingerprint = hash_lines(examples.fingerprint() for examples in self.splits.values())
        return [f"images: {len(train):,} for training, {len(valid):,} for validation"]

    def check_rows(self, rows: ImageRows) -> None:
        """Refuse rows that this model cannot be trained or evaluated on, such as unknown labels."""

    def examples(self, rows: ImageRows, progress: Progress = ignore_progress) -> ImageExamples:
        """Return rows with their decoded images."""
        return ImageExamples(rows, decode_pictures(rows.pictures, self.format.resize, progress))

    def source(self, split: Split, seed: int) -> Source:
        examples, config = self.splits[split], self.config
        return BucketedBatches(
            examples,
            lambda indices: self.collate(examples, indices),
            budget=config.batch_size,
            seed=seed,
            micro_batches=config.micro_batches,
            augment=self.augmented if split == Split.TRAIN else None,
        )

    @abc.abstractmethod
    def collate(self, examples: ImageExamples, indices: list[int]) -> Any:
        """Return a batch of some rows, with `pixels` as they are stored."""

    def augmented(self, batch: Any, seed: int) -> Batch:
        """Return a batch with its images changed at random."""
        images = augment(to_array(batch.pixels), self.format.size, self.config.augment, seed)
        changed: Batch = replace(batch, pixels=to_tensor(images))
        return changed

    def centred(self, pixels: Tensor) -> Tensor:
        """Return stored images as they are evaluated: their centre."""
        return to_tensor(centre(to_array(pixels), self.format.size))

    def quick_rows(self, split: Split, quick: bool) -> list[int]:
        """Return the numbers of the evaluated rows; quick: every n-th, about `QUICK_ROWS`."""
        count = len(self.splits[split])
        return list(range(0, count, max(1, -(-count // QUICK_ROWS)) if quick else 1))

    # Attention

    @property
    def encoder(self) -> VisionEncoder:
        """The image encoder of the network."""
        encoder: VisionEncoder = self.model.encoder
        return encoder

    def image_axis(self, pixels: Tensor, positions: int) -> Axis:
        """Return the axis of positions over an image (3, H, W): a grid after the extra positions of the encoder."""
        extra: tuple[str, ...] = self.encoder.extra
        height, width = pixels.shape[1:]
        rows, columns = self.encoder.grid(height, width)
        if len(extra) + rows * columns != positions:  # a layer inside a convolutional network has a finer grid
            extra, rows = (), round((positions * height / width) ** 0.5)
            columns = positions // rows
        return GridAxis(Role.IMAGE, rows, columns, pixels.cpu(), extra)

    def self_attention(
        self, recorder: Recorder | Mapping[str, Any], pixels: Tensor, row: int
    ) -> Iterator[AttentionMap]:
        """Yield the self-attention maps over one image of a batch."""
        for name, recorded in recorder.items():
            queries, keys = (self.image_axis(pixels, count) for count in recorded.shape[2:])
            yield AttentionMap(name, RecordedRow(recorded, row), queries, keys)
