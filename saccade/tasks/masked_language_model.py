"""Masked language model: masked token and next sentence prediction (BERT pretraining)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.core.attention import AttentionMaps
from saccade.core.axes import Role, StepAxis
from saccade.core.callback import Progress, ignore_progress
from saccade.core.evaluation import Evaluation, Metric
from saccade.core.fields import Text
from saccade.core.outputs import TextOutput
from saccade.core.prediction import ForwardTrace, OutputLayer, Prediction
from saccade.core.pretrained import Base, Pretrained
from saccade.core.source import Source, Split
from saccade.core.task import even_sample
from saccade.data.batching import key
from saccade.data.fingerprints import fingerprint
from saccade.data.formats.corpus import read_corpus
from saccade.data.masking import Example, Examples, Masker, Masking
from saccade.data.sentence_rows import Sentences, build_sentences
from saccade.data.settings import TextSettings
from saccade.data.text.tokenizer_training import EmptyText
from saccade.data.text.tokenizers import Tokenizer
from saccade.errors import DataError, UsageError
from saccade.models import presets
from saccade.models.text.bert import BertConfig, BertForPreTraining, EncoderInputs, PreTrainingLogits
from saccade.tasks._encoder.inputs import EncodedText, EncoderBatch, check_outputs, count_tokens, pad_texts, to_device
from saccade.tasks._encoder.task import EncoderConfig, EncoderTask, pretrained_length
from saccade.tasks._parallel import parallel_map

QUICK_ROWS, MAX_ROWS = 256, 2000  # maximum number of rows of a quick and of a full evaluation
EVAL_BATCH_SIZE = 32
FOLLOWS = ("follows", "does not follow")  # the classes of next sentence prediction


@dataclass(frozen=True)
class MaskedLanguageModelConfig(EncoderConfig):
    """All settings of a masked language model except those of the training loop."""

    data: TextSettings = field(default_factory=TextSettings)
    batch_tokens: int = 4000
    """positions per step, padding included"""
    mask_probability: float = 0.15
    """probability that a token is masked"""
    masking: Masking = "80_10_10"
    """80_10_10: 80% of the masked tokens become [MASK], 10% a random token, 10% stay; mask_only: all become [MASK]"""
    whole_words: bool = False
    """mask all tokens of a word together"""
    next_sentence: bool = True
    """also train to predict whether the second text of a row follows the first"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.mask_probability < 1:
            raise ValueError(f"mask_probability must be above 0 and below 1, but is {self.mask_probability}")


@dataclass(frozen=True)
class MaskedLanguageModelOptions:
    """Options of a prediction."""

    n_best: int = 5
    """number of candidates for each [MASK]"""
    attention: bool = False
    """keep the attention of every layer and head"""

    def __post_init__(self) -> None:
        if self.n_best < 1:
            raise ValueError(f"n_best must be at least 1, but is {self.n_best}")


@dataclass(frozen=True)
class MaskedBatch(EncoderBatch):
    """Rows with masked tokens."""

    inputs: EncoderInputs
    labels: Tensor  # (B, T), the original token where one is masked, -1 elsewhere
    next_labels: Tensor  # (B,), 0 where the second text follows the first
    next_weight: Tensor
    """masked tokens per row of the step over those of this micro-batch, so that micro-batches add up to the step"""


@dataclass(frozen=True)
class MaskedBatches(Source):
    """Rows of a split with dynamic masking: each step masks other tokens."""

    examples: Examples
    masker: Masker
    batch_size: int
    micro_batches: int
    seed: int

    @property
    def per_epoch(self) -> int:
        return max(1, self.examples.per_epoch // self.batch_size)

    def at(self, step: int) -> list[MaskedBatch]:
        first, size = step * self.batch_size, self.batch_size
        examples = [self.examples.at(position) for position in range(first, first + size)]
        groups = np.array_split(np.arange(size), min(self.micro_batches, size))
        batches = [self.collate([examples[row] for row in rows], first + int(rows[0])) for rows in groups]
        per_row = sum(batch.count for batch in batches) / size
        return [replace(batch, next_weight=torch.tensor(per_row * len(batch.rows) / batch.count)) for batch in batches]

    def collate(self, examples: Sequence[Example], first: int) -> MaskedBatch:
        """Mask examples from position `first` of the stream; the masked tokens depend on the position."""
        masked = [self.masker.mask(example.ids, key(self.seed, 1, first + row)) for row, example in enumerate(examples)]
        inputs = pad_texts([EncodedText(ids, row.second) for (ids, _), row in zip(masked, examples, strict=True)])
        labels = torch.full_like(inputs.ids, -1)
        for row, (_, original) in enumerate(masked):
            labels[row, : len(original)] = torch.tensor(original)
        return MaskedBatch(
            rows=[f"sentence {example.start}" for example in examples],
            count=int((labels >= 0).sum()),
            units=count_tokens(inputs),
            inputs=inputs,
            labels=labels,
            next_labels=torch.tensor([0 if example.follows else 1 for example in examples]),
            next_weight=torch.tensor(1.0),
        )


@dataclass(frozen=True)
class _Sums:
    """Sums over the masked tokens and rows of a batch."""

    loss: float
    correct: int
    most_frequent: int
    tokens: int
    next_sentence: int


class Task(EncoderTask):
    """BERT on sentences of running text."""

    Config: ClassVar[type[Any]] = MaskedLanguageModelConfig
    Options: ClassVar[type[Any]] = MaskedLanguageModelOptions
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        name: {"model": shape} for name, shape in presets.BERT.items()
    }
    loss_unit: ClassVar[str] = "nats"
    summary: ClassVar[str] = "predict masked tokens of any text, and whether one text follows another (BERT)"
    needs: ClassVar[str] = "plain text"
    inputs = (
        Text("text", help="a text with [MASK] where a token is to be filled in"),
        Text("second", optional=True, help="a second text: does it follow the first?"),
    )
    metric = Metric("loss", False, "nats")

    def __init__(self, config: MaskedLanguageModelConfig, tokenizer: Tokenizer, shape: BertConfig) -> None:
        super().__init__(config, tokenizer, shape)
        if self.template.mask_id is None:
            raise UsageError("the tokenizer must have [MASK] or <mask>, but has neither; take another base")
        self.model: BertForPreTraining = BertForPreTraining(shape, tokenizer.size, next_sentence=config.next_sentence)
        inside_word = None
        if config.whole_words:
            inside_word = np.array(
                [continues_word(tokenizer, token) for token in range(tokenizer.size)], dtype=np.bool_
            )
        self.masker = Masker(
            self.template.mask_id,
            tokenizer.size,
            config.mask_probability,
            config.masking,
            inside_word,
            frozenset(tokenizer.specials.values()),
        )
        self.splits: dict[Split, Sentences] = {}

    # Data

    @classmethod
    def prepare(
        cls, config: Any, data: Path, assets: Path, *, base: Base = None, progress: Progress = ignore_progress
    ) -> list[str]:
        files, valid = config.data.find(data)
        corpus = read_corpus(files, valid, config.data.split(), progress=progress)
        try:
            notes = cls.write_encoder(config, corpus.texts("train"), assets, base)
        except EmptyText as error:
            raise DataError(f"{data}: {error}") from error
        return [*(file.describe() for file in files[:3]), *config.data.notes(data), *notes]

    def load_data(self, data: Path, *, eval_only: bool = False, progress: Progress = ignore_progress) -> list[str]:
        files, valid = self.config.data.find(data)
        corpus = read_corpus([] if eval_only else files, files if eval_only else valid, self.config.data.split())
        sentences = build_sentences(corpus, self.tokenizer, progress=progress)
        splits = [Split.VALID] if eval_only else [Split.TRAIN, Split.VALID]
        self.splits = {split: sentences[split.value] for split in splits}
        for split, rows in self.splits.items():
            if len(rows.cut(self.template.max_length)[0]) < 2:  # one that is longer than a row counts as several
                raise DataError(
                    f"{data}: the {split} split must have at least 2 sentences, but has {len(rows)}; "
                    "give more text, or data.valid=FILE"
                )
        self.fingerprint = fingerprint(self.splits.values())
        valid_rows = self.splits[Split.VALID]
        if eval_only:
            return [f"sentences: {len(valid_rows):,} ({valid_rows.tokens:,} tokens)"]
        train = self.splits[Split.TRAIN]
        return [f"sentences: {len(train):,} ({train.tokens:,} tokens) for training, {len(valid_rows):,} for validation"]

    def source(self, split: Split, seed: int) -> MaskedBatches:
        examples = Examples(self.splits[split], self.template, seed, pairs=self.config.next_sentence)
        batch_size = max(1, self.config.batch_tokens // self.template.max_length)
        return MaskedBatches(examples, self.masker, batch_size, self.config.micro_batches, seed)

    # Training and inference

    def losses(self, batch: MaskedBatch, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        yield "model", networks["model"](batch.inputs, batch.labels, batch.next_labels, batch.next_weight)

    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        """Evaluate on a fixed set of rows, compared with always predicting the most frequent token."""
        source, device = self.source(split, 0), self.device()
        count = min(QUICK_ROWS if quick else MAX_ROWS, source.examples.per_epoch)
        most_frequent = int(np.bincount(self.splits[split].rows.ids).argmax())

        @torch.no_grad()
        def evaluate_from(first: int) -> _Sums:
            last = min(first + EVAL_BATCH_SIZE, count)
            batch = source.collate([source.examples.at(position) for position in range(first, last)], first).to(device)
            logits: PreTrainingLogits = self.model(batch.inputs, selected=batch.labels >= 0)
            labels = batch.labels[batch.labels >= 0]
            next_correct = 0
            if logits.next_sentence is not None:
                next_correct = int((logits.next_sentence.argmax(-1) == batch.next_labels).sum())
            return _Sums(
                loss=F.cross_entropy(logits.tokens.float(), labels, reduction="sum").item(),
                correct=int((logits.tokens.argmax(-1) == labels).sum()),
                most_frequent=int((labels == most_frequent).sum()),
                tokens=len(labels),
                next_sentence=next_correct,
            )

        firsts = range(0, count, EVAL_BATCH_SIZE)
        sums = []
        for batch_sums in parallel_map(evaluate_from, firsts) if device.type == "cpu" else map(evaluate_from, firsts):
            sums.append(batch_sums)
            progress(len(sums) / len(firsts))
        tokens = sum(batch.tokens for batch in sums)
        loss = sum(batch.loss for batch in sums) / tokens
        values = {"loss": loss, "perplexity": math.exp(min(loss, 700))}
        values["accuracy"] = 100 * sum(batch.correct for batch in sums) / tokens
        values["most_frequent"] = 100 * sum(batch.most_frequent for batch in sums) / tokens
        if self.config.next_sentence:
            values["next_sentence"] = 100 * sum(batch.next_sentence for batch in sums) / count
        complete = count == min(MAX_ROWS, source.examples.per_epoch)
        return Evaluation({**values, "masked_tokens": tokens, "rows": count}, complete=complete)

    def validation_inputs(self, limit: int) -> list[dict[str, Any]]:
        """Return sentences of the validation text, the word in the middle of each masked."""
        rows, mask = self.splits[Split.VALID].rows, self.tokenizer.token(self.masker.mask_id)
        inputs = []
        for row in even_sample(len(rows), limit):
            words = self.tokenizer.decode(rows.ids[rows.starts[row] : rows.ends[row]].tolist()).split()
            inputs.append({"text": " ".join([*words[: len(words) // 2], mask, *words[len(words) // 2 + 1 :]])})
        return inputs

    def attention_snapshot(self) -> list[Prediction]:
        example = self.source(Split.VALID, 0).examples.at(0)
        return [self.snapshot({"text": self.tokenizer.decode(example.ids)}, EncodedText(example.ids, example.second))]

    def predict_rows(
        self, inputs: Sequence[Mapping[str, Any]], options: MaskedLanguageModelOptions
    ) -> Iterable[Prediction]:
        """Return the most likely tokens for each [MASK], and the probability that a second text follows the first."""
        texts = [self.encode(example["text"], example.get("second") or None, parse_special=True) for example in inputs]
        for example, text in zip(inputs, texts, strict=True):
            self._check_input(text, bool(example.get("second")))

        def compute(model: Any, batch: EncoderInputs, rows: list[int]) -> Iterator[tuple[Tensor, float]]:
            selected = batch.ids.eq(self.masker.mask_id)
            if batch.keep is not None:
                selected &= batch.keep
            logits: PreTrainingLogits = model(batch, selected=selected)
            tokens = check_outputs(logits.tokens[:, : self.tokenizer.size])  # some models have unused rows
            probabilities = tokens.softmax(-1).cpu()
            by_row = probabilities.split(selected.sum(1).tolist())
            follows = [math.nan] * len(rows)
            if logits.next_sentence is not None:
                follows = logits.next_sentence.softmax(-1)[:, 0].tolist()  # nan without a second text
            yield from zip(by_row, follows, strict=True)

        for example, text, (masked, follows) in zip(inputs, texts, self.run_all(texts, compute), strict=True):
            filled, scores = self._fill(text.ids, masked, options.n_best)
            if example.get("second"):
                scores["follows"] = float(check_outputs(torch.tensor(follows)))
            attention = self.attention(text) if options.attention else AttentionMaps()
            output = TextOutput(self.tokenizer.decode(filled))
            yield Prediction(example, output, scores, attention, trace=text, notes=text.notes)

    def count_tokens(self, text: str) -> int:
        return len(self.tokenizer.encode(text, parse_special=True))

    def _check_input(self, text: EncodedText, has_second: bool) -> None:
        if has_second and self.model.next_sentence is None:
            raise UsageError("second must be left out, but was given: this model does not predict next sentences")
        if not has_second and self.template.mask_id not in text.ids:
            name = self.tokenizer.token(self.masker.mask_id)
            raise UsageError(f"text must hold {name} where a token is to be filled in, but has none; or give second")

    def _fill(self, ids: Sequence[int], probabilities: Tensor, n_best: int) -> tuple[list[int], dict[str, float]]:
        """Return the ids with the most likely token at each mask, and the probabilities of the candidates."""
        positions = [position for position, token in enumerate(ids) if token == self.template.mask_id]
        filled, scores = list(ids), dict[str, float]()
        for number, (position, row) in enumerate(zip(positions, probabilities, strict=True), 1):
            values, tokens = row.topk(min(n_best, len(row)))
            filled[position] = int(tokens[0])
            for token, value in zip(self.tokenizer.pieces(tokens.tolist()), values.tolist(), strict=True):
                scores[f"{number} {token}" if len(positions) > 1 else token] = value
        return filled, scores

    def rerun(self, prediction: Prediction, *, layers: bool = False) -> ForwardTrace:
        """Recompute the tokens of the masks; of two texts without a mask, whether the second follows the first."""
        text, head = prediction.trace, self.model.mlm
        assert head is not None
        positions = [position for position, token in enumerate(text.ids) if token == self.template.mask_id]
        if not positions and self.model.next_sentence is not None and text.second < len(text.ids):
            return self._follows(text, layers=layers)
        if not positions:
            name = self.tokenizer.token(self.masker.mask_id)
            raise UsageError(f"text must hold {name} to be explained, but has none; put it in place of a word")

        def to_logits(features: Tensor) -> Tensor:
            logits: Tensor = head(features)[:, : self.tokenizer.size]
            return logits

        logits, axis, by_layer = self.trace(text, lambda x: to_logits(x[positions]), layers=layers)
        chosen = tuple(logits.argmax(-1).tolist())
        answers = StepAxis(Role.LABEL, tuple(self.tokenizer.pieces(chosen)))
        output, pieces = OutputLayer("bert.encoder", to_logits), self.tokenizer.pieces
        return ForwardTrace(logits, chosen, answers, (axis,), lambda token: pieces([token])[0], by_layer, output)

    def _follows(self, text: EncodedText, *, layers: bool) -> ForwardTrace:
        """Recompute whether the second text follows the first."""
        inputs = to_device(pad_texts([text]), self.device())

        def to_logits(features: Tensor) -> Tensor:
            return self.model.next_sentence_logits(features[None], inputs)

        logits, axis, by_layer = self.trace(text, to_logits, layers=layers)
        chosen = int(logits.argmax(-1))
        answers = StepAxis(Role.LABEL, ("second text",))
        return ForwardTrace(logits, (chosen,), answers, (axis,), lambda label: FOLLOWS[label], by_layer)

    @classmethod
    def from_pretrained(cls, pretrained: Pretrained) -> Task:
        network = cls.check_pretrained(pretrained, mlm=True)
        config = MaskedLanguageModelConfig(
            max_length=pretrained_length(pretrained), next_sentence=network.next_sentence is not None
        )
        with torch.device("meta"):  # the network exists already
            task = cls(config, pretrained.processor.tokenizer, pretrained.config)
        task.model = network
        task.family = pretrained.family
        return task


def continues_word(tokenizer: Tokenizer, token: int) -> bool:
    """Whether a token continues the previous word: ##ing, or with byte-level BPE letters without a space."""
    if tokenizer.kind == "wordpiece":
        return tokenizer.pieces([token])[0].startswith("##")
    raw = tokenizer.raw([token])[0]
    return bool(raw) and (raw[0] >= 128 or chr(raw[0]).isalnum())
