"""Summarisation: sequence to sequence on documents and their summaries; scored in ROUGE.

Every architecture of translation works; `model.architecture=decoder` is meant for long documents.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from saccade.core import Base, Field, Pretrained, Progress, Text, ignore_progress
from saccade.data import lengths
from saccade.data.formats.bitext import PairReader, PairSettings
from saccade.decode.search import Search
from saccade.metrics import generation
from saccade.tasks import translation
from saccade.tasks._pretrained import cannot_run
from saccade.tasks._seq2seq.settings import METRICS, TranslationConfig, TranslationOptions
from saccade.tasks._seq2seq.tokenizers import PairTokenizers

LENGTH_SAMPLE = 20_000  # pairs whose targets determine the maximum length of a summary


@dataclass(frozen=True)
class DocumentSettings(PairSettings):
    """Which columns or files hold documents and summaries, and how much of a document is read."""

    max_length: int = 1024
    """maximum number of tokens of a document; pairs with a longer summary are excluded"""
    truncate: bool = True
    """truncate longer documents; false: exclude them"""


@dataclass(frozen=True)
class SummarySearch(Search):
    """Settings of the beam search for a summary."""

    beam: int = 4
    """beam size; 1 is greedy search"""
    no_repeat_ngram_size: int = 3
    """no n-gram of this many tokens occurs twice; 0 allows repetition"""


@dataclass(frozen=True)
class SummaryConfig(TranslationConfig):
    """All settings of a summarisation model except those of the training loop."""

    data: DocumentSettings = field(default_factory=DocumentSettings)
    search: SummarySearch = field(default_factory=SummarySearch)
    max_summary: int = 0
    """maximum number of generated tokens; 0: 1.5 x the 90th percentile of the data"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_summary < 0:
            raise ValueError(f"max_summary must be 0 or more, but is {self.max_summary}")


@dataclass(frozen=True)
class SummaryOptions(SummarySearch, TranslationOptions):
    """Options of a prediction."""


class Task(translation.Task):
    """The models of translation, on documents and summaries."""

    Config: ClassVar[type[Any]] = SummaryConfig
    Options: ClassVar[type[Any]] = SummaryOptions
    summary: ClassVar[str] = "summarise, from documents and their summaries"
    inputs: tuple[Field, ...] = (Text("document", help="text to summarise"),)

    def __init__(self, config: Any, tokenizers: PairTokenizers, reader: PairReader, max_summary: int) -> None:
        super().__init__(config, tokenizers, reader)
        self.metric, self.max_summary = METRICS["rougeL"], config.max_summary or max_summary

    @classmethod
    def prepare(
        cls, config: Any, data: Path, assets: Path, *, base: Base = None, progress: Progress = ignore_progress
    ) -> list[str]:
        notes = super().prepare(config, data, assets, base=base, progress=progress)
        lengths.save_max_target_length(PairReader(config.data, assets).target_lengths(data)[:LENGTH_SAMPLE], assets)
        return notes

    @classmethod
    def open(cls, config: Any, assets: Path) -> Self:
        reader = PairReader(config.data, assets)
        return cls(config, cls._tokenizers(config, reader), reader, lengths.load_max_target_length(assets))

    @classmethod
    def from_pretrained(cls, pretrained: Pretrained) -> Self:
        raise cannot_run(pretrained, "summarisation")

    def load_data(self, data: Path, *, eval_only: bool = False, progress: Progress = ignore_progress) -> list[str]:
        notes = super().load_data(data, eval_only=eval_only, progress=progress)
        if eval_only or self.reader is None:
            return notes
        return [*notes, *lengths.length_table(self.reader.lengths)]

    def _max_target(self, source: int) -> int:
        return self.max_summary

    def _scores(self, outputs: list[str], references: list[str]) -> dict[str, generation.Score]:
        scores = generation.rouge(outputs, references)
        return {name: scores[name] for name in ("rouge1", "rouge2", "rougeL")}
