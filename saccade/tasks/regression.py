"""Regression: a number for a text or a pair of texts, such as a rating or a similarity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from saccade.core.attention import AttentionMaps
from saccade.core.axes import Role, StepAxis
from saccade.core.callback import Progress, ignore_progress
from saccade.core.evaluation import Evaluation, Metric
from saccade.core.options import PredictOptions
from saccade.core.outputs import NumberOutput
from saccade.core.prediction import ForwardTrace, Prediction
from saccade.core.pretrained import Pretrained
from saccade.core.source import Split
from saccade.data.formats.labelled import Labelled
from saccade.metrics import classification
from saccade.models.text.bert import EncoderInputs
from saccade.models.text.heads import BertForRegression
from saccade.pretrained.families.heads import Head
from saccade.tasks._encoder.inputs import EncodedText, check_outputs
from saccade.tasks._encoder.labelled import LabelledConfig, LabelledTask
from saccade.tasks._encoder.task import pretrained_length


@dataclass(frozen=True)
class RegressionConfig(LabelledConfig):
    """All settings of a regression except those of the training loop."""


class Task(LabelledTask):
    """An encoder with one output, standardized by mean and standard deviation of the training numbers."""

    Config: ClassVar[type[Any]] = RegressionConfig
    summary: ClassVar[str] = "predict a number for a text or a pair of texts"
    needs: ClassVar[str] = "texts with numbers"
    metric = Metric("spearman", True, "%")
    numeric = True

    def __init__(self, config: Any, tokenizer: Any, shape: Any, label_info: Mapping[str, Any]) -> None:
        super().__init__(config, tokenizer, shape, label_info)
        self.model: BertForRegression = BertForRegression(shape, tokenizer.size, pooling=config.pool)
        self.mean, self.deviation = float(label_info["mean"]), float(label_info["deviation"])

    @classmethod
    def describe_labels(cls, train: Labelled, rows: Labelled) -> dict[str, Any]:
        numbers = np.array(train.numbers)
        scale = {"mean": float(numbers.mean()), "deviation": float(numbers.std()) or 1.0}
        return {**super().describe_labels(train, rows), **scale}

    def targets(self, rows: Labelled, indices: Sequence[int]) -> Tensor:
        return (torch.tensor([rows.numbers[row] for row in indices]) - self.mean) / self.deviation

    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        rows, indices = self.splits[split], self.evaluated_rows(split, quick)
        texts = self.encoded(split)[0]
        predicted = self.numbers([texts[row] for row in indices], progress)
        expected = [rows.numbers[row] for row in indices]
        scores = {
            "spearman": classification.spearman(predicted, expected),
            "pearson": classification.pearson(predicted, expected),
        }
        values = {name: score.value for name, score in scores.items()}
        values["rmse"] = float(np.sqrt(np.mean((np.array(predicted) - np.array(expected)) ** 2)))
        signatures = {name: score.signature for name, score in scores.items()}
        return Evaluation({**values, "rows": len(indices)}, signatures, complete=len(indices) == len(rows))

    def numbers(self, texts: Sequence[EncodedText], progress: Progress = ignore_progress) -> list[float]:
        """Return the predicted number of each encoded text, in order."""

        def compute(model: Any, inputs: EncoderInputs, _: list[int]) -> list[float]:
            numbers = check_outputs(model(inputs)).float() * self.deviation + self.mean
            return numbers.tolist()

        return self.run_all(texts, compute, progress)

    def predict_rows(self, inputs: Sequence[Mapping[str, Any]], options: PredictOptions) -> Iterable[Prediction]:
        texts = self.encode_inputs(inputs)
        for row, text, number in zip(inputs, texts, self.numbers(texts), strict=True):
            attention = self.attention(text) if options.attention else AttentionMaps()
            yield Prediction(row, NumberOutput(number), {"value": number}, attention, trace=text, notes=text.notes)

    def rerun(self, prediction: Prediction, *, layers: bool = False) -> ForwardTrace:
        def to_number(features: Tensor) -> Tensor:
            number = self.model.pooled_logits(features[None], None)  # (1, 1)
            return number * self.deviation + self.mean

        number, axis, by_layer = self.trace(prediction.trace, to_number, layers=layers)
        return ForwardTrace(number, (0,), StepAxis(Role.LABEL, ("value",)), (axis,), lambda _: "value", by_layer)

    # Exchange

    @classmethod
    def from_pretrained(cls, pretrained: Pretrained) -> Task:
        head = cls.pretrained_head(pretrained)
        config = RegressionConfig(max_length=pretrained_length(pretrained), pool=head.pooling)
        label_info = {"labels": [], "multi_label": False, "pairs": None, "mean": head.mean, "deviation": head.deviation}
        return cls.from_head(pretrained, config, label_info)

    def head(self) -> Head:
        return Head("regression", pooling=self.model.pooling, mean=self.mean, deviation=self.deviation)
