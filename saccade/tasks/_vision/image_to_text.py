"""Image-to-text task: base class of captioning and reading: their data, batches and axes.

Shapes: B rows, N positions of the image, T tokens, D width.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from saccade.core import Axis, Batch, Field, Image, Progress, Split, ignore_progress
from saccade.data.formats.image_rows import ImageRows
from saccade.data.images.decoded import decode_pictures
from saccade.data.token_rows import TokenRows
from saccade.data.tokenization import tokenize
from saccade.models.seq2seq.to_text import ToText
from saccade.tasks._seq2seq.to_text import SourceBatch, ToTextTask
from saccade.tasks._seq2seq.tokenizers import TargetTokenizer
from saccade.tasks._vision.frozen import FrozenExamples
from saccade.tasks._vision.task import ImageTask


@dataclass(frozen=True)
class ImageTextBatch:
    """Images with their texts, padded; `labels` are the inputs shifted by one, -1 where there is nothing to predict."""

    pixels: Tensor  # uint8 (B, 3, H, W), or vectors (B, N, D) of a frozen encoder
    keep: Tensor  # (B, N)
    inputs: Tensor  # (B, T)
    labels: Tensor  # (B, T)
    pictures: tuple[int, ...]
    """number of the picture of each row"""
    rows: tuple[str, ...]
    count: int

    @property
    def source(self) -> Tensor:
        return self.pixels

    @property
    def units(self) -> int:
        return len(self.pixels)

    def to(self, device: Any) -> ImageTextBatch:
        tensors = {name: getattr(self, name).to(device) for name in ("pixels", "keep", "inputs", "labels")}
        return replace(self, **tensors)


@dataclass(frozen=True, eq=False)
class TextExamples(FrozenExamples):
    """The rows of one split with their decoded images and the tokens of their texts."""

    tokens: TokenRows = field(kw_only=True)

    @property
    def lengths(self) -> NDArray[np.int64]:
        return self.tokens.lengths + 1

    def numbers(self, indices: Sequence[int]) -> NDArray[np.int64]:
        """Return the numbers of the pictures of some rows."""
        return self.rows.picture[np.asarray(indices, dtype=np.int64)]


class ImageToTextTask(ToTextTask, ImageTask):
    """A task whose network writes a text about an image."""

    inputs: tuple[Field, ...] = (Image("image"),)

    splits: dict[Split, TextExamples]  # type: ignore[assignment]

    def __init__(self, config: Any, format: Any, target: TargetTokenizer, max_length: int, model: ToText) -> None:
        """`max_length`: maximum number of generated tokens."""
        super().__init__(config, format)
        self.target, self.max_length, self.model = target, max_length, model

    def load_data(self, data: Path, *, eval_only: bool = False, progress: Progress = ignore_progress) -> list[str]:
        super().load_data(data, eval_only=eval_only, progress=progress)
        names = {Split.TRAIN: "training", Split.VALID: "evaluation" if eval_only else "validation"}
        notes = []
        for split, examples in self.splits.items():
            pictures = len(np.unique(examples.rows.picture))
            notes.append(f"{self.roles[0]}s for {names[split]}: {len(examples):,}, of {pictures:,} images")
        return [*notes, *(note for split in self.splits for note in self.unknown_note(split, names[split]))]

    def examples(self, rows: ImageRows, progress: Progress = ignore_progress) -> TextExamples:
        images = decode_pictures(rows.pictures, self.format.resize, progress)
        return TextExamples(rows, images, tokens=tokenize(rows.texts[self.roles[0]], self.target.tokenizer))

    @abc.abstractmethod
    def stored(self, examples: TextExamples, indices: Sequence[int]) -> SourceBatch:
        """Return stored images: uint8 pixels (B, 3, H, W), or vectors (B, N, D) of a frozen encoder."""

    def collate(self, examples: Any, indices: list[int]) -> ImageTextBatch:
        inputs, labels = self.target_tensors(examples, indices)
        pixels, keep = self.stored(examples, indices)
        numbers = tuple(examples.numbers(indices).tolist())
        origins = tuple(examples.rows.origins.describe(row) for row in indices)
        return ImageTextBatch(pixels, keep, inputs, labels, numbers, origins, int((labels >= 0).sum()))

    def augmented(self, batch: Any, seed: int) -> Batch:
        return ImageTask.augmented(self, batch, seed)

    def read_input(self, value: bytes | Tensor, options: Any) -> Tensor:
        """Return an input as pixels (3, H, W)."""
        pixels: Tensor = self.format.read(value)
        return pixels

    def source_axis(self, source: Tensor, positions: int) -> Axis:
        return self.image_axis(source, positions)

    def source_positions(self, source: Tensor) -> int:
        height, width = source.shape[1:]
        rows, columns = self.encoder.grid(height, width)
        return len(self.encoder.extra) + rows * columns
