"""Sentence vectors: learn from pairs of texts to put like texts near each other; any text becomes one vector."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.core.task import Axis, ForwardTrace, Prediction, Progress, Split, quiet
from saccade.data.formats.labelled import Labelled
from saccade.data.formats.pairs import PairFiles, Skipped, find_pairs, read_pairs
from saccade.data.tables.columns import is_number
from saccade.data.tables.problems import Strays
from saccade.errors import DataError, UsageError
from saccade.metrics import classification
from saccade.models.text.bert import SentenceEncoder, pool
from saccade.tasks._encoder.rows import LabelledSettings, RowBatch, RowConfig, RowTask


@dataclass(frozen=True)
class VectorConfig(RowConfig):
    """All settings of sentence vectors but those of the training loop."""

    scale: float = 20.0
    """what cosines are multiplied by where a text must be told from the others of its batch"""
    contrast: float = 0.0
    """rows with a number from here on (0 to 1, by the range of the data) also learn to find each other; 0: none do"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale <= 0:
            raise ValueError(f"scale must be above 0, but is {self.scale}")
        if not 0 <= self.contrast <= 1:
            raise ValueError(f"contrast must be from 0 to 1, but is {self.contrast}")
        if self.contrast and self.parts > 1:
            raise ValueError(f"parts must be 1 with contrast, which compares all texts of a step, but is {self.parts}")


@dataclass(frozen=True)
class VectorOptions:
    """How a text becomes a vector."""

    second: str = ""
    """another text: how alike are the two?"""
    maps: bool = False
    """keep the attention of every layer and head"""


class Task(RowTask):
    """An encoder whose pooled vectors are compared by their cosine."""

    Config: ClassVar[type[Any]] = VectorConfig
    Options: ClassVar[type[Any]] = VectorOptions
    presets: ClassVar[dict[str, Any]] = {}
    summary: ClassVar[str] = "learn from pairs of texts, with numbers or without, to put like texts near each other"
    score = "spearman"
    numbers = True
    apart = True

    def __init__(self, config: Any, tokenizer: Any, shape: Any, known: dict[str, Any]) -> None:
        super().__init__(config, tokenizer, shape, known)
        self.model: SentenceEncoder = SentenceEncoder(shape, tokenizer.size)
        self.measured = "least" in known  # by numbers; otherwise each text of a pair is to find the other
        self.least, self.range = float(known.get("least", 0)), float(known.get("range", 1))
        if not self.measured:
            self.score = "found"
            if config.parts > 1:
                rule = "parts must be 1 where pairs have no numbers: all texts of a step are compared"
                raise UsageError(f"{rule}, but is {config.parts}; lower tokens to save memory")

    @classmethod
    def describe(cls, train: Labelled, rows: Labelled) -> dict[str, Any]:
        if not rows.seconds:
            raise DataError(f"{rows.files[0]}: one text in a row, expected two; name the second with --second COLUMN")
        known = super().describe(train, rows)
        if not train.numbers:
            return known
        least, most = min(train.numbers), max(train.numbers)
        return {**known, "least": least, "range": (most - least) or 1.0}

    @classmethod
    def read(cls, settings: LabelledSettings, path: Path, like: Labelled | None = None) -> tuple[Labelled, list[str]]:
        """Pairs with their numbers; pairs alone, where there is no column of numbers."""
        found, skipped = None if settings.label else cls._pairs_alone(settings, path), Skipped()
        pairs = list(read_pairs(found, skipped=skipped)) if found is not None else []
        if found is None or all(is_number(pair.target) for pair in pairs):
            return super().read(settings, path, like)
        rows = Labelled(
            texts=tuple(pair.source for pair in pairs),
            seconds=tuple(pair.target for pair in pairs),
            labels=((),) * len(pairs),
            numbers=(),
            names=(),
            several=False,
            files=tuple(pair.file for pair in pairs),
            lines=tuple(pair.line for pair in pairs),
            strays=Strays(),
        )
        return rows, [*found.notes(), *skipped.notes(), "no numbers: each text is to find its partner"]

    @classmethod
    def _pairs_alone(cls, settings: LabelledSettings, path: Path) -> PairFiles | None:
        """Two columns or two files of lines; of more columns those that are named, if no other holds numbers."""
        try:
            found = find_pairs(path, source=settings.column, target=settings.second, encoding=settings.encoding or None)
        except DataError:  # then it is a table with numbers, or reading it as one says what is wrong
            return None
        if not found.aside:
            return found
        try:
            cls.find(settings, path)
        except DataError:
            return found if settings.column and settings.second else None
        return None

    def answers(self, part: Labelled, rows: Sequence[int]) -> Tensor:
        if not self.measured:
            return torch.ones(len(rows))
        return (torch.tensor([part.numbers[row] for row in rows]) - self.least) / self.range

    def losses(self, batch: RowBatch) -> Iterator[tuple[str, Tensor]]:
        one, other = (F.normalize(self.pooled(rows), dim=-1) for rows in batch.read)
        if not self.measured:
            alike, partner = self.config.scale * one @ other.t(), torch.arange(len(one), device=one.device)  # (B, B)
            yield "model", (F.cross_entropy(alike, partner) + F.cross_entropy(alike.t(), partner)) / 2
            return
        loss = F.mse_loss((one * other).sum(-1), batch.answers)
        near = batch.answers >= self.config.contrast
        if self.config.contrast and bool(near.any()):
            alike = self.config.scale * one[near] @ other.t()  # (N, B)
            loss = loss + F.cross_entropy(alike, near.nonzero()[:, 0])
        yield "model", loss

    @torch.no_grad()
    def evaluate(self, split: Split, *, quick: bool = False, advance: Progress = quiet) -> dict[str, float]:
        part, rows = self.parts[split], self.sampled(split, quick)
        one, other = (self.vectors(side, advance) for side in self._framed(part, rows))
        if not self.measured:
            return self._partners(one, other, [part.seconds[row] for row in rows])
        found = torch.cosine_similarity(one, other, dim=-1).tolist()
        wanted = [part.numbers[row] for row in rows]
        scores = {"spearman": classification.spearman(found, wanted), "pearson": classification.pearson(found, wanted)}
        self.explained = {name: score.signature for name, score in scores.items()}
        return {**{name: score.value for name, score in scores.items()}, "rows": len(rows)}

    def _partners(self, one: Tensor, other: Tensor, texts: Sequence[str]) -> dict[str, float]:
        """How often the text nearest to the first of a pair is the second one, among those of all pairs."""
        sides = F.normalize(other, dim=-1).t()
        nearest = [int(row) for rows in F.normalize(one, dim=-1).split(1000) for row in (rows @ sides).argmax(-1)]
        score = classification.accuracy([texts[row] for row in nearest], texts)  # a copy of the partner will do
        self.explained = {"found": score.signature}
        return {"found": score.value, "rows": len(texts)}

    @torch.no_grad()
    def predict(self, input: str, options: VectorOptions) -> Prediction:
        """The vector as JSON; with a second text the cosine of the two."""
        framed = [self.framed(text) for text in (input, *([options.second] if options.second else []))]
        vectors = self.vectors(framed)
        maps = tuple(self.reads(framed[0])) if options.maps else ()
        if options.second:
            alike = float(torch.cosine_similarity(vectors[0], vectors[1], dim=-1))
            return Prediction(input, f"{alike:.4f}", {"cosine": alike}, maps, trace=framed)
        return Prediction(input, json.dumps([round(value, 6) for value in vectors[0].tolist()]), {}, maps)

    def rerun(self, found: Prediction, *, layers: bool = False) -> ForwardTrace:
        if found.trace is None:
            raise UsageError("a vector has no reasons, but the likeness of two texts has; give second=TEXT")

        def says(features: Tensor) -> Tensor:
            return pool(features[None], None, self.config.pool)

        one, other = (self.asked(framed, says, layers=layers) for framed in found.trace)
        alike = torch.cosine_similarity(one[0], other[0])[:, None]  # (1, 1)
        steps = zip(one[2], other[2], strict=True)
        by_layer = tuple((name, torch.cosine_similarity(x, y)[:, None]) for (name, x), (_, y) in steps)
        places = Axis("labels", ("cosine",))
        return ForwardTrace(alike, (0,), places, (one[1], other[1]), lambda _: "cosine", by_layer)

    @classmethod
    def of(cls, config: VectorConfig, tokenizer: Any, shape: Any) -> Task:
        """A task for a given encoder that needs no data of its own."""
        return cls(config, tokenizer, shape, {"names": [], "several": False, "pairs": True, "least": 0.0, "range": 1.0})
