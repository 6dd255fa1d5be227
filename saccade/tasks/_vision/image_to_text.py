"""Image-to-text task: base class of captioning and reading: batches, search, streaming, attention and explanations.

Shapes: B rows, N positions of the image, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from saccade.core import (
    AttentionMap,
    AttentionMaps,
    Batch,
    Field,
    ForwardTrace,
    GeneratedToken,
    Image,
    Prediction,
    Progress,
    Split,
    TextOutput,
    ignore_progress,
)
from saccade.data.batching import BucketedBatches, Buckets, length_groups
from saccade.data.formats.image_rows import ImageRows
from saccade.data.images.decoded import decode_pictures
from saccade.data.lengths import save_max_target_length
from saccade.data.text.alphabets import UNKNOWN
from saccade.data.text.tokenizers import Tokenizer
from saccade.data.text.unknown_words import unit, unknown_id, unknown_note
from saccade.data.token_rows import TokenRows
from saccade.data.tokenization import tokenize
from saccade.decode.search import Hypothesis, Search
from saccade.metrics.alignment import choose_alignment_head, cross_attention, strip_ends
from saccade.models.seq2seq.interface import Seq2SeqLoss
from saccade.models.vision.image_to_text import ImageToText
from saccade.nn.probe import RecordedRow, record
from saccade.nn.transformer import layer_outputs
from saccade.tasks._seq2seq.attention import alignment_map, is_cross
from saccade.tasks._seq2seq.searching import POSITIONS, ROWS, pack_for, search_memory, stream_memory
from saccade.tasks._seq2seq.settings import TranslationOptions
from saccade.tasks._seq2seq.tokenizers import TargetTokenizer
from saccade.tasks._vision.frozen import FrozenExamples
from saccade.tasks._vision.task import ImageExamples, ImageTask

ALIGNMENT_ROWS = 50  # that determine which head shows best where the model looks
CHUNK = 256  # inputs searched before the first predictions are yielded
TOKENIZER = "tokenizer.json"

ImageSource = tuple[Tensor, Tensor]
"""images with their real positions (B, N): uint8 pixels (B, 3, H, W), or vectors (B, N, D) of a frozen encoder"""


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


class ImageToTextTask(ImageTask):
    """A task whose network writes a text about an image; its only role is the name of that text."""

    Options: ClassVar[type[Any]] = TranslationOptions
    inputs: tuple[Field, ...] = (Image("image"),)

    model: ImageToText
    splits: dict[Split, TextExamples]  # type: ignore[assignment]

    def __init__(self, config: Any, format: Any, target: TargetTokenizer, max_length: int, model: ImageToText) -> None:
        """`max_length`: maximum number of generated tokens."""
        super().__init__(config, format)
        self.target, self.max_length, self.model = target, max_length, model

    # Data

    @classmethod
    def write_tokenizer(cls, tokenizer: Tokenizer, rows: ImageRows, assets: Path) -> None:
        """Write the tokenizer of the texts to the assets, and how long a generated text may be."""
        tokenizer.save(assets / TOKENIZER)
        save_max_target_length(tokenize(rows.texts[cls.roles[0]], tokenizer).lengths, assets)

    def load_data(self, data: Path, *, eval_only: bool = False, progress: Progress = ignore_progress) -> list[str]:
        super().load_data(data, eval_only=eval_only, progress=progress)
        names = {Split.TRAIN: "training", Split.VALID: "evaluation" if eval_only else "validation"}
        notes = []
        for split, examples in self.splits.items():
            pictures = len(np.unique(examples.rows.picture))
            notes.append(f"{self.roles[0]}s for {names[split]}: {len(examples):,}, of {pictures:,} images")
        return [*notes, *(note for split in self.splits for note in self._unknown_note(split, names[split]))]

    def _unknown_note(self, split: Split, name: str) -> list[str]:
        """Return a note for the user on the tokens of a split that are not in the vocabulary."""
        tokenizer, tokens = self.target.tokenizer, self.splits[split].tokens
        unknown = unknown_id(tokenizer)
        total = 0 if unknown is None else int(tokens.count(unknown).sum())
        what = f"{total:,} of {int(tokens.lengths.sum()):,} {unit(tokenizer)} of the {name} {self.roles[0]}s"
        return [f"{what} are unknown, all read as {UNKNOWN}"] if total else []

    def examples(self, rows: ImageRows, progress: Progress = ignore_progress) -> TextExamples:
        images = decode_pictures(rows.pictures, self.format.resize, progress)
        return TextExamples(rows, images, tokens=tokenize(rows.texts[self.roles[0]], self.target.tokenizer))

    def source(self, split: Split, seed: int) -> BucketedBatches:
        examples, config = self.splits[split], self.config
        padded = (examples.lengths // Buckets.GRAIN + 1) * Buckets.GRAIN
        return BucketedBatches(
            examples,
            lambda indices: self.collate(examples, indices),
            budget=math.ceil(config.batch_size * float(padded.mean())),
            seed=seed,
            micro_batches=config.micro_batches,
            augment=self.augmented if split == Split.TRAIN else self.unchanged,
        )

    @abc.abstractmethod
    def stored(self, examples: TextExamples, indices: Sequence[int]) -> ImageSource:
        """Return the stored images of some rows."""

    def unchanged(self, batch: Any, seed: int) -> Batch:
        """Return a batch with its images as they are evaluated."""
        result: Batch = batch
        return result

    @abc.abstractmethod
    def stack(self, images: Sequence[Tensor]) -> ImageSource:
        """Return images (3, H, W), as they are evaluated, in one batch."""

    @abc.abstractmethod
    def image(self, examples: TextExamples, index: int) -> Tensor:
        """Return the image (3, H, W) of a row as it is evaluated."""

    def collate(self, examples: ImageExamples, indices: list[int]) -> ImageTextBatch:
        assert isinstance(examples, TextExamples)
        tokens = torch.from_numpy(examples.tokens.pad(indices, before=[self.target.start], after=[self.target.end]))
        inputs, labels = tokens[:, :-1].clamp_min(0), tokens[:, 1:]
        pixels, keep = self.stored(examples, indices)
        numbers = tuple(examples.numbers(indices).tolist())
        origins = tuple(examples.rows.origins.describe(row) for row in indices)
        return ImageTextBatch(pixels, keep, inputs, labels, numbers, origins, int((labels >= 0).sum()))

    # Training and inference

    def losses(self, batch: ImageTextBatch, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        loss = self.loss_weights()
        yield "model", networks["model"](batch.pixels, batch.keep, batch.inputs, batch.labels, loss)

    def loss_weights(self) -> Seq2SeqLoss:
        """Return the weights of the terms of the training loss."""
        return Seq2SeqLoss(self.config.label_smoothing)

    @torch.no_grad()
    def mean_loss(self, examples: TextExamples, indices: Sequence[int]) -> float:
        """Return the cross-entropy of the texts of some rows per token, without smoothing."""
        total, count = 0.0, 0
        for group in length_groups(examples.lengths[np.asarray(indices)].tolist(), ROWS, POSITIONS):
            batch: Any = self.unchanged(self.collate(examples, [indices[at] for at in group]), 0)
            batch = batch.to(self.device())
            total += float(self.model(batch.pixels, batch.keep, batch.inputs, batch.labels)) * batch.count
            count += batch.count
        return total / count

    @torch.no_grad()
    def search(
        self,
        positions: Sequence[int],
        load: Callable[[list[int]], ImageSource],
        settings: Search,
        *,
        prefix: Sequence[int] = (),
        progress: Progress = ignore_progress,
    ) -> list[list[Hypothesis]]:
        """Return the best texts of images that `load` returns by their numbers; `positions`: how many each has."""
        device, model = self.device(), pack_for(self.model, len(positions), settings)
        results: dict[int, list[Hypothesis]] = {}
        for group in length_groups(positions, ROWS, POSITIONS):
            source, keep = load(group)
            memory = model.encode(source.to(device), keep.to(device))
            limits = [self.limit(prefix)] * len(group)
            hypotheses = search_memory(model, memory, self.target, settings, limits, prefix)
            results.update(zip(group, hypotheses, strict=True))
            progress(len(results) / len(positions))
        return [results[number] for number in range(len(positions))]

    def outputs(
        self, examples: TextExamples, indices: Sequence[int], settings: Search, progress: Progress = ignore_progress
    ) -> list[str]:
        """Return the text that is generated for the image of each row."""

        def load(group: list[int]) -> ImageSource:
            batch: Any = self.unchanged(self.collate(examples, [indices[at] for at in group]), 0)
            return batch.pixels, batch.keep

        positions = self.positions(examples, indices)
        hypotheses = self.search(positions, load, replace(settings, n_best=1), progress=progress)
        return [self.target.decode(best.ids) for best, *_ in hypotheses]

    def positions(self, examples: TextExamples, indices: Sequence[int]) -> list[int]:
        """Return the number of positions of the image of each row; images of similar numbers are searched together."""
        return [1] * len(indices)

    def read_image(self, value: bytes | Tensor, options: Any) -> Tensor:
        """Return an input as pixels (3, H, W)."""
        pixels: Tensor = self.format.read(value)
        return pixels

    def encode(self, name: str, text: str) -> list[int]:
        """Return the ids of the text of an option."""
        return self.target.tokenizer.encode(text) if text else []

    def limit(self, prefix: Sequence[int]) -> int:
        """Return the maximum number of tokens that are generated after a prefix."""
        return self.max_length

    def predict(self, inputs: Sequence[Mapping[str, Any]], options: Any) -> Iterator[Prediction]:
        for first in range(0, len(inputs), CHUNK):
            yield from self._predict(inputs[first : first + CHUNK], options)

    def _predict(self, examples: Sequence[Mapping[str, Any]], options: Any) -> Iterator[Prediction]:
        """Yield the predictions for examples whose images fit into memory together."""
        tokenizer = self.target.tokenizer
        notes = unknown_note(tokenizer, options.target or options.prefix)
        images = [self.read_image(example["image"], options) for example in examples]
        if options.target:
            target = self.encode("target", options.target)
            for example, image in zip(examples, images, strict=True):
                yield replace(self._score_target(example, image, target, options.attention), notes=notes)
            return
        prefix = self.encode("prefix", options.prefix)
        widths = [image.shape[2] for image in images]
        hypotheses = self.search(widths, lambda group: self.stack([images[at] for at in group]), options, prefix=prefix)
        for example, image, group in zip(examples, images, hypotheses, strict=True):
            best, *others = [self._prediction(example, image, target, options.attention) for target in group]
            yield replace(best, alternatives=tuple(others), notes=notes)

    def stream(self, inputs: Mapping[str, Any], options: Any) -> Iterator[GeneratedToken]:
        image = self.read_image(inputs["image"], options)
        prefix = self.encode("prefix", options.prefix)
        with torch.no_grad():
            memory = self.model.encode(*self._source(image))
        labels = self.image_axis(image, memory.values.shape[1]).labels
        yield from stream_memory(
            self.model,
            memory,
            self.target,
            options,
            self.limit(prefix),
            labels,
            prefix=prefix,
            attention=options.attention,
        )

    def sample(self) -> str:
        examples = self.splits[Split.VALID]
        rows = list(dict.fromkeys((0, len(examples) // 2)))
        outputs = self.outputs(examples, rows, replace(self.config.search, beam=1, n_best=1))
        texts = examples.rows.texts[self.roles[0]]
        return "\n".join(f"{texts[row]} -> {output}" for row, output in zip(rows, outputs, strict=True))

    # Attention and explanations

    def attention_snapshot(self) -> list[Prediction]:
        examples = self.splits[Split.VALID]
        return [
            self._score_target({"image": image}, image, examples.tokens[row].tolist(), attention=True)
            for row in dict.fromkeys((0, len(examples) // 2))
            for image in [self.image(examples, row)]
        ]

    def analyse(self) -> dict[str, Any]:
        """Return the head that shows best where the model looks for each word of validation texts."""
        examples = self.splits[Split.VALID]
        rows = range(0, len(examples), max(1, len(examples) // ALIGNMENT_ROWS))
        maps = [self._attention(self.image(examples, row), examples.tokens[row].tolist()) for row in rows]
        sentences = [[strip_ends(attention) for attention in cross_attention(one)] for one in maps]
        return {"alignment": vars(choose_alignment_head(sentences))}

    def rerun(self, prediction: Prediction, *, layers: bool = False) -> ForwardTrace:
        image, target = prediction.trace
        with layer_outputs(self.model.decoder, layers) as states:
            logits = self.model(*self._source(image), self._ids(target))[0]  # (T, V)
            by_layer = tuple((f"decoder.{at}", self.model.head(x)[0]) for at, x in enumerate(states))
        rows, columns = self.model.encoder.grid(*image.shape[1:])
        return ForwardTrace(
            logits,
            (*target, self.target.end),
            self.target.output_axis(target),
            (self.image_axis(image, len(self.model.encoder.extra) + rows * columns), self.target.input_axis(target)),
            lambda token: self.target.tokenizer.pieces([token])[0],
            by_layer,
        )

    def _source(self, image: Tensor) -> ImageSource:
        """Return one image (3, H, W) as a batch on the device of the network."""
        pixels, keep = self.stack([image])
        return pixels.to(self.device()), keep.to(self.device())

    def _ids(self, target: Sequence[int]) -> Tensor:
        return torch.tensor([[self.target.start, *target]], device=self.device())

    @torch.no_grad()
    def _attention(self, image: Tensor, target: list[int]) -> AttentionMaps:
        """Return every attention map of one image with its text."""
        with record(self.model) as recorder:
            self.model(*self._source(image), self._ids(target))
        words, inputs = self.target.output_axis(target), self.target.input_axis(target)
        maps = []
        for name, recorded in recorder.items():
            queries, keys = (self.image_axis(image, count) for count in recorded.shape[2:])
            if not name.startswith("encoder."):
                queries, keys = (words, keys) if is_cross(name) else (inputs, inputs)
            maps.append(AttentionMap(name, RecordedRow(recorded, 0), queries, keys))
        return AttentionMaps(maps)

    def _prediction(
        self, example: Mapping[str, Any], image: Tensor, hypothesis: Hypothesis, attention: bool
    ) -> Prediction:
        scores = {"log_probability": hypothesis.log_probability, "score": hypothesis.score}
        output = TextOutput(self.target.decode(hypothesis.ids))
        return self._with_attention(example, output, scores, (image, list(hypothesis.ids)), attention)

    @torch.no_grad()
    def _score_target(
        self, example: Mapping[str, Any], image: Tensor, target: list[int], attention: bool
    ) -> Prediction:
        """Return the most likely token after each prefix of a given text, and the probability of the text."""
        log_probs = self.model(*self._source(image), self._ids(target)).log_softmax(-1)[0]  # (T, V)
        labels = torch.tensor([*target, self.target.end], device=log_probs.device)
        total = float(log_probs.gather(1, labels[:, None]).sum())
        best = [token for token in log_probs.argmax(-1).tolist() if token != self.target.end]
        scores = {"log_probability": total, "perplexity": math.exp(min(700.0, -total / len(labels)))}
        return self._with_attention(example, TextOutput(self.target.decode(best)), scores, (image, target), attention)

    def _with_attention(
        self,
        example: Mapping[str, Any],
        output: TextOutput,
        scores: Mapping[str, float],
        trace: tuple[Tensor, list[int]],
        attention: bool,
    ) -> Prediction:
        maps = self._attention(*trace) if attention else AttentionMaps()
        alignment = alignment_map(maps, self.analysis.get("alignment", {}))
        return Prediction(example, output, scores, maps, alignment=alignment, trace=trace)
