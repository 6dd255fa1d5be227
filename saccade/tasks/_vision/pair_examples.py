"""Options, examples and batches of images with texts.

Shapes: B pairs, N positions of the image encoder, C classes, D width of the common space.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from saccade.errors import UsageError
from saccade.models.text.bert import EncoderInputs
from saccade.tasks._encoder.inputs import EncodedText, EncoderBatch
from saccade.tasks._vision.frozen import FrozenExamples
from saccade.tasks._vision.pairs import Pairs
from saccade.tasks._vision.text_means import Means
from saccade.tasks._vision.texts import EncodedColumn


@dataclass(frozen=True)
class ImageTextOptions:
    """Options of a prediction."""

    attention: bool = False
    """keep the attention of every layer and head"""
    classes: str = ""
    """names of classes, separated by commas: classify the image without any training for it (zero-shot)"""
    template: str = "a photo of a {}"
    """text for a class, whose name replaces {}; several, separated by |, are averaged"""

    def __post_init__(self) -> None:
        if self.classes and len(set(self.class_names)) < 2:
            raise ValueError(f"classes must be at least two different names, but is '{self.classes}'; as in cat,dog")
        wrong = next((template for template in self.templates if "{}" not in template), None)
        if wrong is not None:
            raise ValueError(f"template must have {{}} for the name of a class, but is '{wrong}'")

    @property
    def class_names(self) -> list[str]:
        """The names of the classes, each once."""
        return list(dict.fromkeys(name.strip() for name in self.classes.split(",") if name.strip()))

    @property
    def templates(self) -> list[str]:
        return self.template.split("|")

    @property
    def prompts(self) -> list[str]:
        """The texts of all classes, those of a class one after another."""
        return [template.replace("{}", name) for name in self.class_names for template in self.templates]

    def check(self, example: Mapping[str, Any]) -> None:
        """Refuse an example without an image or a text, and classes without an image or with a text."""
        image, text = example.get("image") is not None, bool(example.get("text"))
        if not image and not text:
            raise UsageError("image or text must be given, but neither is; this model takes image, text")
        if self.classes and (text or not image):
            actual = "a text was given too; leave it out" if image else "only a text was given; give an image"
            raise UsageError(f"image must be given alone to choose from classes, but {actual}")


@dataclass(frozen=True)
class PairBatch(EncoderBatch):
    """Images with a text each."""

    pixels: Tensor  # (B, 3, H, W), or vectors (B, N, its width) of a frozen encoder
    pictures: tuple[int, ...]
    """number of the picture of each row"""
    inputs: EncoderInputs
    """ids and padding mask of the texts; of a frozen encoder, the means (B, its width) of their tokens as ids"""
    matches: Tensor  # (B, B), True where a text belongs to an image


@dataclass(frozen=True, eq=False)
class PairExamples(FrozenExamples):
    """The rows of one split, with the numbers of their images and captions."""

    pairs: Pairs = field(kw_only=True)
    texts: EncodedColumn = field(kw_only=True)
    means: Means | None = None
    """means of the tokens of the captions by a frozen text encoder"""

    def inputs(self, rows: Sequence[int]) -> EncoderInputs:
        """Return the captions of some rows as the text encoder reads them."""
        return self.texts.pad(rows) if self.means is None else EncoderInputs(torch.from_numpy(self.means[rows]).float())


@dataclass(frozen=True)
class PairTrace:
    """What is needed to recompute a prediction: an image with a text, or with the vectors of classes."""

    pixels: Tensor | None = None
    text: EncodedText | None = None
    classes: Tensor | None = None  # (C, D)
    names: tuple[str, ...] = ()
