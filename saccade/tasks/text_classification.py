"""Text classification: one or several labels for a text or a pair of texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from saccade.core.attention import AttentionMaps
from saccade.core.axes import Role, StepAxis
from saccade.core.callback import Progress, ignore_progress
from saccade.core.evaluation import Evaluation, Metric
from saccade.core.options import PredictOptions
from saccade.core.outputs import LabelOutput
from saccade.core.prediction import ForwardTrace, Prediction
from saccade.core.pretrained import Pretrained
from saccade.core.source import Split
from saccade.data.formats.labelled import Labelled
from saccade.errors import UsageError
from saccade.metrics import classification
from saccade.models.text.heads import BertForClassification
from saccade.pretrained.families.heads import Head
from saccade.tasks._encoder.inputs import EncodedText, check_outputs
from saccade.tasks._encoder.labelled import LabelledConfig, LabelledTask
from saccade.tasks._encoder.task import pretrained_length
from saccade.tasks._labels import confusion_table

LISTED_LABELS = 10  # in a message


@dataclass(frozen=True)
class ClassificationConfig(LabelledConfig):
    """All settings of a classifier except those of the training loop."""

    class_weights: Literal["none", "balanced"] = "none"
    """weights of the labels in the loss; balanced: inversely proportional to their frequency"""
    threshold: float = 0.5
    """for texts with several labels: minimum probability of an assigned label"""
    positive_label: str = ""
    """of two labels the one whose F1 is reported; default: by name (1, yes, true, spam, ...), else the rarer one"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.threshold < 1:
            raise ValueError(f"threshold must be above 0 and below 1, but is {self.threshold}")


class Task(LabelledTask):
    """An encoder with one output for each label."""

    Config: ClassVar[type[Any]] = ClassificationConfig
    loss_unit: ClassVar[str] = "nats"
    summary: ClassVar[str] = "assign a label, or several, to a text or a pair of texts"
    needs: ClassVar[str] = "texts with labels"
    metric = Metric("accuracy", True, "%")

    def __init__(self, config: Any, tokenizer: Any, shape: Any, label_info: Mapping[str, Any]) -> None:
        super().__init__(config, tokenizer, shape, label_info)
        self.labels, self.multi_label = tuple(label_info["labels"]), bool(label_info["multi_label"])
        self.positive_label = self._positive_label(config.positive_label)
        weights: Sequence[float] = ()
        if config.class_weights == "balanced":
            counts = np.array([label_info["counts"][label] for label in self.labels], dtype=np.float32)
            weights = (counts.sum() / (len(counts) * counts.clip(1))).tolist()
        self.model: BertForClassification = BertForClassification(
            shape,
            tokenizer.size,
            len(self.labels),
            pooling=config.pool,
            multi_label=self.multi_label,
            class_weights=weights,
        )

    @classmethod
    def describe_labels(cls, train: Labelled, rows: Labelled) -> dict[str, Any]:
        counts = Counter(label for labels in train.labels for label in labels)
        return {
            **super().describe_labels(train, rows),
            "counts": {label: counts[label] for label in rows.label_set.names},
        }

    def targets(self, rows: Labelled, indices: Sequence[int]) -> Tensor:
        label_ids = {label: index for index, label in enumerate(self.labels)}
        if not self.multi_label:
            return torch.tensor([label_ids[rows.labels[row][0]] for row in indices])
        targets = torch.zeros(len(indices), len(self.labels))
        for index, row in enumerate(indices):
            targets[index, [label_ids[label] for label in rows.labels[row]]] = 1.0
        return targets

    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        rows, indices = self.splits[split], self.evaluated_rows(split, quick)
        texts = self.encoded(split)[0]
        logits = self.logits([texts[row] for row in indices], progress)
        predicted = [self.assigned(row) for row in self.probabilities(logits)]
        expected = [rows.labels[row] for row in indices]
        by_label = classification.score_labels(predicted, expected)
        scores = {
            "accuracy": classification.accuracy(list(map(frozenset, predicted)), list(map(frozenset, expected))),
            "f1": self._f1(by_label),
            "macro_f1": by_label.macro,
        }
        tables = []
        if not self.multi_label:
            single = [[labels[0] for labels in side] for side in (predicted, expected)]
            tables = [confusion_table(classification.confusion(single[0], single[1], self.labels))]
        values = {name: score.value for name, score in scores.items()}
        values |= {"loss": float(self.model.loss(logits, self.targets(rows, indices))), "rows": len(indices)}
        signatures = {name: score.signature for name, score in scores.items()}
        return Evaluation(values, signatures, tables, complete=len(indices) == len(rows))

    def _positive_label(self, given: str) -> str:
        """Return the label whose F1 is reported: given, by name, or the rarer in the training data; empty: no such."""
        if given and (len(self.labels) != 2 or given not in self.labels):
            listed = f"{', '.join(self.labels[:LISTED_LABELS])}{', ...' if len(self.labels) > LISTED_LABELS else ''}"
            raise UsageError(f"positive_label must be one of two labels, but is '{given}' and the labels are: {listed}")
        if len(self.labels) != 2 or self.multi_label:
            return ""
        rarer = min(self.labels, key=lambda label: int(self.label_info["counts"][label]))
        return given or classification.positive_label(self.labels) or rarer

    def _f1(self, by_label: classification.LabelScores) -> Any:
        """Return the F1 of the positive one of two labels, or the micro average of more labels."""
        return by_label.of(self.positive_label) if self.positive_label else by_label.micro

    def logits(self, texts: Sequence[EncodedText], progress: Progress = ignore_progress) -> Tensor:
        """Return the logits (N, labels) of encoded texts, in order."""
        rows = self.run_all(texts, lambda model, inputs, _: check_outputs(model(inputs)).float().cpu(), progress)
        return torch.stack(rows)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return the probability of each label."""
        return logits.sigmoid() if self.multi_label else logits.softmax(-1)

    def assigned(self, probabilities: Tensor) -> tuple[str, ...]:
        """Return the labels that a text with these probabilities is assigned."""
        if not self.multi_label:
            return (self.labels[int(probabilities.argmax())],)
        chosen = (probabilities >= self.config.threshold).tolist()
        return tuple(label for label, is_chosen in zip(self.labels, chosen, strict=True) if is_chosen)

    def predict_rows(self, inputs: Sequence[Mapping[str, Any]], options: PredictOptions) -> Iterable[Prediction]:
        texts = self.encode_inputs(inputs)
        for row, text, probabilities in zip(inputs, texts, self.probabilities(self.logits(texts)), strict=True):
            ranked = sorted(zip(self.labels, probabilities.tolist(), strict=True), key=lambda pair: -pair[1])
            attention = self.attention(text) if options.attention else AttentionMaps()
            output = LabelOutput(self.assigned(probabilities), dict(ranked))
            yield Prediction(row, output, dict(ranked), attention, trace=text, notes=text.notes)

    def rerun(self, prediction: Prediction, *, layers: bool = False) -> ForwardTrace:
        def to_logits(features: Tensor) -> Tensor:
            logits = self.model.pooled_logits(features[None], None)  # (1, labels)
            return torch.stack((torch.zeros_like(logits[0]), logits[0]), dim=-1) if self.multi_label else logits

        logits, axis, by_layer = self.trace(prediction.trace, to_logits, layers=layers)
        names = ("no", "yes") if self.multi_label else self.labels  # each of several labels is a binary decision
        positions = StepAxis(Role.LABEL, self.labels if self.multi_label else ("label",))
        return ForwardTrace(logits, tuple(logits.argmax(-1).tolist()), positions, (axis,), names.__getitem__, by_layer)

    # Exchange

    @classmethod
    def from_pretrained(cls, pretrained: Pretrained) -> Task:
        head = cls.pretrained_head(pretrained)
        config = ClassificationConfig(max_length=pretrained_length(pretrained), pool=head.pooling)
        counts = {label: int(number == 0) for number, label in enumerate(head.labels)}  # of two the second is rarer
        label_info = {"labels": head.labels, "multi_label": head.multi_label, "pairs": None, "counts": counts}
        return cls.from_head(pretrained, config, label_info)

    def head(self) -> Head:
        return Head("text_classification", self.labels, self.multi_label, self.model.pooling)
