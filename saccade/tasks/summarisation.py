"""Summarisation: learn from documents and their summaries to write the summary of another; scored in ROUGE.

Any architecture of translation can do it; `model.architecture=decoder` is made for long documents.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from saccade.core.task import Progress, quiet
from saccade.data import lengths
from saccade.data.formats.bitext import BitextSettings, Reader
from saccade.decode.search import Search
from saccade.metrics import generation
from saccade.tasks import translation

MEASURED = 20_000  # pairs that say how long a summary is


@dataclass(frozen=True)
class DocumentSettings(BitextSettings):
    """Where documents and summaries stand, and how much of a document is read."""

    max_length: int = 1024
    """tokens of a document that are read; pairs with a summary of more are left out"""
    cut: bool = True
    """longer documents are cut at their end; false: they are left out"""


@dataclass(frozen=True)
class SummarySearch(Search):
    """How a summary is searched for."""

    beam: int = 4
    """beginnings that are followed at once; 1: greedy"""
    no_repeat_ngram_size: int = 3
    """never write the same this many tokens twice; 0: allow it"""


@dataclass(frozen=True)
class SummaryConfig(translation.TranslationConfig):
    """All settings of a summariser but those of the training loop."""

    data: DocumentSettings = field(default_factory=DocumentSettings)
    search: SummarySearch = field(default_factory=SummarySearch)
    summary: int = 0
    """most tokens of a summary that is written; 0: half as many again as nine in ten of the data have"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.summary < 0:
            raise ValueError(f"summary must be 0 or more, but is {self.summary}")


@dataclass(frozen=True)
class SummaryOptions(SummarySearch, translation.TranslationOptions):
    """How one document is summarised."""


class Task(translation.Task):
    """Documents in, summaries out, by the models of translation."""

    Config: ClassVar[type[Any]] = SummaryConfig
    Options: ClassVar[type[Any]] = SummaryOptions
    summary: ClassVar[str] = "learn from documents and their summaries to write the summary of another"

    def __init__(self, config: Any, reader: Reader, room: int) -> None:
        super().__init__(config, reader)
        self.score, self.room = "rougeL", config.summary or room

    @classmethod
    def prepare(cls, config: Any, data: Path, assets: Path, advance: Progress = quiet) -> list[str]:
        notes = super().prepare(config, data, assets, advance)
        lengths.save_room(list(islice(Reader(config.data, assets).target_lengths(data), MEASURED)), assets)
        return notes

    @classmethod
    def open(cls, config: Any, assets: Path) -> Task:
        return cls(config, Reader(config.data, assets), lengths.load_room(assets))

    def load_data(self, data: Path, advance: Progress = quiet, *, whole: bool = False) -> list[str]:
        notes = super().load_data(data, advance, whole=whole)
        return [*notes, *([] if whole else lengths.table(self.reader.lengths))]

    def _longest(self, source: int) -> int:
        return self.room

    def _scores(self, outputs: list[str], references: list[str]) -> dict[str, generation.Score]:
        found = generation.rouge(outputs, references)
        return {name: found[name] for name in ("rouge1", "rouge2", "rougeL")}
