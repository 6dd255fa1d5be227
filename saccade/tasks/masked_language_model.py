"""Masked language model: learn from any text to guess hidden words, and whether one text follows another (BERT)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count as numbers
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.core.task import Axis, ForwardTrace, Prediction, Progress, Split, quiet
from saccade.data.batching import key
from saccade.data.masking import Example, Examples, Masker
from saccade.data.settings import TextSettings
from saccade.data.tables import files
from saccade.data.text.sentences import Sentences
from saccade.data.text.tokenizers import Tokenizer
from saccade.errors import DataError, UsageError
from saccade.models import presets
from saccade.models.text.bert import BertConfig, BertForPreTraining
from saccade.tasks._encoder.task import EncoderConfig, EncoderTask, Rows

QUICK, WHOLE = 256, 2000  # rows of a quick and of a full evaluation, at most
TOGETHER = 32  # rows evaluated at once


@dataclass(frozen=True)
class MaskedConfig(EncoderConfig):
    """All settings of a masked language model but those of the training loop."""

    data: TextSettings = field(default_factory=TextSettings)
    tokens: int = 4000
    """positions of one step, with their padding"""
    share: float = 0.15
    """share of the tokens that is hidden"""
    recipe: Literal["mixed", "plain"] = "mixed"
    """mixed: 8 of 10 hidden tokens become [MASK], one another token, one stays; plain: all become [MASK]"""
    words: bool = False
    """hide whole words, not pieces of them"""
    following: bool = True
    """learn too whether the second text of a row follows the first"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share < 1:
            raise ValueError(f"share must be above 0 and below 1, but is {self.share}")


@dataclass(frozen=True)
class FillOptions:
    """How hidden words are filled in."""

    best: int = 5
    """answers for each [MASK]"""
    second: str = ""
    """a second text: does it follow the first?"""
    maps: bool = False
    """keep the attention of every layer and head"""

    def __post_init__(self) -> None:
        if self.best < 1:
            raise ValueError(f"best must be at least 1, but is {self.best}")


@dataclass(frozen=True)
class MaskedBatch:
    """Rows with hidden tokens: `labels` (B, T) are the true ones, -1 elsewhere; `follows` (B,) 0 where it does."""

    read: Rows
    labels: Tensor
    follows: Tensor
    starts: tuple[int, ...]
    count: int
    share: float = 1.0
    """hidden tokens of a row in the whole step, by those of a row in this part of it: makes parts add up"""

    @property
    def rows(self) -> list[str]:
        return [f"sentence {start}" for start in self.starts]

    def to(self, device: Any) -> MaskedBatch:
        labels, follows = self.labels.to(device), self.follows.to(device)
        return replace(self, read=self.read.to(device), labels=labels, follows=follows)


@dataclass(frozen=True)
class MaskedBatches:
    """Rows of a split with tokens hidden anew each time; all depends on (seed, step) alone."""

    examples: Examples
    masker: Masker
    size: int
    parts: int
    seed: int

    @property
    def per_epoch(self) -> int:
        return max(1, self.examples.per_epoch // self.size)

    def at(self, step: int) -> list[MaskedBatch]:
        first = step * self.size
        found = [self.examples.at(position) for position in range(first, first + self.size)]
        pieces = np.array_split(np.arange(self.size), min(self.parts, self.size))
        made = [self.make([found[at] for at in piece], first + int(piece[0])) for piece in pieces]
        each = sum(part.count for part in made) / self.size
        return [replace(part, share=each * len(part.starts) / part.count) for part in made]

    def make(self, examples: list[Example], first: int) -> MaskedBatch:
        """Some examples as a batch; their hidden places depend on their position."""
        hidden = [self.masker.hide(one.ids, key(self.seed, 1, first + at)) for at, one in enumerate(examples)]
        rows = Rows.of([(shown, one.second) for (shown, _), one in zip(hidden, examples, strict=True)])
        labels = torch.full_like(rows.ids, -1)
        for at, (_, truth) in enumerate(hidden):
            labels[at, : len(truth)] = torch.tensor(truth)
        follows = torch.tensor([0 if one.follows else 1 for one in examples])
        return MaskedBatch(rows, labels, follows, tuple(one.start for one in examples), int((labels >= 0).sum()))


class Task(EncoderTask):
    """BERT on sentences of running text."""

    Config: ClassVar[type[Any]] = MaskedConfig
    Options: ClassVar[type[Any]] = FillOptions
    presets: ClassVar[dict[str, Any]] = {name: {"model": shape} for name, shape in presets.BERT.items()}
    summary: ClassVar[str] = "learn from any text to guess hidden words, and whether one text follows another"
    score = "loss"

    def __init__(self, config: MaskedConfig, tokenizer: Tokenizer, shape: BertConfig) -> None:
        super().__init__(config, tokenizer, shape)
        if self.frame.mask_id is None:
            raise UsageError("the tokenizer must have [MASK] or <mask>, but has neither; take another base")
        self.model: BertForPreTraining = BertForPreTraining(shape, tokenizer.size, following=config.following)
        inside = None
        if config.words:
            inside = np.array([goes_on(tokenizer, number) for number in range(tokenizer.size)], dtype=np.bool_)
        self.masker = Masker(
            self.frame.mask_id,
            tokenizer.size,
            config.share,
            config.recipe == "mixed",
            inside,
            frozenset(tokenizer.specials.values()),
        )
        self.sentences: dict[Split, Sentences] = {}

    @classmethod
    def prepare(cls, config: MaskedConfig, data: Path, assets: Path, advance: Progress = quiet) -> list[str]:
        found, valid = config.data.find(data)
        texts = (text for part, _, text in _texts(found, valid, config.data) if part is Split.TRAIN)
        return [*(file.describe() for file in found[:3]), *cls.learn(config, texts, assets)]

    @classmethod
    def open(cls, config: MaskedConfig, assets: Path) -> Task:
        opened = cls(config, *cls.read_assets(assets))
        opened.begin(assets)
        return opened

    def load_data(self, data: Path, advance: Progress = quiet, *, whole: bool = False) -> list[str]:
        found, valid = self.config.data.find(data)
        every = list(_texts(found, found if whole else valid, self.config.data))
        for split in (Split.TRAIN, Split.VALID):
            texts = [(number, text) for part, number, text in every if part is split]
            self.sentences[split] = Sentences.of(texts, self.tokenizer)
            if len(self.sentences[split]) < 2 and not (whole and split is Split.TRAIN):
                raise DataError(
                    f"{data}: the {split} part must have at least 2 sentences, but has {len(self.sentences[split])}; "
                    "give more text, or --valid FILE"
                )
        train, held = self.sentences[Split.TRAIN], self.sentences[Split.VALID]
        self.fingerprint = train.rows.fingerprint()
        return [f"sentences: {len(train):,} ({train.tokens:,} tokens) to train on, {len(held):,} held back"]

    def batches(self, split: Split, seed: int) -> MaskedBatches:
        examples = Examples(self.sentences[split], self.frame, seed, pairs=self.config.following)
        size = max(1, self.config.tokens // self.frame.max_length)
        return MaskedBatches(examples, self.masker, size, self.config.parts, seed)

    def losses(self, batch: MaskedBatch) -> Iterator[tuple[str, Tensor]]:
        logits, follows = self._answers(batch)
        loss = F.cross_entropy(logits, batch.labels[batch.labels >= 0])
        if follows is not None:
            loss = loss + batch.share * F.cross_entropy(follows, batch.follows)
        yield "model", loss

    def _answers(self, batch: MaskedBatch) -> tuple[Tensor, Tensor | None]:
        """Logits of the hidden tokens, and of whether the second text follows."""
        rows = batch.read
        features = self.model.bert(rows.ids, rows.keep, rows.segments)  # (B, T, D)
        assert self.model.words is not None
        logits = self.model.words(features[batch.labels >= 0])  # only hidden tokens go through the output layer
        if self.model.next is None:
            return logits, None
        return logits, self.model.follows(features, rows.ids, rows.keep, rows.segments)

    @torch.no_grad()
    def evaluate(self, split: Split, *, quick: bool = False, advance: Progress = quiet) -> dict[str, float]:
        """Scores on rows that are the same each time, beside what the most frequent token alone would reach."""
        batches = self.batches(split, 0)
        most = min(QUICK if quick else WHOLE, batches.examples.per_epoch)
        total, right, count, follows, frequent = 0.0, 0, 0, 0, 0
        usual = int(np.bincount(self.sentences[split].rows.ids).argmax())
        with self._settled():
            for first in range(0, most, TOGETHER):
                found = [batches.examples.at(place) for place in range(first, min(first + TOGETHER, most))]
                batch = batches.make(found, first).to(self._device())
                logits, answer = self._answers(batch)
                labels = batch.labels[batch.labels >= 0]
                total += F.cross_entropy(logits.float(), labels, reduction="sum").item()
                right += int((logits.argmax(-1) == labels).sum())
                frequent += int((labels == usual).sum())
                count += len(labels)
                follows += 0 if answer is None else int((answer.argmax(-1) == batch.follows).sum())
                advance(min(1.0, (first + TOGETHER) / most))
        loss = total / count
        scores = {"loss": loss, "perplexity": math.exp(min(loss, 700)), "accuracy": 100 * right / count}
        scores["most_frequent"] = 100 * frequent / count
        if self.config.following:
            scores["next_sentence"] = 100 * follows / most
        return {**scores, "hidden": count, "rows": most}

    def attention_snapshot(self) -> list[Prediction]:
        example = self.batches(Split.VALID, 0).examples.at(0)
        return [self.snapshot_of(self.tokenizer.decode(example.ids), (example.ids, example.second))]

    @torch.no_grad()
    def predict(self, input: str, options: FillOptions) -> Prediction:
        """The most likely words for each [MASK], and with a second text whether it follows."""
        assert self.model.words is not None
        framed = self.framed(input, options.second or None, parse_special=True)
        ids = framed[0]
        places = [place for place, token in enumerate(ids) if token == self.frame.mask_id]
        if not places and not options.second:
            name = self.tokenizer.token(self.masker.mask)
            raise UsageError(f"the text must hold {name} where a word is hidden, but has none; or give second=TEXT")
        if options.second and self.model.next is None:
            raise UsageError("second must be left out, but was given: this model has not learnt which texts follow")
        rows = Rows.of([framed]).to(self._device())
        with self._settled():
            features = self.model.bert(rows.ids, None, rows.segments)
            known = self.model.words(features[0, places])[:, : self.tokenizer.size]  # some models have empty rows
            chances = known.softmax(-1)
            follows = (
                self.model.follows(features, rows.ids, None, rows.segments).softmax(-1) if options.second else None
            )
        scores: dict[str, float] = {}
        filled = list(ids)
        for number, place in zip(numbers(1), places):
            best, token = chances[number - 1].topk(min(options.best, chances.shape[1]))
            filled[place] = int(token[0])
            for one, value in zip(token.tolist(), best.tolist(), strict=True):
                word = self.tokenizer.pieces([one])[0]
                scores[f"{number} {word}" if len(places) > 1 else word] = value
        if follows is not None:
            scores["follows"] = float(follows[0, 0])
        output = self.tokenizer.decode(filled)
        return Prediction(input, output, scores, tuple(self.reads(framed)) if options.maps else (), trace=framed)

    def rerun(self, found: Prediction, *, layers: bool = False) -> ForwardTrace:
        assert self.model.words is not None
        hidden, guess = [at for at, token in enumerate(found.trace[0]) if token == self.frame.mask_id], self.model.words
        if not hidden:
            raise UsageError(f"the text must hold {self.tokenizer.token(self.masker.mask)} to ask why, but has none")

        def says(features: Tensor) -> Tensor:
            logits: Tensor = guess(features[hidden])[:, : self.tokenizer.size]
            return logits

        logits, words, by_layer = self.asked(found.trace, says, layers=layers)
        chosen = tuple(logits.argmax(-1).tolist())
        places = Axis("words", tuple(self.tokenizer.pieces(chosen)))
        return ForwardTrace(logits, chosen, places, (words,), lambda one: self.tokenizer.pieces([one])[0], by_layer)


def goes_on(tokenizer: Tokenizer, number: int) -> bool:
    """Whether a token goes on with the word before it: ##ing, or among byte pairs letters without a space."""
    if tokenizer.kind == "wordpiece":
        return tokenizer.token(number).startswith("##")
    raw = tokenizer.raw([number])[0]
    return bool(raw) and (raw[0] >= 128 or chr(raw[0]).isalnum())


def _texts(
    found: list[files.DataFile], valid: list[files.DataFile] | None, settings: TextSettings
) -> Iterator[tuple[Split, int, str]]:
    """Every text with its part and the number of its document: a file of text, or a row of a table."""
    if valid is None:
        pieces = ((Split(part), document) for part, document in files.split(found, settings.split()))
    else:
        groups = ((Split.TRAIN, found), (Split.VALID, valid))
        pieces = (
            (part, document)
            for part, group in groups
            for file in group
            for document in files.documents(file, column=settings.column or None)
        )
    known: dict[Any, int] = {}
    text = {file.path for file in [*found, *(valid or ())] if file.format == "text"}
    for part, document in pieces:
        name = document.file if document.file in text else (document.file, document.line)
        yield part, known.setdefault(name, len(known)), document.text
