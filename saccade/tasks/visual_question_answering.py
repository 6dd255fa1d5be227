"""Visual question answering: the answer to a question on an image, one of the frequent answers of the training data.

Shapes: B questions, I images, L answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from saccade.atomic_io import read_json, write_json
from saccade.core import (
    AttentionMap,
    AttentionMaps,
    Axis,
    Base,
    Evaluation,
    ForwardTrace,
    Image,
    InputLength,
    LabelOutput,
    Metric,
    Prediction,
    PredictOptions,
    Progress,
    Role,
    Split,
    StepAxis,
    Table,
    Text,
)
from saccade.core.callback import ignore_progress
from saccade.data.batching import BucketedBatches, length_groups
from saccade.data.formats.image_rows import ImageRows
from saccade.data.images.augment import Augment
from saccade.data.images.decoded import decode_pictures
from saccade.errors import DataError
from saccade.metrics import vqa
from saccade.metrics.alignment import mean_heads
from saccade.models.text.bert import EncoderInputs
from saccade.models.vision.answering import AnsweringConfig, VisualAnswering
from saccade.models.vision.architectures import VisionConfig
from saccade.models.vision.encoder import VisionEncoder
from saccade.models.vision.resnet import ResNetConfig
from saccade.nn.probe import RecordedRow, watch
from saccade.tasks._encoder.inputs import EncodedText, EncoderBatch, Lengths, check_outputs, pad_texts
from saccade.tasks._parallel import parallel_map
from saccade.tasks._vision.encoders import read_encoder, write_encoder
from saccade.tasks._vision.frozen import FrozenConfig, FrozenExamples, FrozenImageTask
from saccade.tasks._vision.image_format import ImageFormat
from saccade.tasks._vision.task import QUICK_ROWS
from saccade.tasks._vision.texts import TextReader, write_tokenizer

ANSWERS = "answers.json"
BATCH = 256  # questions of a batch at inference
YES_NO = ("yes", "no")


@dataclass(frozen=True)
class AnsweringTaskConfig(FrozenConfig):
    """All settings of visual question answering except those of the training loop."""

    encoder: VisionConfig = field(
        default_factory=lambda: VisionConfig("cnn", ResNetConfig(widths=(48, 96), attention_stage=1))
    )
    """image encoder that is trained from scratch"""
    model: AnsweringConfig = field(default_factory=AnsweringConfig)
    augment: Augment = field(default_factory=lambda: Augment(flip=False))
    """random changes of the training images; a mirrored one would change what is left and right"""
    answers: int = 1000
    """number of answers to choose from: the most frequent of the training data"""
    vocabulary_size: int = 4000
    """number of word pieces of the questions"""
    max_length: int = 48
    """maximum number of tokens of a question; longer ones are truncated"""
    batch_size: int = 256
    """questions per step; those on the same image are answered together"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("answers", 2), ("vocabulary_size", 1), ("max_length", 8)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, but is {getattr(self, name)}")


@dataclass(frozen=True)
class QuestionBatch(EncoderBatch):
    """Images with questions, as many for each: those of an image follow each other."""

    pixels: Tensor  # (I, 3, H, W), or vectors (I, N, D) of a frozen encoder
    pictures: tuple[int, ...]
    """number of the picture of each image"""
    inputs: EncoderInputs
    targets: Tensor  # (B, L), probabilities of the answers; 0 for a question that only fills up those of an image


class Task(FrozenImageTask):
    """A question encoder that attends to the grid of an image encoder, and an output for each answer."""

    Config: ClassVar[type[Any]] = AnsweringTaskConfig
    loss_unit: ClassVar[str] = "nats"
    summary: ClassVar[str] = "answer a question on an image"
    needs: ClassVar[str] = "images with questions and answers"
    roles: ClassVar[tuple[str, ...]] = ("question", "answer")
    unit: ClassVar[str] = "questions"
    inputs = (Image("image"), Text("question"))
    metric = Metric("accuracy", True, "%")

    def __init__(
        self, config: Any, format: ImageFormat, reader: TextReader, answers: Sequence[str], model: VisualAnswering
    ) -> None:
        super().__init__(config, format)
        self.reader, self.tokenizer, self.answers, self.model = reader, reader.tokenizer, tuple(answers), model
        self.answer_ids = {vqa.normalize(answer): number for number, answer in enumerate(answers)}
        self._prior: dict[Split, list[str]] = {}

    @property
    def backbone(self) -> VisionEncoder:
        return self.encoder

    # Data

    @classmethod
    def prepare(
        cls, config: Any, data: Path, assets: Path, *, base: Base = None, progress: Progress = ignore_progress
    ) -> list[str]:
        train, _, notes = cls.read(config.data, data, progress)
        answers, coverage = frequent_answers(train.texts["answer"], config.answers)
        if len(answers) < 2:
            message = f"{data}: every answer is '{answers[0]}', expected at least two answers"
            raise DataError(f"{message}; add questions with other answers")
        format = cls.choose_format(config, train.pictures, base)
        write_json(assets / ANSWERS, {"answers": answers, "format": vars(format)})
        notes += write_tokenizer(train.texts["question"], config.vocabulary_size, assets)
        images = decode_pictures(train.pictures, format.resize, progress)
        notes += write_encoder(config, config.encoder, format.size, images, assets, base)
        covered = f"answers: {len(answers):,}, which cover {coverage:.1%} of those of the training questions"
        return [*notes, f"{covered}; images are read as {format.size} x {format.size} pixels"]

    @classmethod
    def open(cls, config: Any, assets: Path) -> Self:
        described, reader = read_json(assets / ANSWERS), TextReader.open(assets, config.max_length)
        answers, encoder = described["answers"], read_encoder(config, assets)
        model = VisualAnswering(encoder, config.model, reader.tokenizer.size, len(answers))
        return cls(config, ImageFormat(**described["format"]), reader, answers, model)

    def load_data(self, data: Path, *, eval_only: bool = False, progress: Progress = ignore_progress) -> list[str]:
        super().load_data(data, eval_only=eval_only, progress=progress)
        self._prior = {}
        counts = [self._count(split) for split in self.splits]
        return [f"questions: {' and '.join(counts)}"]

    def _count(self, split: Split) -> str:
        rows = self.splits[split].rows
        purpose = "training" if split == Split.TRAIN else "validation"
        return f"{len(rows):,} on {len(np.unique(rows.picture)):,} images for {purpose}"

    def examples(self, rows: ImageRows, progress: Progress = ignore_progress) -> FrozenExamples:
        return FrozenExamples(rows, super().examples(rows, progress).images)

    def source(self, split: Split, seed: int) -> BucketedBatches:
        examples: Any = self.splits[split]
        config = self.config
        groups = group_by_image(examples.rows.picture)
        counts = np.array([len(group) for group in groups], dtype=np.int64)
        return BucketedBatches(
            Lengths(np.stack((np.zeros_like(counts), counts), axis=1)),
            lambda numbers: self.collate(examples, [row for number in numbers for row in groups[number]]),
            budget=config.batch_size,
            seed=seed,
            micro_batches=config.micro_batches,
            augment=self.augmented if split == Split.TRAIN else None,
        )

    def collate(self, examples: Any, indices: list[int]) -> QuestionBatch:
        rows = examples.rows
        groups = [[indices[at] for at in group] for group in group_by_image(rows.picture[indices])]
        filled = fill_groups(groups)
        targets = self.targets([rows.texts["answer"][row] for row in filled.flat])
        copied = np.arange(filled.shape[1]) >= np.array([len(group) for group in groups])[:, None]
        targets[torch.from_numpy(copied.flatten())] = 0
        pictures = rows.picture[filled[:, 0]]
        return QuestionBatch(
            rows=[rows.origins.describe(row) for group in groups for row in group],
            count=max(1, int(targets.any(1).sum())),
            units=len(indices),
            pixels=examples.stored(pictures),
            pictures=tuple(pictures.tolist()),
            inputs=self.reader.encode_column(rows.texts["question"]).pad(filled.flatten().tolist()),
            targets=targets,
        )

    def targets(self, answers: Sequence[str]) -> Tensor:
        """Return the probability (B, L) of each answer: how many people gave it; 0 where nobody gave one of these."""
        targets = torch.zeros(len(answers), len(self.answers))
        for row, given in enumerate(answers):
            for answer in split_answers(given):
                number = self.answer_ids.get(vqa.normalize(answer))
                if number is not None:
                    targets[row, number] += 1
        return targets / targets.sum(1, keepdim=True).clamp_min(1)

    # Training and inference

    def losses(self, batch: QuestionBatch, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        inputs = batch.inputs
        yield "model", networks["model"](batch.pixels, inputs.ids, inputs.keep, batch.targets)

    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        examples, indices = self.splits[split], self.quick_rows(split, quick)
        logits = self.logits(examples, indices, progress)
        predicted = [self.answers[number] for number in logits.argmax(-1).tolist()]
        expected = [examples.rows.texts["answer"][row] for row in indices]
        references = list(map(split_answers, expected))
        score = vqa.vqa_accuracy(predicted, references)
        values, answerers = {"accuracy": score.value}, {"accuracy": predicted}
        if Split.TRAIN in self.splits:
            answerers["prior"] = [self.prior(split)[row] for row in indices]
            values["prior"] = vqa.vqa_accuracy(answerers["prior"], references).value
        loss = -(self.targets(expected) * logits.log_softmax(-1)).sum(1).mean()
        return Evaluation(
            {**values, "loss": float(loss), "questions": len(indices)},
            {"accuracy": score.signature},
            [type_table(answerers, references)],
            complete=len(indices) == len(examples),
        )

    def prior(self, split: Split) -> list[str]:
        """Return the answers to all questions of a split that the training questions suggest, without any image."""
        if split not in self._prior:
            train, rows = self.splits[Split.TRAIN].rows, self.splits[split].rows
            answers = list(map(split_answers, train.texts["answer"]))
            self._prior[split] = vqa.question_prior(rows.texts["question"], train.texts["question"], answers)
        return self._prior[split]

    def quick_rows(self, split: Split, quick: bool) -> list[int]:
        groups = group_by_image(self.splits[split].rows.picture)
        step = max(1, -(-len(self.splits[split]) // QUICK_ROWS)) if quick else 1
        return sorted(row for group in groups[::step] for row in group)

    def logits(self, examples: Any, indices: Sequence[int], progress: Progress = ignore_progress) -> Tensor:
        """Return the logits (N, L) of some questions; those on the same image are answered together."""
        rows, logits = examples.rows, torch.empty(len(indices), len(self.answers))
        texts = self.reader.encode_column(rows.texts["question"])
        groups = group_by_image(rows.picture[list(indices)])  # positions in `indices`

        def run(chosen: list[list[int]]) -> None:
            filled = fill_groups(chosen)
            numbers = [indices[at] for at in filled.flatten().tolist()]
            pixels = self.centred(examples.stored(rows.picture[[indices[group[0]] for group in chosen]]))
            results = self.run(pixels, [texts[row] for row in numbers]).unflatten(0, filled.shape)
            for group, result in zip(chosen, results, strict=True):
                logits[group] = result[: len(group)]

        batches = [[groups[number] for number in batch] for batch in length_groups([*map(len, groups)], BATCH, BATCH)]
        for number, _ in enumerate(parallel_map(run, batches), 1):
            progress(number / len(batches))
        return logits

    def run(self, pixels: Tensor, texts: Sequence[EncodedText]) -> Tensor:
        """Return the logits (B, L) of questions on images (I, 3, H, W), as many for each."""
        inputs, device = pad_texts(texts), self.device()
        with torch.no_grad():
            keep = None if inputs.keep is None else inputs.keep.to(device)
            logits = self.model(pixels.to(device), inputs.ids.to(device), keep)
        return check_outputs(logits.float().cpu())

    def predict(self, inputs: Sequence[Mapping[str, Any]], options: PredictOptions) -> Iterator[Prediction]:
        for first in range(0, len(inputs), BATCH):
            examples = inputs[first : first + BATCH]
            texts = self.reader.encode("question", [example["question"] for example in examples])
            pixels = torch.stack([self.format.read(example["image"]) for example in examples])
            probabilities = self.run(pixels, texts).softmax(-1)
            for example, image, text, row in zip(examples, pixels, texts, probabilities.tolist(), strict=True):
                ranked = dict(sorted(zip(self.answers, row, strict=True), key=lambda pair: -pair[1]))
                attention = self.attention(image, text) if options.attention else AttentionMaps()
                # The last layer, of the answer over the image, is what a page opens with.
                answer = mean_heads(list(attention.values())[-1]) if attention else None
                output = LabelOutput((next(iter(ranked)),), ranked)
                trace, notes = (image, text), text.notes
                yield Prediction(example, output, ranked, attention, alignment=answer, trace=trace, notes=notes)

    def input_lengths(self, inputs: Mapping[str, Any], options: PredictOptions) -> list[InputLength]:
        return [self.reader.length("question", inputs["question"])]

    # Attention and explanations

    def attention(self, pixels: Tensor, text: EncodedText) -> AttentionMaps:
        """Return all attention maps for one question on an image (3, H, W)."""
        with watch(self.model) as recorder:
            self.run(pixels[None], [text])
        return AttentionMaps(
            AttentionMap(name, RecordedRow(recorded, 0), *self._axes(name, recorded.shape, pixels, text))
            for name, recorded in recorder.items()
        )

    def _axes(self, name: str, shape: tuple[int, ...], pixels: Tensor, text: EncodedText) -> tuple[Axis, Axis]:
        """Return what the queries and the keys of an attention layer are."""
        if name.startswith("encoder."):
            return self.image_axis(pixels, shape[2]), self.image_axis(pixels, shape[3])
        if name.endswith(".self"):
            return self.reader.axis(text), self.reader.axis(text)
        queries = self.reader.axis(text) if name.endswith(".cross") else StepAxis(Role.LABEL, ("answer",))
        return queries, self.image_axis(pixels, shape[3])

    def rerun(self, prediction: Prediction, *, layers: bool = False) -> ForwardTrace:
        pixels, text = prediction.trace
        states: list[Tensor] = []
        ids = torch.tensor([text.ids], device=self.device())
        logits = self.model(pixels[None].to(self.device()), ids, states=states)
        hops = [(f"hop{number}", self.model.logits(u)) for number, u in enumerate(states, 1)] if layers else []
        rows, columns = self.encoder.grid(*pixels.shape[1:])
        axes = (self.image_axis(pixels, len(self.encoder.extra) + rows * columns), self.reader.axis(text))
        position, chosen = StepAxis(Role.LABEL, ("answer",)), (int(logits.argmax()),)
        return ForwardTrace(logits, chosen, position, axes, self.answers.__getitem__, tuple(hops))

    def _shown(self) -> list[int]:
        """Return the validation rows that are shown during training: questions on two images."""
        groups = group_by_image(self.splits[Split.VALID].rows.picture)
        return [groups[number][0] for number in dict.fromkeys((0, len(groups) // 2))]

    def attention_snapshot(self) -> list[Prediction]:
        examples, rows = self.splits[Split.VALID], self._shown()
        questions = [examples.rows.texts["question"][row] for row in rows]
        images = self.centred(examples.pixels(rows))
        inputs = [{"image": image, "question": text} for image, text in zip(images, questions, strict=True)]
        return list(self.predict(inputs, PredictOptions(attention=True)))

    def sample(self) -> str:
        examples, rows = self.splits[Split.VALID], self._shown()
        predicted = self.logits(examples, rows).argmax(-1).tolist()
        texts = examples.rows.texts
        lines = []
        for row, number in zip(rows, predicted, strict=True):
            expected = ", ".join(split_answers(texts["answer"][row]))
            lines.append(f"{texts['question'][row]} -> {self.answers[number]} (expected: {expected})")
        return "\n".join(lines)


def split_answers(answers: str) -> list[str]:
    """Return the answers that several people gave to a question."""
    return answers.split("\n")


def frequent_answers(rows: Iterable[str], most: int) -> tuple[list[str], float]:
    """Return the most frequent answers as they are most often written, and the fraction of all answers they are."""
    spellings: dict[str, Counter[str]] = {}
    for row in rows:
        for answer in split_answers(row):
            spellings.setdefault(vqa.normalize(answer), Counter())[answer.strip()] += 1
    ranked = sorted(spellings, key=lambda answer: (-spellings[answer].total(), answer))
    total = sum(counter.total() for counter in spellings.values())
    covered = sum(spellings[answer].total() for answer in ranked[:most])
    return [_spelling(answer, spellings[answer]) for answer in ranked[:most]], covered / max(1, total)


def _spelling(answer: str, spellings: Counter[str]) -> str:
    """Return the most frequent spelling of a normalized answer; of several the normalized one."""
    return min(spellings, key=lambda text: (-spellings[text], text != answer, text))


def group_by_image(pictures: NDArray[np.int64]) -> list[list[int]]:
    """Return the numbers of the rows on each picture; `pictures` has that of each row."""
    order = np.argsort(pictures, kind="stable")
    starts = np.flatnonzero(np.diff(pictures[order])) + 1
    return [group.tolist() for group in np.split(order, starts)]


def fill_groups(groups: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Return groups of numbers as a table, in which the last number of a short group is repeated."""
    width = max(map(len, groups))
    return np.array([[*group, *[group[-1]] * (width - len(group))] for group in groups], dtype=np.int64)


def answer_type(answers: Sequence[str]) -> str:
    """Return the type of a question by the most frequent of its answers: yes or no, number, other."""
    ((answer, _),) = Counter(map(vqa.normalize, answers)).most_common(1)
    return "yes or no" if answer in YES_NO else "number" if answer.isdecimal() else "other"


def type_table(answerers: Mapping[str, Sequence[str]], references: Sequence[Sequence[str]]) -> Table:
    """Return the accuracy of predictions, and of the prior where it is known, by type of answer."""
    types = list(map(answer_type, references))
    rows = []
    for name, count in Counter(types).most_common():
        chosen = [row for row, kind in enumerate(types) if kind == name]
        scores = [
            vqa.vqa_accuracy([answers[row] for row in chosen], [references[row] for row in chosen]).value
            for answers in answerers.values()
        ]
        rows.append((name, f"{count:,}", *(f"{score:.1f}" for score in scores)))
    return Table("accuracy by type of answer", ("answer", "questions", *answerers), tuple(rows))
