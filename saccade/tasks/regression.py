"""Regression: learn from texts, or pairs of texts, with numbers which number another has, such as how alike two are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.core.task import Axis, ForwardTrace, Prediction, Progress, Split, quiet
from saccade.data.formats.labelled import Labelled
from saccade.metrics import classification
from saccade.models.text.bert import BertWithHead, pool
from saccade.tasks._encoder.rows import RowBatch, RowConfig, RowTask


@dataclass(frozen=True)
class NumberConfig(RowConfig):
    """All settings of a regression but those of the training loop."""


@dataclass(frozen=True)
class NumberOptions:
    """How the number of one text or pair is found."""

    second: str = ""
    """the second text of a pair"""
    maps: bool = False
    """keep the attention of every layer and head"""


class Task(RowTask):
    """An encoder with one output, in units of the deviation of the training numbers."""

    Config: ClassVar[type[Any]] = NumberConfig
    Options: ClassVar[type[Any]] = NumberOptions
    presets: ClassVar[dict[str, Any]] = {}
    summary: ClassVar[str] = "learn from texts, or pairs of texts, with numbers which number another has"
    score = "spearman"
    numbers = True

    def __init__(self, config: Any, tokenizer: Any, shape: Any, known: dict[str, Any]) -> None:
        super().__init__(config, tokenizer, shape, known)
        self.model: BertWithHead = BertWithHead(shape, tokenizer.size, 1)
        self.mean, self.deviation = float(known["mean"]), float(known["deviation"])

    @classmethod
    def describe(cls, train: Labelled, rows: Labelled) -> dict[str, Any]:
        numbers = np.array(train.numbers)
        spread = {"mean": float(numbers.mean()), "deviation": float(numbers.std()) or 1.0}
        return {**super().describe(train, rows), **spread}

    def answers(self, part: Labelled, rows: Sequence[int]) -> Tensor:
        return (torch.tensor([part.numbers[row] for row in rows]) - self.mean) / self.deviation

    def losses(self, batch: RowBatch) -> Iterator[tuple[str, Tensor]]:
        yield "model", F.mse_loss(self.model(self.pooled(batch.read[0]))[:, 0], batch.answers)

    @torch.no_grad()
    def evaluate(self, split: Split, *, quick: bool = False, advance: Progress = quiet) -> dict[str, float]:
        part, rows = self.parts[split], self.sampled(split, quick)
        found = self._numbers(self._framed(part, rows)[0], advance)
        wanted = [part.numbers[row] for row in rows]
        scores = {"spearman": classification.spearman(found, wanted), "pearson": classification.pearson(found, wanted)}
        self.explained = {name: score.signature for name, score in scores.items()}
        error = float(np.sqrt(np.mean((np.array(found) - np.array(wanted)) ** 2)))
        return {**{name: score.value for name, score in scores.items()}, "error": error, "rows": len(rows)}

    def _numbers(self, framed: Sequence[tuple[list[int], int]], advance: Progress = quiet) -> list[float]:
        vectors = self.vectors(framed, advance)
        with self._settled():
            found: list[float] = (self.model(vectors)[:, 0].float() * self.deviation + self.mean).tolist()
        return found

    @torch.no_grad()
    def predict(self, input: str, options: NumberOptions) -> Prediction:
        framed = self.given(input, options.second)
        (found,) = self._numbers([framed])
        maps = tuple(self.reads(framed)) if options.maps else ()
        return Prediction(input, f"{found:.4g}", {"number": found}, maps, trace=framed)

    def rerun(self, found: Prediction, *, layers: bool = False) -> ForwardTrace:
        def says(features: Tensor) -> Tensor:
            number: Tensor = self.model(pool(features[None], None, self.config.pool))  # (1, 1)
            return number * self.deviation + self.mean

        logits, words, by_layer = self.asked(found.trace, says, layers=layers)
        return ForwardTrace(logits, (0,), Axis("labels", ("number",)), (words,), lambda _: "number", by_layer)
