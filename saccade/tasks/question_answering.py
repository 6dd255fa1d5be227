"""Question answering: learn from questions about texts to find the words of a text that answer another."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.core.task import Axis, ForwardTrace, Prediction, Progress, Split, quiet
from saccade.data.batching import Buckets
from saccade.data.formats.squad import Question, Squad, read_squad
from saccade.data.settings import ValidationSplit
from saccade.data.splitting import SplitSettings
from saccade.data.text.tokenizers import Tokenizer
from saccade.data.windows import Window, cut_windows
from saccade.errors import UsageError
from saccade.metrics import qa
from saccade.models.text.bert import BertConfig, BertWithHead
from saccade.tasks._encoder.task import EncoderConfig, EncoderTask, Rows

QUICK = 300  # questions of a quick evaluation
LONGEST = 30  # tokens of an answer


@dataclass(frozen=True)
class QuestionSettings(ValidationSplit):
    """Where questions stand: JSON in the form of SQuAD 1.1 or 2.0."""


@dataclass(frozen=True)
class AnswerConfig(EncoderConfig):
    """All settings of question answering but those of the training loop."""

    data: QuestionSettings = field(default_factory=QuestionSettings)
    max_length: int = 256
    """most tokens of a row: the question and a stretch of its text"""
    tokens: int = 3000
    """positions of one step, with their padding"""
    stride: int = 64
    """tokens that neighbouring stretches of a long text share"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.stride < self.max_length // 2:
            raise ValueError(f"stride must be at least 0 and below half of max_length, but is {self.stride}")


@dataclass(frozen=True)
class AnswerOptions:
    """How a question is answered."""

    context: str = ""
    """the text to look in"""
    maps: bool = False
    """keep the attention of every layer and head, for the stretch with the answer"""


@dataclass(frozen=True)
class AnswerBatch:
    """Rows with the first and the last place (B, 2) of their answers, and which places (B, T) may hold one."""

    read: Rows
    places: Tensor
    allowed: Tensor
    names: tuple[str, ...]

    @property
    def count(self) -> int:
        return len(self.names)

    @property
    def rows(self) -> list[str]:
        return list(self.names)

    def to(self, device: Any) -> AnswerBatch:
        return AnswerBatch(self.read.to(device), self.places.to(device), self.allowed.to(device), self.names)


@dataclass(frozen=True)
class AnswerBatches:
    """Rows of like length together; which ones depends on (seed, step) alone."""

    questions: Sequence[Question]
    windows: Sequence[Window]
    buckets: Buckets
    parts: int

    @property
    def per_epoch(self) -> int:
        return self.buckets.per_epoch

    def at(self, step: int) -> list[AnswerBatch]:
        rows = self.buckets.rows(step)
        pieces = np.array_split(rows, min(self.parts, len(rows)))
        return [self._make([self.windows[row] for row in piece.tolist()]) for piece in pieces]

    def _make(self, chosen: list[Window]) -> AnswerBatch:
        read = Rows.of([(one.ids, one.second) for one in chosen])
        place = torch.arange(read.ids.shape[1])
        ends = torch.tensor([one.second + len(one.spans) for one in chosen])[:, None]
        starts = torch.tensor([one.second for one in chosen])[:, None]
        allowed = ((place >= starts) & (place < ends)) | (place == 0)
        names = tuple(f"question {self.questions[one.question].id}" for one in chosen)
        return AnswerBatch(read, torch.tensor([one.answer for one in chosen]), allowed, names)


@dataclass(frozen=True)
class SpanCandidate:
    """The best words of a text for a question, and how much better they are than no answer."""

    text: str
    margin: float
    window: int


class Task(EncoderTask):
    """An encoder that says of each token whether the answer begins or ends there; the begin mark says there is none."""

    Config: ClassVar[type[Any]] = AnswerConfig
    Options: ClassVar[type[Any]] = AnswerOptions
    presets: ClassVar[dict[str, Any]] = {}
    summary: ClassVar[str] = "learn from questions about texts to find the words of a text that answer another"
    score = "f1"

    def __init__(self, config: AnswerConfig, tokenizer: Tokenizer, shape: BertConfig) -> None:
        super().__init__(config, tokenizer, shape)
        self.model: BertWithHead = BertWithHead(shape, tokenizer.size, 2)
        self.parts: dict[Split, Squad] = {}

    @classmethod
    def prepare(cls, config: AnswerConfig, data: Path, assets: Path, advance: Progress = quiet) -> list[str]:
        found = read_squad(data)
        train = found if config.data.valid else found.split(SplitSettings(fraction=config.data.fraction))[0]
        contexts = dict.fromkeys(one.context for one in train.questions)
        return [*found.notes(), *cls.learn(config, contexts, assets)]

    @classmethod
    def open(cls, config: AnswerConfig, assets: Path) -> Task:
        opened = cls(config, *cls.read_assets(assets))
        opened.begin(assets)
        return opened

    def load_data(self, data: Path, advance: Progress = quiet, *, whole: bool = False) -> list[str]:
        found = read_squad(data)
        if whole:
            self.parts = {Split.VALID: found}
            return [f"questions: {len(found.questions):,}"]
        if self.config.data.valid:
            train, valid = found, read_squad(Path(self.config.data.valid))
        else:
            train, valid = found.split(SplitSettings(fraction=self.config.data.fraction))
        self.parts = {Split.TRAIN: train, Split.VALID: valid}
        content = "\n".join(f"{one.id} {one.question} {one.context} {one.answers}" for one in train.questions)
        self.fingerprint = hashlib.sha256(content.encode()).hexdigest()[:16]
        return [f"questions: {len(train.questions):,} to train on, {len(valid.questions):,} held back"]

    def batches(self, split: Split, seed: int) -> AnswerBatches:
        questions = self.parts[split].questions
        windows = self._windows(questions)
        lengths = np.array([len(one.ids) for one in windows], dtype=np.int64)
        buckets = Buckets(lengths, np.zeros_like(lengths), self.config.tokens, seed)
        return AnswerBatches(questions, windows, buckets, self.config.parts)

    def _windows(self, questions: Sequence[Question]) -> list[Window]:
        return cut_windows(questions, self.tokenizer, self.frame, self.config.stride)

    def losses(self, batch: AnswerBatch) -> Iterator[tuple[str, Tensor]]:
        rows = batch.read
        logits = self.model(self.model.bert(rows.ids, rows.keep, rows.segments))  # (B, T, 2)
        logits = logits.masked_fill(~batch.allowed[..., None], -1e4)
        yield "model", F.cross_entropy(logits, batch.places)  # over places, for the first and the last one

    def evaluate(self, split: Split, *, quick: bool = False, advance: Progress = quiet) -> dict[str, float]:
        part = self.parts[split]
        questions = part.questions[:: max(1, -(-len(part.questions) // QUICK)) if quick else 1]
        found = self._answer(questions, self._windows(questions), advance)
        said = {one.id: best.text if best.margin > 0 else "" for one, best in zip(questions, found, strict=True)}
        chance = {one.id: -best.margin for one, best in zip(questions, found, strict=True)}
        wanted = {one.id: [answer.text for answer in one.answers] for one in questions}
        scores = qa.score_answers(said, wanted)
        free = {one.id: best.text for one, best in zip(questions, found, strict=True)}
        best = qa.score_answers(free, wanted, no_answer=chance).best_f1
        self.explained = {"exact": scores.exact.signature, "f1": scores.f1.signature}
        result = {"exact": scores.exact.value, "f1": scores.f1.value}
        if best is not None:
            result["best_f1"] = best.value
        return {**result, "questions": len(questions)}

    @torch.no_grad()
    def _answer(
        self, questions: Sequence[Question], windows: Sequence[Window], advance: Progress = quiet
    ) -> list[SpanCandidate]:
        """The best answer to each question over all stretches of its text."""
        best = [SpanCandidate("", float("-inf"), -1)] * len(questions)
        none = [float("inf")] * len(questions)
        read = self.features([(one.ids, one.second) for one in windows])
        for done, (at, features) in enumerate(read, 1):
            window = windows[at]
            with self._settled():
                logits = self.model(features).float().cpu()  # (T, 2)
            number, stretch = window.question, slice(window.second, window.second + len(window.spans))
            none[number] = min(none[number], float(logits[0].sum()))
            score, first, last = _best_span(logits[stretch, 0], logits[stretch, 1])
            if score > best[number].margin:
                start, end = window.spans[first][0], window.spans[last][1]
                best[number] = SpanCandidate(questions[number].context[start:end].strip(), score, at)
            advance(done / len(windows))
        return [
            SpanCandidate(one.text, one.margin - nothing, one.window) for one, nothing in zip(best, none, strict=True)
        ]

    def attention_snapshot(self) -> list[Prediction]:
        (first, *_) = self._windows(self.parts[Split.VALID].questions[:1])
        return [self.snapshot_of(self.parts[Split.VALID].questions[0].question, (first.ids, first.second))]

    def predict(self, input: str, options: AnswerOptions) -> Prediction:
        """The words of the context that answer the question; nothing where none do."""
        if not options.context:
            raise UsageError("a question needs a text to look in, but none was given; add context=TEXT")
        question = Question("", "", options.context, input, (), 1)
        windows = self._windows([question])
        (found,) = self._answer([question], windows)
        maps: tuple[Any, ...] = ()
        if options.maps and found.window >= 0:
            maps = tuple(self.reads((windows[found.window].ids, windows[found.window].second)))
        sure = float(torch.sigmoid(torch.tensor(found.margin)))
        trace = windows[found.window] if found.window >= 0 else None
        return Prediction(input, found.text if found.margin > 0 else "", {"answerable": sure}, maps, trace=trace)

    def rerun(self, found: Prediction, *, layers: bool = False) -> ForwardTrace:
        window: Window | None = found.trace
        if window is None:
            raise UsageError("the text must have words to ask why, but has none")
        inside = [0, *range(window.second, window.second + len(window.spans))]

        def says(features: Tensor) -> Tensor:
            logits: Tensor = self.model(features[inside]).t()  # (first and last, places)
            return logits

        logits, words, by_layer = self.asked((window.ids, window.second), says, layers=layers)
        chosen = (0, 0)
        if found.output:
            _, first, last = _best_span(logits[0, 1:].detach(), logits[1, 1:].detach())
            chosen = (first + 1, last + 1)
        places = Axis("labels", ("first", "last"))
        names = ["no answer", *(words.labels[at] for at in inside[1:])]
        return ForwardTrace(logits, chosen, places, (words,), names.__getitem__, by_layer)


def _best_span(starts: Tensor, ends: Tensor) -> tuple[float, int, int]:
    """The first and last place with the highest sum of both scores, at most `LONGEST` places apart."""
    if not len(starts):
        return float("-inf"), 0, 0
    place = torch.arange(len(starts))
    apart = place[None] - place[:, None]
    total = (starts[:, None] + ends[None]).masked_fill((apart < 0) | (apart >= LONGEST), float("-inf"))
    best = int(total.argmax())
    return float(total.flatten()[best]), best // len(starts), best % len(starts)
