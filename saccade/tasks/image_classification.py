"""Image classification: one label for an image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import torch
from torch import Tensor, nn

from saccade.atomic_io import read_json, write_json
from saccade.core import (
    AttentionMaps,
    Base,
    Batch,
    Evaluation,
    ForwardTrace,
    Image,
    LabelOutput,
    Metric,
    Prediction,
    PredictOptions,
    Pretrained,
    Progress,
    Role,
    Split,
    StepAxis,
)
from saccade.core.callback import ignore_progress
from saccade.data.formats.image_rows import ImageRows
from saccade.data.formats.labelled import sort_labels
from saccade.data.images.augment import Augment, mix
from saccade.data.images.decoded import decode_pictures
from saccade.errors import DataError
from saccade.metrics import classification
from saccade.metrics.calibration import calibration_error
from saccade.models import presets
from saccade.models.vision.architectures import VisionConfig
from saccade.models.vision.classifier import ImageClassifier
from saccade.nn.packed import pack, packing_pays
from saccade.nn.probe import watch
from saccade.pretrained.families import FAMILIES
from saccade.pretrained.families.image_heads import ImageHead
from saccade.tasks._encoder.inputs import check_outputs
from saccade.tasks._labels import confusion_table
from saccade.tasks._parallel import parallel_map
from saccade.tasks._pretrained import cannot_run
from saccade.tasks._vision.encoders import read_encoder, write_encoder
from saccade.tasks._vision.image_format import ImageFormat, to_array, to_tensor
from saccade.tasks._vision.processors import format_of, processor_of
from saccade.tasks._vision.task import ImageConfig, ImageExamples, ImageTask

LABELS = "labels.json"
BATCH = 16  # images of a batch at inference, which one core computes, at most
BLOCK = 512  # images that are in memory at once
POSITIONS = 1024  # of a batch, so that it stays in the cache; weights are packed for so many rows
LISTED = 20  # labels named in a message


@dataclass(frozen=True)
class ClassificationConfig(ImageConfig):
    """All settings of an image classifier except those of the training loop."""

    model: VisionConfig = field(default_factory=VisionConfig)
    augment: Augment = field(default_factory=lambda: Augment(shift=2))
    """random changes of the training images"""
    batch_size: int = 256
    """images per step"""
    label_smoothing: float = 0.1
    """label smoothing: probability mass that is distributed evenly over all labels"""
    mirror: bool = True
    """predict the mean of an image and its mirror image, where training images are mirrored too (augment.flip)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must be at least 0 and below 1, but is {self.label_smoothing}")


@dataclass(frozen=True)
class ImageBatch:
    """Images (B, 3, H, W) with their labels: numbers (B,), or probabilities (B, L) of mixed images."""

    pixels: Tensor
    targets: Tensor
    rows: list[str]

    @property
    def count(self) -> int:
        return len(self.pixels)

    @property
    def units(self) -> int:
        return len(self.pixels)

    def to(self, device: Any) -> ImageBatch:
        return replace(self, pixels=self.pixels.to(device), targets=self.targets.to(device))


class Task(ImageTask):
    """An image encoder with one output for each label."""

    Config: ClassVar[type[Any]] = ClassificationConfig
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        name: {"model": {"architecture": "vit", "vit": shape}, "size": shape["image_size"]}
        for name, shape in presets.VIT.items()
    }
    loss_unit: ClassVar[str] = "nats"
    summary: ClassVar[str] = "assign a label to an image"
    needs: ClassVar[str] = "images with labels"
    roles: ClassVar[tuple[str, ...]] = ("label",)
    inputs = (Image("image"),)
    metric = Metric("accuracy", True, "%")

    def __init__(self, config: Any, format: ImageFormat, labels: Sequence[str], model: ImageClassifier) -> None:
        super().__init__(config, format)
        self.labels, self.model = tuple(labels), model
        self.label_ids = {label: number for number, label in enumerate(labels)}
        self.family: Any = None
        """of the pretrained network that the task was opened or trained from"""

    # Data

    @classmethod
    def train_defaults(cls, config: Any) -> list[str]:
        """Return Muon with little momentum, or a small learning rate and few epochs for a pretrained encoder."""
        if config.base:
            lr = {"all": "5e-5", "lora": "1e-3", "head": "1e-3"}[config.tune]
            tuning = {"kind": "adamw", "lr": lr, "new_head_lr": "1e-3", "schedule": "linear", "warmup": "50"}
            return ["train.epochs=3", "train.precision=fastest", *(f"train.optim.{k}={v}" for k, v in tuning.items())]
        if not config.model.architecture.startswith("cnn"):
            return ["train.precision=fastest"]
        scratch = {"matrix_lr": "0.06", "momentum": "0.6", "lr": "0.003", "warmup": "20", "cooldown": "0.8"}
        return ["train.precision=fastest", *(f"train.optim.{name}={value}" for name, value in scratch.items())]

    @classmethod
    def prepare(
        cls, config: Any, data: Path, assets: Path, *, base: Base = None, progress: Progress = ignore_progress
    ) -> list[str]:
        train, valid, notes = cls.read(config.data, data, progress)
        counts = Counter(train.texts["label"])
        labels = sort_labels({*counts, *valid.texts["label"]})
        if len(labels) < 2:
            raise DataError(f"{data}: every label is '{labels[0]}', expected at least two labels; add other images")
        format = cls.choose_format(config, train.pictures, base)
        family = "" if base is None or base.family is None else base.family.name
        write_json(assets / LABELS, {"labels": labels, "format": vars(format), "family": family})
        images = decode_pictures(train.pictures, format.resize, progress)
        notes += write_encoder(config, config.model, format.size, images, assets, base)
        return [*notes, f"labels: {len(labels)}; images are read as {format.size} x {format.size} pixels"]

    @classmethod
    def open(cls, config: Any, assets: Path) -> Self:
        described = read_json(assets / LABELS)
        model = ImageClassifier(read_encoder(config, assets), len(described["labels"]))
        task = cls(config, ImageFormat(**described["format"]), described["labels"], model)
        task.family = FAMILIES.get(described["family"])
        return task

    def check_rows(self, rows: ImageRows) -> None:
        labels = rows.texts["label"]
        unknown = next((row for row, label in enumerate(labels) if label not in self.label_ids), None)
        if unknown is not None:
            listed = f"{', '.join(self.labels[:LISTED])}{', ...' if len(self.labels) > LISTED else ''}"
            message = f"{rows.origins.describe(unknown)}: label '{labels[unknown]}'"
            raise DataError(f"{message}, expected one of the training images: {listed}; correct it, or train a new run")

    def collate(self, examples: ImageExamples, indices: list[int]) -> ImageBatch:
        labels = examples.rows.texts["label"]
        targets = torch.tensor([self.label_ids[labels[row]] for row in indices])
        return ImageBatch(examples.pixels(indices), targets, [examples.rows.origins.describe(row) for row in indices])

    def augmented(self, batch: Any, seed: int) -> Batch:
        changed = cast(ImageBatch, super().augmented(batch, seed))
        images, mixture = mix(to_array(changed.pixels), self.config.augment, seed)
        if mixture is None:
            return changed
        onehot = torch.eye(len(self.labels))[changed.targets]  # (B, L)
        targets = torch.lerp(onehot[mixture.partner], onehot, mixture.weight[:, None])
        return replace(changed, pixels=to_tensor(images), targets=targets)

    # Training and inference

    def losses(self, batch: ImageBatch, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        loss = networks["model"](batch.pixels, batch.targets, smoothing=self.config.label_smoothing)
        yield "model", loss

    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        examples, indices = self.splits[split], self.quick_rows(split, quick)
        names = examples.rows.texts["label"]
        expected = [self.label_ids[names[row]] for row in indices]
        logits = self.logits(examples, indices, progress)
        probabilities = logits.softmax(-1)
        predicted = probabilities.argmax(-1).tolist()
        scores = {
            "accuracy": classification.accuracy(predicted, expected),
            "top5": classification.top_accuracy(probabilities.numpy(), expected, min(5, len(self.labels))),
            "calibration_error": calibration_error(probabilities.numpy(), expected),
        }
        values = {name: score.value for name, score in scores.items()}
        loss = float(nn.functional.cross_entropy(logits, torch.tensor(expected)))
        table = confusion_table(
            classification.confusion(
                [self.labels[n] for n in predicted], [self.labels[n] for n in expected], self.labels
            )
        )
        return Evaluation(
            {**values, "loss": loss, "images": len(indices)},
            {name: score.signature for name, score in scores.items()},
            [table],
            complete=len(indices) == len(examples),
        )

    def logits(self, examples: ImageExamples, indices: Sequence[int], progress: Progress = ignore_progress) -> Tensor:
        """Return the logits (N, labels) of stored images."""
        blocks = [indices[first : first + BLOCK] for first in range(0, len(indices), BLOCK)]
        parts = []
        for rows in blocks:
            parts.append(self.classify(self.centred(examples.pixels(rows))))
            progress(len(parts) / len(blocks))
        return torch.cat(parts)

    def classify(self, pixels: Tensor) -> Tensor:
        """Return the logits (N, labels) of images (N, 3, H, W), in batches on all cores."""
        model = pack(self.model, POSITIONS) if len(pixels) >= BATCH and packing_pays() else self.model
        rows, columns = self.model.encoder.grid(*pixels.shape[2:])

        def run(batch: Tensor) -> Tensor:
            batch = batch.to(self.device())
            with torch.no_grad():
                logits: Tensor = model(batch)
                if self.config.mirror and self.config.augment.flip:  # the mean of both probabilities
                    both = torch.stack((logits, model(batch.flip(3)))).float()
                    logits = both.log_softmax(-1).logsumexp(0)
            return check_outputs(logits.float().cpu())

        batches = pixels.split(max(1, min(BATCH, POSITIONS // (rows * columns))))
        return torch.cat(list(parallel_map(run, batches) if self.device().type == "cpu" else map(run, batches)))

    def predict(self, inputs: Sequence[Mapping[str, Any]], options: PredictOptions) -> Iterator[Prediction]:
        for first in range(0, len(inputs), BLOCK):
            examples = inputs[first : first + BLOCK]
            pixels = torch.stack([self.format.read(example["image"]) for example in examples])
            probabilities = self.classify(pixels).softmax(-1)
            for example, image, row in zip(examples, pixels, probabilities.tolist(), strict=True):
                ranked = dict(sorted(zip(self.labels, row, strict=True), key=lambda pair: -pair[1]))
                attention = self.attention(image) if options.attention else AttentionMaps()
                yield Prediction(example, LabelOutput((next(iter(ranked)),), ranked), ranked, attention, trace=image)

    def attention(self, pixels: Tensor) -> AttentionMaps:
        """Return all attention maps over one image (3, H, W)."""
        if not any(hasattr(module, "weights") for module in self.model.modules()):
            return AttentionMaps()
        with torch.no_grad(), watch(self.model) as recorder:
            self.model(pixels[None].to(self.device()))
        return AttentionMaps(self.self_attention(recorder, pixels, 0))

    def rerun(self, prediction: Prediction, *, layers: bool = False) -> ForwardTrace:
        pixels, states = prediction.trace, list[Tensor]()
        logits = self.model(pixels[None].to(self.device()), states=states)
        by_layer = []
        if layers and states:
            encoder = self.model.encoder
            outputs = [*map(encoder.encoder.norm, states[1:-1]), states[-1]]
            vectors = map(encoder.pool, outputs)
            by_layer = [(f"encoder.encoder.{at}", self.model.head(vector)) for at, vector in enumerate(vectors)]
        rows, columns = self.model.encoder.grid(*pixels.shape[1:])
        axis = self.image_axis(pixels, len(self.model.encoder.extra) + rows * columns)
        position = StepAxis(Role.LABEL, ("label",))
        chosen = (int(logits.argmax()),)
        return ForwardTrace(logits, chosen, position, (axis,), self.labels.__getitem__, tuple(by_layer))

    def attention_snapshot(self) -> list[Prediction]:
        examples = self.splits[Split.VALID]
        images = self.centred(examples.pixels(list(dict.fromkeys((0, len(examples) // 2)))))
        return list(self.predict([{"image": image} for image in images], PredictOptions(attention=True)))

    def sample(self) -> str:
        examples = self.splits[Split.VALID]
        rows = list(dict.fromkeys((0, len(examples) // 2)))
        predicted = self.classify(self.centred(examples.pixels(rows))).argmax(-1).tolist()
        names = examples.rows.texts["label"]
        lines = (f"{names[row]} -> {self.labels[label]}" for row, label in zip(rows, predicted, strict=True))
        return "\n".join(lines)

    # Exchange

    @classmethod
    def from_pretrained(cls, pretrained: Pretrained) -> Self:
        head = pretrained.head
        if not isinstance(head, ImageHead) or not isinstance(pretrained.network, ImageClassifier):
            raise cannot_run(pretrained, "image_classification")
        config = ClassificationConfig(mirror=False)
        task = cls(config, format_of(pretrained.processor), head.labels, pretrained.network)
        task.family = pretrained.family
        return task

    def to_pretrained(self) -> Pretrained:
        network, family = self.model, self.family
        kind = "DeiT" if family is not None and family.name == "deit" else "ViT"
        processor = processor_of(self.format, network.encoder, kind)
        head = ImageHead(self.labels, "distillation" in network.encoder.extra)
        base = self.config.base
        return Pretrained(network, network.encoder.config, processor, family, "image_classification", head, base)
