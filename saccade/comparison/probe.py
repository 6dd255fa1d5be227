"""Probe: copy or reverse up to 1,000 random symbols, to measure how much of a source an architecture can retain.

No symbol occurs twice in a sequence, so the next symbol is always the neighbour of the last one: attention can find
it at any length, while a single fixed vector of the source must store everything. Shapes: B rows, L symbols.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from saccade.core import Task as CoreTask
from saccade.core.callback import Progress, ignore_progress
from saccade.core.evaluation import Evaluation, Metric
from saccade.core.fields import Field
from saccade.core.prediction import Prediction
from saccade.core.pretrained import Base
from saccade.core.source import Batch, Source, Split
from saccade.data.batching import key
from saccade.errors import UsageError
from saccade.models.seq2seq.architectures import Seq2SeqConfig, build
from saccade.models.seq2seq.convolution import ConvolutionConfig
from saccade.models.seq2seq.interface import Seq2Seq, Seq2SeqLoss, Vocabularies
from saccade.models.seq2seq.recurrent import RecurrentConfig
from saccade.models.seq2seq.transformer import TranslatorConfig
from saccade.models.seq2seq.universal import UniversalConfig

LENGTHS = (10, 20, 50, 100, 200, 500, 1000)
QUICK = (10, 50, 100)  # lengths of a quick evaluation
TESTED = 2000  # symbols predicted at each length, in at least two rows
SPECIAL_TOKENS = 2  # ids before the symbols: start and end
SMALL = Seq2SeqConfig(
    transformer=TranslatorConfig(dim=64, hidden=128, dropout=0.0, embedding_dropout=0.0, depth=2, window=3),
    universal=UniversalConfig(
        dim=64, hidden=128, dropout=0.0, embedding_dropout=0.0, depth=3, decoder_depth=2, window=3
    ),
    rnn=RecurrentConfig(dim=32, hidden=96, score="dot", dropout=0.0),
    convolution=ConvolutionConfig(dim=96, depth=2, decoder_depth=2, dropout=0.0),
)


@dataclass(frozen=True)
class ProbeConfig:
    """Settings of the probe."""

    model: Seq2SeqConfig = field(default_factory=lambda: SMALL)
    kind: Literal["copy", "reverse"] = "copy"
    """target: the source, or the reversed source"""
    symbols: int = 1024
    """vocabulary of symbols; none occurs twice in a sequence"""
    min_length: int = 5
    """minimum number of symbols of a training sequence"""
    max_length: int = 1000
    """maximum number of symbols of a training sequence"""
    doubling: int = 40
    """number of steps in which the maximum length doubles, starting at twice the minimum"""
    batch_tokens: int = 0
    """source and target tokens per step; 0: 1,000, or 6,000 for an RNN, which benefits from larger batches"""

    def __post_init__(self) -> None:
        if self.symbols < max(LENGTHS):
            raise ValueError(f"symbols must be at least {max(LENGTHS)}, but is {self.symbols}")
        if not 1 <= self.min_length <= self.max_length <= self.symbols:
            raise ValueError(
                f"min_length and max_length must be between 1 and {self.symbols}, "
                f"but are {self.min_length} and {self.max_length}"
            )


@dataclass(frozen=True)
class SymbolBatch:
    """Sequences of one length; `labels` are the target ids shifted by one."""

    source: Tensor  # (B, L + 2)
    inputs: Tensor  # (B, L + 1)
    labels: Tensor  # (B, L + 1)

    @property
    def count(self) -> int:
        return self.labels.numel()

    @property
    def units(self) -> int:
        return self.source.numel() + self.labels.numel()

    @property
    def rows(self) -> list[str]:
        return [f"sequence {row}" for row in range(len(self.source))]

    def to(self, device: Any) -> SymbolBatch:
        return SymbolBatch(self.source.to(device), self.inputs.to(device), self.labels.to(device))


def draw(config: ProbeConfig, rows: int, length: int, seed: int) -> SymbolBatch:
    """Return random sequences without a repeated symbol, between a start and an end token."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.rand(rows, config.symbols, generator=generator).argsort(1)[:, :length] + SPECIAL_TOKENS
    ends = torch.tensor([0, 1]).expand(rows, 2)
    source = torch.cat((ends[:, :1], order, ends[:, 1:]), dim=1)
    target = source if config.kind == "copy" else source.flip(1)
    return SymbolBatch(source, target[:, :-1], target[:, 1:])


class RandomSequences(Source):
    """Infinite random sequences; the batch of a step depends on (seed, step) only."""

    def __init__(self, config: ProbeConfig, seed: int) -> None:
        self.config, self.seed = config, seed

    @property
    def per_epoch(self) -> int:
        return 1000

    def at(self, step: int) -> Sequence[Batch]:
        """Draw a length, uniform on a logarithmic scale, and sequences of that length."""
        config, step_key = self.config, key(self.seed, step)
        fraction = (step_key % 65536) / 65536
        max_length = min(config.max_length, round(2 * config.min_length * 2 ** (step / config.doubling)))
        length = round(config.min_length * (max_length / config.min_length) ** fraction)
        tokens = config.batch_tokens or (6000 if config.model.architecture.startswith("rnn") else 1000)
        return [draw(config, max(1, tokens // (2 * length + 3)), length, step_key % 2**32)]


def tie_embeddings(model: Seq2Seq) -> None:
    """Share one embedding among source, target and output layer: each symbol is learned once, not three times."""
    source, target = model.get_submodule("source"), model.get_submodule("target")
    assert isinstance(source, nn.Embedding) and isinstance(target, nn.Embedding)
    nn.init.normal_(target.weight, std=target.embedding_dim**-0.5)
    source.weight = model.head.weight = target.weight


class Task(CoreTask):
    """Copy or reverse, with any architecture."""

    Config: ClassVar[type[Any]] = ProbeConfig
    Options: ClassVar[type[Any]] = ProbeConfig
    summary: ClassVar[str] = "copy or reverse random symbols"
    inputs: tuple[Field, ...] = ()
    metric = Metric("accuracy", True, "%")

    def __init__(self, config: ProbeConfig) -> None:
        self.config = config
        size = config.symbols + SPECIAL_TOKENS
        self.model: Seq2Seq = build(config.model, Vocabularies(size, size))
        tie_embeddings(self.model)
        self.fingerprint = "generated"

    @classmethod
    def train_defaults(cls, config: Any) -> list[str]:
        """Return gradient clipping for recurrent networks, which backpropagate through 1,000 steps."""
        return ["train.optim.clip=1"] if config.model.architecture.startswith("rnn") else []

    @classmethod
    def prepare(
        cls, config: Any, data: Path, assets: Path, *, base: Base = None, progress: Progress = ignore_progress
    ) -> list[str]:
        return []

    @classmethod
    def open(cls, config: Any, assets: Path) -> Task:
        return cls(config)

    def load_data(self, data: Path, *, eval_only: bool = False, progress: Progress = ignore_progress) -> list[str]:
        return []

    def source(self, split: Split, seed: int) -> RandomSequences:
        return RandomSequences(self.config, seed)

    def networks(self) -> dict[str, nn.Module]:
        return {"model": self.model}

    def losses(self, batch: SymbolBatch, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        keep = torch.ones_like(batch.source, dtype=torch.bool)
        loss = Seq2SeqLoss(ponder=self.config.model.universal.ponder)
        yield "model", networks["model"](batch.source, keep, batch.inputs, batch.labels, loss)

    @torch.no_grad()
    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        """Return the accuracy under teacher forcing, in percent, at each length."""
        values, lengths = {}, QUICK if quick else LENGTHS
        for done, length in enumerate(lengths, start=1):
            values[f"accuracy_{length}"] = self._accuracy(length)
            progress(done / len(lengths))
        return Evaluation({"accuracy": sum(values.values()) / len(values), **values})

    def _accuracy(self, length: int) -> float:
        test = draw(self.config, max(2, TESTED // length), length, key(length, 7) % 2**32)
        batch = test.to(self.device())
        correct, rows = 0, max(1, TESTED // length)
        for first in range(0, len(batch.source), rows):
            source, inputs, labels = (x[first : first + rows] for x in (batch.source, batch.inputs, batch.labels))
            logits = self.model(source, torch.ones_like(source, dtype=torch.bool), inputs)
            correct += int((logits.argmax(-1) == labels).sum())
        return 100 * correct / batch.count

    def predict(self, inputs: Sequence[Mapping[str, Any]], options: Any) -> Iterator[Prediction]:
        raise UsageError("the probe is evaluated only: it has no inputs to predict from")
