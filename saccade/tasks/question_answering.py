"""Question answering: the span of a context that answers a question, or no answer (SQuAD)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from saccade.core.attention import AttentionMaps
from saccade.core.axes import Role, StepAxis
from saccade.core.callback import Progress, ignore_progress
from saccade.core.evaluation import Evaluation, Metric
from saccade.core.fields import Text
from saccade.core.outputs import SpanOutput
from saccade.core.prediction import ForwardTrace, Prediction
from saccade.core.pretrained import Base, Pretrained
from saccade.core.source import Split
from saccade.core.task import InputLength, even_sample
from saccade.data.batching import BucketedBatches
from saccade.data.fingerprints import fingerprint
from saccade.data.formats.squad import Question, Questions, Squad, read_squad
from saccade.data.settings import ValidationSplit
from saccade.data.splitting import SplitSettings
from saccade.data.tables.encodings import check_encoding
from saccade.data.text.tokenizers import Tokenizer
from saccade.data.windows import Window, cut_windows, question_room
from saccade.errors import UsageError
from saccade.metrics import qa
from saccade.models.text.bert import BertConfig, EncoderInputs
from saccade.models.text.heads import BertForQuestionAnswering
from saccade.pretrained.families.heads import Head
from saccade.tasks._encoder.inputs import (
    EncodedText,
    EncoderBatch,
    Lengths,
    check_outputs,
    count_tokens,
    pad_texts,
    shorten,
)
from saccade.tasks._encoder.task import EncoderConfig, EncoderTask, pretrained_length
from saccade.tasks._texts import require_tokens

QUICK_QUESTIONS = 300  # number of questions of a quick evaluation
MAX_ANSWER_TOKENS = 30
PRETRAINED_LENGTH, PRETRAINED_STRIDE = 384, 128  # of a pretrained network, as in the pipeline of transformers


@dataclass(frozen=True)
class QuestionSettings(ValidationSplit):
    """Questions as JSON in the format of SQuAD 1.1 or 2.0."""

    encoding: str = ""
    """encoding of the files, if not UTF-8"""

    def read(self, path: Path, progress: Progress = ignore_progress) -> Squad:
        """Return the questions of a file."""
        return read_squad(path, encoding=check_encoding(self.encoding or "utf-8"), progress=progress)


@dataclass(frozen=True)
class QuestionAnsweringConfig(EncoderConfig):
    """All settings of question answering except those of the training loop."""

    data: QuestionSettings = field(default_factory=QuestionSettings)
    max_length: int = 256
    """maximum number of tokens of a row: the question and a window of its context"""
    batch_tokens: int = 3000
    """positions per step, padding included"""
    stride: int = 64
    """tokens by which neighbouring windows of a long context overlap"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.stride < self.max_length // 2:
            raise ValueError(f"stride must be at least 0 and below half of max_length, but is {self.stride}")


@dataclass(frozen=True)
class QuestionAnsweringOptions:
    """Options of a prediction."""

    attention: bool = False
    """keep the attention of every layer and head, for the window with the answer"""


@dataclass(frozen=True)
class AnswerBatch(EncoderBatch):
    """Windows with their answers."""

    inputs: EncoderInputs
    targets: Tensor  # (B, 2), first and last position of the answer
    allowed: Tensor  # (B, T), positions that can be in an answer


@dataclass(frozen=True)
class SpanCandidate:
    """The best span of a context for a question, and its margin over no answer."""

    start: int
    end: int
    margin: float
    window: int
    """index of the window that contains it; -1: the context has no tokens"""

    @property
    def probability(self) -> float:
        """Probability that the context has an answer."""
        return float(torch.sigmoid(torch.tensor(self.margin)))


class Task(EncoderTask):
    """An encoder that scores each token as first and as last token of the answer; [CLS] means no answer."""

    Config: ClassVar[type[Any]] = QuestionAnsweringConfig
    Options: ClassVar[type[Any]] = QuestionAnsweringOptions
    loss_unit: ClassVar[str] = "nats"
    summary: ClassVar[str] = "find the span of a context that answers a question"
    needs: ClassVar[str] = "a SQuAD file"
    inputs = (Text("question"), Text("context"))
    metric = Metric("f1", True, "%")

    def __init__(self, config: QuestionAnsweringConfig, tokenizer: Tokenizer, shape: BertConfig) -> None:
        super().__init__(config, tokenizer, shape)
        self.model: BertForQuestionAnswering = BertForQuestionAnswering(shape, tokenizer.size)
        self.splits: dict[Split, Squad] = {}

    # Data

    @classmethod
    def prepare(
        cls, config: Any, data: Path, assets: Path, *, base: Base = None, progress: Progress = ignore_progress
    ) -> list[str]:
        squad = config.data.read(data, progress)
        train = squad if config.data.valid else squad.split(SplitSettings(fraction=config.data.valid_fraction))[0]
        contexts = dict.fromkeys(question.context for question in train.questions)
        return [*squad.notes(), *cls.write_encoder(config, contexts, assets, base)]

    def load_data(self, data: Path, *, eval_only: bool = False, progress: Progress = ignore_progress) -> list[str]:
        settings, squad = self.config.data, self.config.data.read(data, progress)
        if eval_only:
            self.splits = {Split.VALID: squad}
        elif settings.valid:
            self.splits = {Split.TRAIN: squad, Split.VALID: settings.read(Path(settings.valid))}
        else:
            train, valid = squad.split(SplitSettings(fraction=settings.valid_fraction))
            self.splits = {Split.TRAIN: train, Split.VALID: valid}
        self.fingerprint = fingerprint(self.splits.values())
        counts = [len(split.questions) for split in self.splits.values()]
        if eval_only:
            return [f"questions: {counts[0]:,}"]
        return [f"questions: {counts[0]:,} for training, {counts[1]:,} for validation"]

    def source(self, split: Split, seed: int) -> BucketedBatches:
        questions = self.splits[split].questions
        windows = self.windows(questions)

        def collate(rows: list[int]) -> AnswerBatch:
            chosen = [windows[row] for row in rows]
            inputs = pad_texts([encoded_window(window) for window in chosen])
            position = torch.arange(inputs.ids.shape[1])
            starts = torch.tensor([window.second for window in chosen])[:, None]
            ends = torch.tensor([window.second + len(window.spans) for window in chosen])[:, None]
            allowed = ((position >= starts) & (position < ends)) | (position == 0)
            return AnswerBatch(
                rows=[f"question {questions[window.question].id}" for window in chosen],
                count=len(chosen),
                units=count_tokens(inputs),
                inputs=inputs,
                targets=torch.tensor([window.answer for window in chosen]),
                allowed=allowed,
            )

        config, lengths = self.config, np.array([len(window.ids) for window in windows], dtype=np.int64)
        return BucketedBatches(
            Lengths(lengths), collate, budget=config.batch_tokens, seed=seed, micro_batches=config.micro_batches
        )

    def windows(self, questions: Questions) -> list[Window]:
        """Return the windows of all questions."""
        return cut_windows(questions, self.tokenizer, self.template, self.config.stride)

    # Training and inference

    def losses(self, batch: AnswerBatch, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        yield "model", networks["model"](batch.inputs, batch.targets, batch.allowed)

    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        questions = self.splits[split].questions
        questions = questions[:: max(1, -(-len(questions) // QUICK_QUESTIONS)) if quick else 1]
        spans = self.best_spans(questions, self.windows(questions), progress)
        pairs = list(zip(questions, spans, strict=True))
        texts = {question.id: question.context[span.start : span.end] for question, span in pairs}
        answers = {question.id: texts[question.id] if span.margin > 0 else "" for question, span in pairs}
        expected = {question.id: [answer.text for answer in question.answers] for question in questions}
        scores = qa.score_answers(answers, expected)
        no_answer = {question.id: -span.margin for question, span in pairs}
        best = qa.score_answers(texts, expected, no_answer=no_answer).best_f1
        values = {"exact": scores.exact.value, "f1": scores.f1.value}
        if best is not None:
            values["best_f1"] = best.value
        signatures = {"exact": scores.exact.signature, "f1": scores.f1.signature}
        complete = len(questions) == len(self.splits[split].questions)
        return Evaluation({**values, "questions": len(questions)}, signatures, complete=complete)

    def best_spans(
        self, questions: Sequence[Question], windows: Sequence[Window], progress: Progress = ignore_progress
    ) -> list[SpanCandidate]:
        """Return the best span for each question over all windows of its context."""

        def compute(
            model: Any, inputs: EncoderInputs, rows: list[int]
        ) -> Iterator[tuple[float, tuple[float, int, int]]]:
            for row, logits in zip(rows, check_outputs(model(inputs)).float().cpu(), strict=True):  # (T, 2)
                window = windows[row]
                context = logits[window.second : window.second + len(window.spans)]
                yield float(logits[0].sum()), best_span(context[:, 0], context[:, 1])

        best = [SpanCandidate(0, 0, float("-inf"), -1)] * len(questions)
        no_answer = [float("inf")] * len(questions)
        results = self.run_all([encoded_window(window) for window in windows], compute, progress)
        for row, (window, (null_score, (score, first, last))) in enumerate(zip(windows, results, strict=True)):
            index = window.question
            no_answer[index] = min(no_answer[index], null_score)
            if score > best[index].margin:
                start, end = window.spans[first][0], window.spans[last][1]
                text = questions[index].context[start:end]
                start += len(text) - len(text.lstrip())
                best[index] = SpanCandidate(start, start + len(text.strip()), score, row)
        return [
            SpanCandidate(span.start, span.end, span.margin - null_score, span.window)
            for span, null_score in zip(best, no_answer, strict=True)
        ]

    def validation_inputs(self, limit: int) -> list[dict[str, Any]]:
        questions = self.splits[Split.VALID].questions
        chosen = (questions[row] for row in even_sample(len(questions), limit))
        return [{"question": entry.question, "context": entry.context} for entry in chosen]

    def attention_snapshot(self) -> list[Prediction]:
        question = self.splits[Split.VALID].questions[0]
        window = self.windows(Questions.of([question]))[0]
        inputs = {"question": question.question, "context": question.context}
        return [self.snapshot(inputs, encoded_window(window))]

    def predict_rows(
        self, inputs: Sequence[Mapping[str, Any]], options: QuestionAnsweringOptions
    ) -> Iterable[Prediction]:
        """Return the span of each context that answers the question; an empty one if there is no answer."""
        questions = Questions.of(Question("", "", example["context"], example["question"], (), 1) for example in inputs)
        windows = self.windows(questions)
        for row in windows:
            example, end = inputs[row.question], row.second - len(self.template.separators)
            require_tokens("question", example["question"], row.ids[1:end])
            require_tokens("context", example["context"], row.ids[row.second : -1])
        lengths = {window.question: window.question_tokens for window in windows}
        for number, (example, span) in enumerate(zip(inputs, self.best_spans(questions, windows), strict=True)):
            window = windows[span.window] if span.window >= 0 else None
            attention = AttentionMaps()
            if options.attention and window is not None:
                attention = self.attention(encoded_window(window))
            start, end = (span.start, span.end) if span.margin > 0 else (0, 0)
            context, probability = example["context"], span.probability
            output = SpanOutput(context[start:end], start, end, probability, context)
            scores, notes = {"answerable": probability}, self._notes(example["question"], lengths[number])
            yield Prediction(example, output, scores, attention, trace=window, notes=notes)

    def _notes(self, question: str, tokens: int) -> tuple[str, ...]:
        """Return a note on a truncated question; a long context is read in windows instead."""
        room = question_room(self.template)
        return (f"cut to {room} of {tokens} tokens: question {shorten(question)!r}",) if tokens > room else ()

    def input_lengths(self, inputs: Mapping[str, Any], options: QuestionAnsweringOptions) -> list[InputLength]:
        """Return the lengths of question and context; a context of any length is read in windows."""
        question, context = (self.count_tokens(inputs[name]) for name in ("question", "context"))
        return [InputLength("question", question, question_room(self.template)), InputLength("context", context)]

    def rerun(self, prediction: Prediction, *, layers: bool = False) -> ForwardTrace:
        window: Window | None = prediction.trace
        if window is None:
            raise UsageError("context must have tokens to be explained, but has none")
        allowed = [0, *range(window.second, window.second + len(window.spans))]

        def to_logits(features: Tensor) -> Tensor:
            return self.model.logits(features[allowed]).t()  # (first and last, positions)

        logits, axis, by_layer = self.trace(encoded_window(window), to_logits, layers=layers)
        chosen = (0, 0)
        if prediction.text:
            _, first, last = best_span(logits[0, 1:].detach(), logits[1, 1:].detach())
            chosen = (first + 1, last + 1)
        positions = StepAxis(Role.LABEL, ("first", "last"))
        names = ["no answer", *(axis.labels[position] for position in allowed[1:])]
        return ForwardTrace(logits, chosen, positions, (axis,), names.__getitem__, by_layer)

    # Exchange

    @classmethod
    def from_pretrained(cls, pretrained: Pretrained) -> Task:
        cls.pretrained_head(pretrained)
        max_length = min(PRETRAINED_LENGTH, pretrained_length(pretrained))
        config = QuestionAnsweringConfig(max_length=max_length, stride=min(PRETRAINED_STRIDE, max_length // 4))
        return cls.from_head(pretrained, config)

    def head(self) -> Head:
        return Head("question_answering")


def encoded_window(window: Window) -> EncodedText:
    """Return a window as the encoder reads it."""
    return EncodedText(window.ids, window.second)


def best_span(starts: Tensor, ends: Tensor) -> tuple[float, int, int]:
    """Return the score, first and last position of the best span of at most `MAX_ANSWER_TOKENS` positions."""
    if not len(starts):
        return float("-inf"), 0, 0
    position = torch.arange(len(starts), device=starts.device)
    distance = position[None] - position[:, None]
    total = (starts[:, None] + ends[None]).masked_fill((distance < 0) | (distance >= MAX_ANSWER_TOKENS), float("-inf"))
    best = int(total.argmax())
    return float(total.flatten()[best]), best // len(starts), best % len(starts)
