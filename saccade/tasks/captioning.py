"""Captioning: a sentence about an image; scored in CIDEr beside a control that does not see the image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from saccade import __version__
from saccade.atomic_io import read_json, write_json
from saccade.core import Base, Batch, Evaluation, Metric, Progress, Split, ignore_progress
from saccade.data.images.augment import Augment
from saccade.data.images.decoded import decode_pictures
from saccade.data.lengths import load_max_target_length
from saccade.data.text.tokenizer_choice import choose_kind, describe_kind, train_text_tokenizer, vocabulary_size
from saccade.data.text.tokenizers import Tokenizer
from saccade.decode.search import Search
from saccade.metrics.captions import score_captions
from saccade.metrics.generation import Score
from saccade.models.seq2seq.to_text import DecoderConfig, TextDecoderConfig, build_to_text
from saccade.models.vision.architectures import VisionConfig
from saccade.models.vision.encoder import VisionEncoder
from saccade.models.vision.resnet import ResNetConfig
from saccade.tasks._seq2seq.settings import TranslationOptions
from saccade.tasks._seq2seq.to_text import TOKENIZER, SourceBatch
from saccade.tasks._seq2seq.tokenizers import TargetTokenizer
from saccade.tasks._vision.encoders import read_encoder, write_encoder
from saccade.tasks._vision.frozen import FrozenConfig, FrozenImageTask
from saccade.tasks._vision.image_format import ImageFormat
from saccade.tasks._vision.image_to_text import ImageToTextTask, TextExamples
from saccade.tasks._vision.texts import may_mirror

IMAGES = "images.json"
QUICK_IMAGES = 500  # of a quick evaluation
BLIND_IMAGES = 128  # training images whose mean replaces every image in the control
SAMPLE = 20_000  # captions that decide how to tokenize

METRICS = {
    metric.name: metric
    for metric in (
        Metric("cider", True, "CIDEr-D"),
        Metric("cider_blind", None, "CIDEr-D"),
        Metric("bleu4", True, "BLEU"),
        Metric("rougeL", True, "ROUGE"),
        Metric("exact", True, "%"),
        Metric("loss", False, "nats per token"),
        Metric("images", None, "images"),
    )
}
"""every value that `evaluate` returns"""


@dataclass(frozen=True)
class CaptionModel(DecoderConfig):
    """Encoder and decoder, and their shapes."""

    encoder: VisionConfig = field(
        default_factory=lambda: VisionConfig(architecture="cnn", cnn=ResNetConfig(widths=(48, 128), attention_stage=2))
    )
    """image encoder that is trained from scratch"""
    transformer: TextDecoderConfig = field(
        default_factory=lambda: TextDecoderConfig(dropout=0.3, embedding_dropout=0.3)
    )


@dataclass(frozen=True)
class CaptionSearch(Search):
    """Settings of the beam search for a caption."""

    beam: int = 3
    """beam size; 1 is greedy search"""


@dataclass(frozen=True)
class CaptionConfig(FrozenConfig):
    """All settings of a captioning model except those of the training loop."""

    model: CaptionModel = field(default_factory=CaptionModel)
    augment: Augment = field(default_factory=Augment)
    """random changes of the training images; where captions say left and right they are not mirrored"""
    tokenizer: Literal["auto", "words", "bpe"] = "auto"
    """auto: words where captions have few different ones, else byte-level bpe"""
    vocabulary_size: int = 0
    """number of bpe tokens; 0: by the size of the data, about 5,000 for 4 MB"""
    lowercase: bool = True
    """write captions in lower case"""
    search: CaptionSearch = field(default_factory=CaptionSearch)
    batch_size: int = 64
    """captions per step, about: short ones are more"""
    label_smoothing: float = 0.1
    """label smoothing: probability mass that is distributed evenly over all tokens"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vocabulary_size < 0:
            raise ValueError(f"vocabulary_size must be at least 0, but is {self.vocabulary_size}")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must be at least 0 and below 1, but is {self.label_smoothing}")


@dataclass(frozen=True)
class CaptionOptions(CaptionSearch, TranslationOptions):
    """Options of a caption."""


class Task(FrozenImageTask, ImageToTextTask):
    """An image encoder and a decoder that attends to its grid at every word."""

    Config: ClassVar[type[Any]] = CaptionConfig
    Options: ClassVar[type[Any]] = CaptionOptions
    loss_unit: ClassVar[str] = "nats"
    summary: ClassVar[str] = "describe an image in a sentence"
    needs: ClassVar[str] = "images with captions"
    roles: ClassVar[tuple[str, ...]] = ("caption",)
    metric = METRICS["cider"]

    # Data

    @classmethod
    def train_defaults(cls, config: Any) -> list[str]:
        """Return averaged weights and smaller steps for a decoder on a frozen encoder, which soon overfits."""
        frozen = bool(config.base) and config.tune == "head"
        own = ["train.average=0.998", "train.optim.matrix_lr=0.02"] if frozen else []
        return [*super().train_defaults(config), *own]

    @classmethod
    def prepare(
        cls, config: Any, data: Path, assets: Path, *, base: Base = None, progress: Progress = ignore_progress
    ) -> list[str]:
        train, _, notes = cls.read(config.data, data, progress)
        captions = train.texts["caption"]
        format = cls.choose_format(config, train.pictures, base)
        mirror, mirror_notes = may_mirror(config.augment.flip, captions)
        write_json(assets / IMAGES, {"format": vars(format), "mirror": mirror})
        images = decode_pictures(train.pictures, format.resize, progress)
        notes += write_encoder(config, config.model.encoder, format.size, images, assets, base)
        kind = choose_kind(captions[:SAMPLE]) if config.tokenizer == "auto" else config.tokenizer
        kind = "bpe" if kind == "characters" else kind
        texts = (caption.lower() if config.lowercase else caption for caption in captions)
        size = config.vocabulary_size or vocabulary_size([captions])
        tokenizer = train_text_tokenizer(kind, texts, size, "vocabulary_size")
        cls.write_tokenizer(tokenizer.lowercased() if config.lowercase else tokenizer, train.texts["caption"], assets)
        vocabulary = f"vocabulary: {tokenizer.size:,} {describe_kind(kind)}"
        return [*notes, f"{vocabulary}; images of {format.size} x {format.size} pixels", *mirror_notes]

    @classmethod
    def open(cls, config: Any, assets: Path) -> Self:
        described = read_json(assets / IMAGES)
        config = replace(config, augment=replace(config.augment, flip=described["mirror"]))
        format, tokenizer = ImageFormat(**described["format"]), Tokenizer.load(assets / TOKENIZER)
        encoder = read_encoder(config, assets)
        rows, columns = encoder.grid(format.size, format.size)
        positions = len(encoder.extra) + rows * columns
        model = build_to_text(config.model, encoder, tokenizer.size, positions=positions)
        return cls(config, format, TargetTokenizer.of(tokenizer), load_max_target_length(assets), model)

    @property
    def backbone(self) -> VisionEncoder:
        return self.encoder

    def stored(self, examples: TextExamples, indices: Sequence[int]) -> SourceBatch:
        return examples.stored(examples.numbers(indices)), self._keep(len(indices))

    def unchanged(self, batch: Any, seed: int) -> Batch:
        centred: Batch = replace(batch, pixels=self.centred(batch.pixels))
        return centred

    def stack(self, sources: Sequence[Tensor]) -> SourceBatch:
        return torch.stack(list(sources)), self._keep(len(sources))

    def example_source(self, examples: TextExamples, index: int) -> Tensor:
        return self.centred(examples.pixels([index]))[0]

    def _keep(self, rows: int) -> Tensor:
        height, width = self.encoder.grid(self.format.size, self.format.size)
        return torch.ones(rows, len(self.encoder.extra) + height * width, dtype=torch.bool)

    # Evaluation

    @torch.no_grad()
    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        """Compare a caption of each image with all its captions; quick: greedy, on an even sample of the images."""
        examples = self.splits[split]
        by_picture: dict[int, list[int]] = {}
        for row, picture in enumerate(examples.rows.picture.tolist()):
            by_picture.setdefault(picture, []).append(row)
        step = max(1, -(-len(by_picture) // QUICK_IMAGES)) if quick else 1
        groups = list(by_picture.values())[::step]
        settings = replace(self.config.search, beam=1, n_best=1) if quick else self.config.search
        texts = examples.rows.texts["caption"]
        references = [[texts[row] for row in rows] for rows in groups]
        outputs = self.outputs(examples, [rows[0] for rows in groups], settings, progress)
        scores = score_captions(outputs, references)
        blind = self.blind_caption(settings)
        scores["cider_blind"] = score_captions([blind] * len(groups), references)["cider"]
        scores["exact"] = exact_captions(outputs, references)
        scores["rougeL"] = scores.pop("rouge_l")
        values = {name: scores[name].value for name in METRICS if name in scores}
        loss = self.mean_loss(examples, [row for rows in groups for row in rows])
        return Evaluation(
            {**values, "loss": loss, "images": len(groups)},
            {name: score.signature for name, score in scores.items()},
            notes=(f"without seeing an image the model writes '{blind}': cider_blind is the score of that caption",),
            complete=step == 1 and settings.beam == self.config.search.beam,
        )

    @torch.no_grad()
    def blind_caption(self, settings: Search) -> str:
        """Return the caption of no image: of the mean of the vectors of training images, or of those evaluated."""
        examples = self.splits.get(Split.TRAIN) or self.splits[Split.VALID]
        rows = np.unique(np.linspace(0, len(examples) - 1, BLIND_IMAGES).astype(int)).tolist()
        if examples.features is not None:
            mean = examples.features.mean(examples.numbers(rows))
        else:
            parts = [self.example_source(examples, row)[None].to(self.device()) for row in rows]
            mean = torch.cat([self.encoder(pixels) for pixels in parts]).float().mean(0)
        load = lambda group: (mean[None], self._keep(1))  # noqa: E731
        ((best, *_),) = self.search([1], load, settings)
        return self.target.decode(best.ids)


def exact_captions(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    """Exact match: fraction of captions equal to a reference of their image but for case and spaces, 0 to 100."""
    pairs = zip(outputs, references, strict=True)
    equal = sum(_normalize(output) in {_normalize(text) for text in texts} for output, texts in pairs)
    return Score(100 * equal / len(outputs), f"exact|case:lower|strip:yes|version:saccade-{__version__}")


def _normalize(text: str) -> str:
    return " ".join(text.lower().split())
