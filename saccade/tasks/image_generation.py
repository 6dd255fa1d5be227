"""Image generation: new images like those of the data, by a self-attention GAN.

Shapes: B rows, N images, Z noise, C channels, H x W pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from saccade import __version__
from saccade.atomic_io import read_json, write_json
from saccade.core import (
    AttentionMap,
    AttentionMaps,
    Base,
    Batch,
    Evaluation,
    ForwardTrace,
    GridAxis,
    ImageOutput,
    Metric,
    Prediction,
    Progress,
    Role,
    Source,
    Split,
    StepAxis,
    Vector,
)
from saccade.core.callback import ignore_progress
from saccade.data.batching import BucketedBatches
from saccade.data.formats.image_rows import ImageRows, ImageSettings, read_pictures
from saccade.data.formats.labelled import sort_labels
from saccade.data.images.decoded import DecodedPictures, decode_pictures
from saccade.errors import DataError, UsageError
from saccade.metrics.frechet import Gaussian, frechet_distance, novelty
from saccade.models.vision.gan import Discriminator, Generator, fitting_size, normalized
from saccade.models.vision.small_cnn import SmallCNN
from saccade.nn.probe import RecordedRow, watch
from saccade.tasks._encoder.inputs import check_outputs
from saccade.tasks._vision.extractor import FILE as EXTRACTOR
from saccade.tasks._vision.extractor import features, read_extractor, train_extractor
from saccade.tasks._vision.generation import (
    LARGEST,
    SMALLEST,
    GanBatch,
    GenerationConfig,
    SampleOptions,
    check_label,
    label_of,
    latent_vectors,
)
from saccade.tasks._vision.image_format import ImageFormat, default_size, median_side
from saccade.tasks._vision.task import ImageExamples, ImageTask

SHAPE = "images.json"
BLOCK = 128  # images that are generated at once
SCORED, QUICK = 5000, 1000  # images of a complete and of a quick evaluation, at most
COMPARED = 500  # images whose nearest training image is looked for
SEED = 0  # of the noise of an evaluation, and of the untrained generator
NOTES = (
    "frechet_distance: between the features of as many generated as held-out images; floor: between two halves of the "
    "held-out images, each of that size; untrained: of a generator before training.",
    "The features are those of a small network trained on these images, not of an Inception network: the values are "
    "not comparable with a published FID, nor between runs on different data or of different sizes.",
    "nearest_ratio: median distance, in pixels, of a generated image to the nearest training image, divided by that of "
    "a held-out image; near_copies: % of generated images nearer to one than 99% of the held-out images are. New "
    "images of the same kind have about 1 and 1%; a ratio far below 1 means copies.",
)


@dataclass(frozen=True)
class Reference:
    """What generated images are compared with: held-out images, in two halves, and an untrained generator."""

    real: Gaussian
    rows: list[int]
    """of the first half"""
    floor: float
    untrained: float


class Task(ImageTask):
    """Generator and discriminator, each with its own optimizer."""

    Config: ClassVar[type[Any]] = GenerationConfig
    Options: ClassVar[type[Any]] = SampleOptions
    summary: ClassVar[str] = "generate images like those of the data"
    needs: ClassVar[str] = "images, with labels or without"
    roles: ClassVar[tuple[str, ...]] = ("label",)
    inputs = (Vector("noise", optional=True, help="noise vector; without it drawn by the option seed"),)
    metric = Metric("frechet_distance", False)

    def __init__(
        self, config: Any, format: ImageFormat, channels: int, labels: Sequence[str], extractor: SmallCNN
    ) -> None:
        super().__init__(config, format)
        self.channels, self.labels, self.extractor = channels, tuple(labels), extractor
        self.label_ids = {label: number for number, label in enumerate(labels)}
        self.generator, self.discriminator = self._networks()
        self._references: dict[int, Reference] = {}

    def _networks(self) -> tuple[Generator, Discriminator]:
        shape = (self.config.model, self.format.size, self.channels, len(self.labels))
        return Generator(*shape), Discriminator(*shape)

    def networks(self) -> dict[str, nn.Module]:
        return {"discriminator": self.discriminator, "generator": self.generator}

    # Data

    @classmethod
    def train_defaults(cls, config: Any) -> list[str]:
        """Return Muon with little momentum, no momentum of AdamW, and a moving average of the weights."""
        optim = {"matrix_lr": "0.01", "momentum": "0.5", "lr": "6e-4", "output_lr": "3e-4", "embedding_lr": "1e-3"}
        optim |= {"beta1": "0", "beta2": "0.9", "warmup": "5", "cooldown": "0.5"}
        settings = [f"train.optim.{name}={value}" for name, value in optim.items()]
        return ["train.precision=fastest", "train.average=0.995", *settings]

    def optimizer_overrides(self, network: str) -> list[str]:
        if network == "generator":
            return []
        return [f"lr={self.config.discriminator_lr}", f"matrix_lr={self.config.discriminator_matrix_lr}"]

    @classmethod
    def read_rows(cls, data: Path, settings: ImageSettings, progress: Progress = ignore_progress) -> ImageRows:
        return read_pictures(data, settings, progress)

    @classmethod
    def prepare(
        cls, config: Any, data: Path, assets: Path, *, base: Base = None, progress: Progress = ignore_progress
    ) -> list[str]:
        train, valid, notes = cls.read(config.data, data, progress)
        labels = cls._labels(config, data, train, valid)
        size = config.size or fitting_size(max(SMALLEST, min(LARGEST, default_size(median_side(train.pictures)))))
        format = ImageFormat(size, size)
        images = decode_pictures(train.pictures, format.resize, progress)
        grey = config.colour == "grey" or (config.colour == "auto" and all_grey(images))
        write_json(assets / SHAPE, {"labels": labels, "format": vars(format), "channels": 1 if grey else 3})
        numbers = {label: number for number, label in enumerate(labels)}
        targets = np.array([numbers[label] for label in train.texts["label"]]) if labels else None

        def read(rows: Sequence[int]) -> Tensor:
            return images.batch(train.picture[np.asarray(rows, dtype=np.int64)])[:, : 1 if grey else 3]

        note = train_extractor(read, len(train), targets, assets / EXTRACTOR, progress)
        shape = f"{size} x {size} pixels, {'grey' if grey else 'RGB'}"
        kind = f"conditional on {len(labels)} labels" if labels else "without labels"
        return [*notes, f"images: {shape}; {kind}", note]

    @classmethod
    def _labels(cls, config: Any, data: Path, train: ImageRows, valid: ImageRows) -> list[str]:
        """Return the labels of a conditional model; none for one without."""
        labelled = all("label" in rows.texts for rows in (train, valid))
        if config.conditional == "yes" and not labelled:
            raise DataError(
                f"{data}: pictures without labels, expected a label for each with conditional=yes; put the pictures of "
                "each class in a folder of its own, or set conditional=no"
            )
        if config.conditional == "no" or not labelled:
            return []
        labels = sort_labels({*train.texts["label"], *valid.texts["label"]})
        return labels if len(labels) > 1 or config.conditional == "yes" else []

    @classmethod
    def open(cls, config: Any, assets: Path) -> Self:
        described = read_json(assets / SHAPE)
        format, extractor = ImageFormat(**described["format"]), read_extractor(assets / EXTRACTOR)
        return cls(config, format, described["channels"], described["labels"], extractor)

    def load_data(self, data: Path, *, eval_only: bool = False, progress: Progress = ignore_progress) -> list[str]:
        notes = super().load_data(data, eval_only=eval_only, progress=progress)
        self._references = {}
        held_out = len(self.splits[Split.VALID])
        if held_out < 4:
            raise DataError(f"{data}: {held_out} held-out images, expected at least 4 to compare with; add images")
        return notes

    def check_rows(self, rows: ImageRows) -> None:
        if not self.labels:
            return
        if "label" not in rows.texts:
            raise DataError(f"{rows.path}: pictures without labels, expected one of {', '.join(self.labels)} for each")
        for row, label in enumerate(rows.texts["label"]):
            if label not in self.label_ids:
                message = f"{rows.origins.describe(row)}: label '{label}'"
                raise DataError(f"{message}, expected one of the training images: {', '.join(self.labels)}")

    def source(self, split: Split, seed: int) -> Source:
        examples = self.splits[split]
        return BucketedBatches(
            examples,
            lambda indices: self.collate(examples, indices),
            budget=self.config.batch_size * self.config.discriminator_steps,
            seed=seed,
            augment=self.augmented,
        )

    def collate(self, examples: ImageExamples, indices: list[int]) -> GanBatch:
        labels = torch.tensor([self._label(examples, row) for row in indices])
        rows = [examples.rows.origins.describe(row) for row in indices]
        return GanBatch(examples.pixels(indices), labels, rows, torch.empty(0), torch.empty(0))

    def _label(self, examples: ImageExamples, row: int) -> int:
        return self.label_ids[examples.rows.texts["label"][row]] if self.labels else 0

    def augmented(self, batch: Any, seed: int) -> Batch:
        """Return a batch with its images changed at random and noise drawn: a pure function of the seed."""
        changed = super().augmented(batch, seed)
        assert isinstance(changed, GanBatch)
        generator = torch.Generator().manual_seed(seed)
        shape = (self.config.discriminator_steps + 1, self.config.batch_size)
        noise = torch.randn(*shape, self.config.model.noise, generator=generator)
        drawn = torch.randint(len(batch.labels), shape, generator=generator)  # labels as often as in the data
        pixels = changed.pixels[:, : self.channels]
        return replace(changed, pixels=pixels, noise=noise, fake_labels=batch.labels[drawn])

    # Training

    def losses(self, batch: GanBatch, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        steps = self.config.discriminator_steps
        for step in range(steps):
            real, labels = batch.part(step, steps)
            fake_labels = self._given(batch.fake_labels[step])
            with torch.no_grad():
                fake = self.generator.images(batch.noise[step], fake_labels)
            yield "discriminator", networks["discriminator"](real, self._given(labels), fake, fake_labels)
        fake_labels = self._given(batch.fake_labels[-1])
        yield "generator", networks["generator"](batch.noise[-1], fake_labels, self.discriminator)

    def _given(self, labels: Tensor) -> Tensor | None:
        """Return labels for a conditional model, None for one without."""
        return labels if self.labels else None

    # Evaluation

    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        examples = self.splits[split]
        count = min(len(examples) // 2, QUICK if quick else SCORED)
        with torch.no_grad(), torch.autocast(self.device().type, enabled=False):
            if count not in self._references or split != Split.VALID:
                self._references[count] = self._reference(examples, count)
            reference = self._references[count]
            generated = self._generated(self.generator, examples, reference.rows)
            progress(0.5)
            score = frechet_distance(self._gaussian(generated), reference.real)
        values = {"frechet_distance": score, "floor": reference.floor, "untrained": reference.untrained}
        if not quick and Split.TRAIN in self.splits and split == Split.VALID:
            values |= self._novelty(generated[:COMPARED], reference.rows[:COMPARED])
        progress(1.0)
        signature = f"{count} images of each|features:small_cnn, trained on these data|saccade:{__version__}"
        complete = count == len(examples) // 2 and not quick
        return Evaluation({**values, "images": count}, {"frechet_distance": signature}, notes=NOTES, complete=complete)

    def _reference(self, examples: ImageExamples, count: int) -> Reference:
        """Return the statistics of `count` held-out images, of as many others, and of an untrained generator."""
        spread = [number * len(examples) // (2 * count) for number in range(2 * count)]  # data may be in an order
        first, second = spread[::2], spread[1::2]
        real, other = (self._gaussian(normalized(self._pixels(examples, rows))) for rows in (first, second))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            untrained = self._networks()[0].eval().to(self.device())
        start = self._gaussian(self._generated(untrained, examples, first))
        return Reference(real, first, frechet_distance(real, other), frechet_distance(start, real))

    def _generated(self, generator: Generator, examples: ImageExamples, rows: Sequence[int]) -> Tensor:
        """Return an image (N, C, H, W) for each of some rows, with its label where the model has labels."""
        noise = torch.randn(len(rows), self.config.model.noise, generator=torch.Generator().manual_seed(SEED))
        labels = torch.tensor([self._label(examples, row) for row in rows])
        device, parts = self.device(), []
        for part, label in zip(noise.split(BLOCK), labels.split(BLOCK), strict=True):
            parts.append(generator.images(part.to(device), self._given(label.to(device))).float().cpu())
        return check_outputs(torch.cat(parts))

    def _pixels(self, examples: ImageExamples, rows: Sequence[int]) -> Tensor:
        return self.centred(examples.pixels(rows))[:, : self.channels]

    def _gaussian(self, images: Tensor) -> Gaussian:
        return Gaussian.of(features(self.extractor, images))

    def _novelty(self, generated: Tensor, rows: Sequence[int]) -> dict[str, float]:
        """Return how near generated images are to training images, beside held-out ones."""
        train = self.splits[Split.TRAIN]
        held_out = normalized(self._pixels(self.splits[Split.VALID], rows))
        training = normalized(self._pixels(train, range(len(train))))
        vectors = (images.flatten(1).double().numpy() for images in (generated, held_out, training))
        result = novelty(*vectors)
        return {"nearest_ratio": result.ratio, "near_copies": result.copies}

    # Prediction

    def predict(self, inputs: Sequence[Mapping[str, Any]], options: SampleOptions) -> Iterator[Prediction]:
        check_label(options.label, self.labels)
        for example in inputs:
            noise = latent_vectors(options, self.config.model.noise)
            if "noise" in example:
                noise = [self._checked(example["noise"], options)]
            moving = options.to_seed >= 0  # of one label
            seeds = [options.seed + (0 if moving else number) for number in range(len(noise))]
            labels = [self.label_ids.get(options.label, label_of(seed, len(self.labels))) for seed in seeds]
            first, *others = self._predictions(example, torch.stack(noise), torch.tensor(labels))
            attention = self._attention(first) if options.attention else AttentionMaps()
            yield replace(first, attention=attention, alternatives=tuple(others))

    def _checked(self, noise: Tensor, options: SampleOptions) -> Tensor:
        length = self.config.model.noise
        if len(noise) != length:
            raise UsageError(f"noise must have {length} numbers, but has {len(noise)}; leave it out to draw it by seed")
        if options.samples > 1 or options.to_seed >= 0:
            raise UsageError("noise gives one image; leave it out to use samples and to_seed")
        return noise

    def _predictions(self, inputs: Mapping[str, Any], noise: Tensor, labels: Tensor) -> Iterator[Prediction]:
        """Yield an image with the score of the discriminator for each row of noise (B, Z) and labels (B,)."""
        for part, label in zip(noise.split(BLOCK), labels.split(BLOCK), strict=True):
            with torch.no_grad():
                images, scores = self._run(part, label)
            pixels = ((check_outputs(images.float()) + 1) * 127.5).round().clamp(0, 255).byte().cpu()
            for number, image in enumerate(pixels):
                named = (f"label: {self.labels[int(label[number])]}",) if self.labels else ()
                trace = (part[number], label[number], image)
                score = {"score": float(scores[number])}
                yield Prediction(inputs, ImageOutput(image), score, trace=trace, notes=named)

    def _run(self, noise: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return images (B, C, H, W) and the scores (B,) of the discriminator."""
        weight = next(self.generator.parameters())
        given = self._given(labels.to(weight.device))
        images = self.generator.images(noise.to(weight), given)
        return images, self.discriminator.scores(images, given)

    def _attention(self, prediction: Prediction) -> AttentionMaps:
        """Return which cells of an image each cell attends to, in the generator and in the discriminator."""
        noise, label, image = prediction.trace
        with torch.no_grad(), watch(self.generator) as drawn, watch(self.discriminator) as judged:
            self._run(noise[None], label[None])
        maps = []
        # One network draws the image and the other reads it: their layers do not follow each other, as in a stack.
        for role, recorder in ((Role.TARGET, drawn), (Role.IMAGE, judged)):
            for name, recorded in recorder.items():
                side = round(recorded.shape[2] ** 0.5)
                axis = GridAxis(role, side, side, image)
                maps.append(AttentionMap(name, RecordedRow(recorded, 0), axis, axis))
        return AttentionMaps(maps)

    def rerun(self, prediction: Prediction, *, layers: bool = False) -> ForwardTrace:
        noise, label, image = prediction.trace
        logits = self._run(noise[None], label[None])[1][:, None]  # (1, 1): the score of the discriminator
        cells = GridAxis(Role.IMAGE, self.generator.side, self.generator.side, image)
        position = StepAxis(Role.LABEL, ("score",))
        by_layer = (("discriminator", logits),) if layers else ()
        return ForwardTrace(logits, (0,), position, (cells,), lambda _: "score", by_layer)

    def attention_snapshot(self) -> list[Prediction]:
        options = [SampleOptions(attention=True, seed=seed) for seed in (1, 2)]
        return [prediction for chosen in options for prediction in self.predict([{}], chosen)]


def all_grey(images: DecodedPictures) -> bool:
    """Whether the three channels of all images are equal."""
    for first in range(0, len(images), 1024):
        pixels = images.batch(range(first, min(first + 1024, len(images))))
        if not (torch.equal(pixels[:, 0], pixels[:, 1]) and torch.equal(pixels[:, 0], pixels[:, 2])):
            return False
    return True
