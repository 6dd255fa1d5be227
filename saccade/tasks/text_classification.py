"""Text classification: learn from labelled texts, or pairs of texts, which label another has; or which labels."""

from __future__ import annotations

from collections import Counter
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

SHOWN = 12  # labels of a table of mistakes


@dataclass(frozen=True)
class ClassConfig(RowConfig):
    """All settings of a classifier but those of the training loop."""

    balanced: bool = False
    """rare labels count as much as frequent ones"""
    threshold: float = 0.5
    """where a text can have several labels: the probability from which a label is given"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.threshold < 1:
            raise ValueError(f"threshold must be above 0 and below 1, but is {self.threshold}")


@dataclass(frozen=True)
class ClassOptions:
    """How one text is classified."""

    second: str = ""
    """the second text of a pair"""
    maps: bool = False
    """keep the attention of every layer and head"""


class Task(RowTask):
    """An encoder with one output for each label."""

    Config: ClassVar[type[Any]] = ClassConfig
    Options: ClassVar[type[Any]] = ClassOptions
    presets: ClassVar[dict[str, Any]] = {}
    summary: ClassVar[str] = "learn from labelled texts, or pairs of texts, which label another has"
    score = "accuracy"

    def __init__(self, config: Any, tokenizer: Any, shape: Any, known: dict[str, Any]) -> None:
        super().__init__(config, tokenizer, shape, known)
        self.names, self.several = tuple(known["names"]), bool(known["several"])
        self.model: BertWithHead = BertWithHead(shape, tokenizer.size, len(self.names))
        counts = torch.tensor([float(known["counts"][name]) for name in self.names])
        self.weights = counts.sum() / (len(counts) * counts.clamp_min(1)) if config.balanced else None

    @classmethod
    def describe(cls, train: Labelled, rows: Labelled) -> dict[str, Any]:
        given = Counter(label for labels in train.labels for label in labels)
        return {**super().describe(train, rows), "counts": {name: given[name] for name in rows.names}}

    def answers(self, part: Labelled, rows: Sequence[int]) -> Tensor:
        place = {name: at for at, name in enumerate(self.names)}
        if not self.several:
            return torch.tensor([place[part.labels[row][0]] for row in rows])
        out = torch.zeros(len(rows), len(self.names))
        for at, row in enumerate(rows):
            out[at, [place[label] for label in part.labels[row]]] = 1.0
        return out

    def losses(self, batch: RowBatch) -> Iterator[tuple[str, Tensor]]:
        yield "model", self._loss(self.model(self.pooled(batch.read[0])), batch.answers)

    def _loss(self, logits: Tensor, answers: Tensor) -> Tensor:
        weights = None if self.weights is None else self.weights.to(logits.device)
        if self.several:
            return F.binary_cross_entropy_with_logits(logits, answers, pos_weight=weights)
        loss = F.cross_entropy(logits, answers, weight=weights, reduction="sum")
        return loss / len(answers)  # by rows, not by their weights: parts of a batch then add up to the whole

    @torch.no_grad()
    def evaluate(self, split: Split, *, quick: bool = False, advance: Progress = quiet) -> dict[str, float]:
        part, rows = self.parts[split], self.sampled(split, quick)
        logits = self._logits(part, rows, advance)
        found = [self._labels(chances) for chances in self._chances(logits)]
        wanted = [part.labels[row] for row in rows]
        labels = classification.score_labels(found, wanted)
        scores = {"accuracy": classification.accuracy([frozenset(x) for x in found], [frozenset(x) for x in wanted])}
        scores["f1"] = labels.micro if self.several else self._rare(labels)
        scores["macro_f1"] = labels.macro
        if not self.several:
            self.remarks = _table(self._confusion(found, wanted))
        self.explained = {name: score.signature for name, score in scores.items()}
        loss = float(self._loss(logits, self.answers(part, rows)))
        return {**{name: score.value for name, score in scores.items()}, "loss": loss, "rows": len(rows)}

    def _rare(self, labels: classification.LabelScores) -> Any:
        """F1 of the label that is the rarer of two in training, or of all labels together."""
        if len(self.names) != 2:
            return labels.micro
        return labels.of(min(self.names, key=lambda name: int(self.known["counts"][name])))

    def _logits(self, part: Labelled, rows: Sequence[int], advance: Progress) -> Tensor:
        vectors = self.vectors(self._framed(part, rows)[0], advance)
        with self._settled():
            logits: Tensor = self.model(vectors).float().cpu()
        return logits

    def _chances(self, logits: Tensor) -> Tensor:
        return logits.sigmoid() if self.several else logits.softmax(-1)

    def _labels(self, chances: Tensor) -> tuple[str, ...]:
        """The labels that are given, by their probabilities."""
        if not self.several:
            return (self.names[int(chances.argmax())],)
        given = (chances >= self.config.threshold).tolist()
        return tuple(name for name, one in zip(self.names, given, strict=True) if one)

    @torch.no_grad()
    def predict(self, input: str, options: ClassOptions) -> Prediction:
        framed = self.given(input, options.second)
        with self._settled():
            chances = self._chances(self.model(self.vectors([framed])))[0].cpu()
        ranked = sorted(zip(self.names, chances.tolist(), strict=True), key=lambda pair: -pair[1])
        maps = tuple(self.reads(framed)) if options.maps else ()
        return Prediction(input, "|".join(self._labels(chances)), dict(ranked), maps, trace=framed)

    def rerun(self, found: Prediction, *, layers: bool = False) -> ForwardTrace:
        def says(features: Tensor) -> Tensor:
            logits: Tensor = self.model(pool(features[None], None, self.config.pool))  # (1, labels)
            return torch.stack((torch.zeros_like(logits[0]), logits[0]), dim=-1) if self.several else logits

        logits, words, by_layer = self.asked(found.trace, says, layers=layers)
        names = ("no", "yes") if self.several else self.names  # each of several labels is a question of its own
        places = Axis("labels", self.names if self.several else ("label",))
        return ForwardTrace(logits, tuple(logits.argmax(-1).tolist()), places, (words,), names.__getitem__, by_layer)

    def analyse(self) -> dict[str, Any]:
        """How often each label was taken for which, on all validation rows."""
        if self.several:
            return {}
        part = self.parts[Split.VALID]
        rows = range(len(part))
        found = [self._labels(chances) for chances in self._chances(self._logits(part, rows, quiet))]
        table = self._confusion(found, part.labels)
        return {"confusion": {"labels": list(table.labels), "wanted_by_found": table.table.tolist()}}

    def _confusion(self, found: Sequence[Sequence[str]], wanted: Sequence[Sequence[str]]) -> classification.Confusion:
        return classification.confusion([one for (one,) in found], [one for (one,) in wanted], self.names)


def _table(confusion: classification.Confusion) -> list[str]:
    """How often each label was taken for which, as Markdown; of many labels only the most frequent mistakes."""
    names = [name.replace("|", "\\|") for name in confusion.labels]
    if len(names) <= SHOWN:
        rows = [
            [f"**{name}**", *map(str, counts)] for name, counts in zip(names, confusion.table.tolist(), strict=True)
        ]
        return _lines(["wanted, found as", *names], rows)
    wrong = confusion.table * (1 - np.eye(len(names), dtype=np.int64))
    places = [divmod(int(place), len(names)) for place in np.argsort(-wrong, axis=None, kind="stable")[:SHOWN]]
    mistakes = [[names[row], names[column], f"{wrong[row, column]:,}"] for row, column in places if wrong[row, column]]
    return _lines(["wanted", "found as", "times"], mistakes)


def _lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table of Markdown, in columns that line up."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    every = [head, ["-" * max(3, width) for width in widths], *rows]
    return [f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |" for row in every]
