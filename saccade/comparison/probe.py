"""Probe: how far an architecture carries what it has read: copying and reversing random symbols, up to 1,000 of them.

No symbol stands twice in a row, so what comes next is always next to what was written last: a model that can look
finds it at any length, one that must keep the whole source in a single vector cannot. Shapes: B rows, L symbols.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.core.task import Prediction, Progress, Split, quiet
from saccade.core.task import Task as Contract
from saccade.data.batching import key
from saccade.models.seq2seq.architectures import Seq2SeqConfig, build
from saccade.models.seq2seq.convolution import ConvolutionConfig
from saccade.models.seq2seq.interface import Seq2Seq, Vocabularies
from saccade.models.seq2seq.recurrent import RecurrentConfig
from saccade.models.seq2seq.transformer import TranslatorConfig
from saccade.models.seq2seq.universal import UniversalConfig

LENGTHS = (10, 20, 50, 100, 200, 500, 1000)
QUICK = (10, 50, 100)  # lengths of a quick evaluation
TESTED = 2000  # symbols asked for at each length, at least two rows
MARKS = 2  # ids before the symbols: the two ends of a sequence
SMALL = Seq2SeqConfig(
    transformer=TranslatorConfig(dim=64, hidden=128, dropout=0.0, embedding_dropout=0.0, depth=2, window=3),
    universal=UniversalConfig(
        dim=64, hidden=128, dropout=0.0, embedding_dropout=0.0, depth=3, decoder_depth=2, window=3
    ),
    rnn=RecurrentConfig(dim=32, state=96, score="dot", dropout=0.0),
    convolution=ConvolutionConfig(dim=96, depth=2, decoder_depth=2, dropout=0.0),
)


@dataclass(frozen=True)
class ProbeConfig:
    """What is asked of which architecture."""

    model: Seq2SeqConfig = field(default_factory=lambda: SMALL)
    kind: Literal["copy", "reverse"] = "copy"
    """what is to be written: the source, or the source from its end"""
    symbols: int = 1024
    """different symbols; none stands twice in a sequence"""
    shortest: int = 5
    """fewest symbols of a sequence to learn from"""
    max_length: int = 1000
    """most symbols of a sequence to learn from"""
    doubling: int = 40
    """steps in which the longest sequences become twice as long, from twice the shortest on"""
    tokens: int = 0
    """positions of one step, source and target; 0: 1,000, or 6,000 where a step must wait for every token anyway"""

    def __post_init__(self) -> None:
        if self.symbols < max(LENGTHS):
            raise ValueError(f"symbols must be at least {max(LENGTHS)}, but is {self.symbols}")
        if not 1 <= self.shortest <= self.max_length <= self.symbols:
            raise ValueError(
                f"shortest and max_length must be between 1 and {self.symbols}, "
                f"but are {self.shortest} and {self.max_length}"
            )


@dataclass(frozen=True)
class Symbols:
    """Sequences of one length; `labels` are what is to be written after each of the inputs."""

    source: Tensor  # (B, L + 2)
    inputs: Tensor  # (B, L + 1)
    labels: Tensor  # (B, L + 1)

    @property
    def count(self) -> int:
        return self.labels.numel()

    @property
    def rows(self) -> list[str]:
        return [f"sequence {row}" for row in range(len(self.source))]

    def to(self, device: Any) -> Symbols:
        return Symbols(self.source.to(device), self.inputs.to(device), self.labels.to(device))


def draw(config: ProbeConfig, rows: int, length: int, seed: int) -> Symbols:
    """Random sequences without a repeated symbol, between two marks."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.rand(rows, config.symbols, generator=generator).argsort(1)[:, :length] + MARKS
    ends = torch.tensor([0, 1]).expand(rows, 2)
    source = torch.cat((ends[:, :1], order, ends[:, 1:]), dim=1)
    target = source if config.kind == "copy" else source.flip(1)
    return Symbols(source, target[:, :-1], target[:, 1:])


@dataclass(frozen=True)
class Draws:
    """Endless sequences; those of a step depend on (seed, step) alone."""

    config: ProbeConfig
    seed: int
    per_epoch: int = 1000

    def at(self, step: int) -> Sequence[Symbols]:
        """Lengths that are short more often than long: their logarithm is drawn evenly."""
        config, stir = self.config, key(self.seed, step)
        share = (stir % 65536) / 65536
        max_length = min(config.max_length, round(2 * config.shortest * 2 ** (step / config.doubling)))
        length = round(config.shortest * (max_length / config.shortest) ** share)
        tokens = config.tokens or (6000 if config.model.architecture.startswith("rnn") else 1000)
        return [draw(config, max(1, tokens // (2 * length + 3)), length, stir % 2**32)]


def share_table(model: Seq2Seq) -> None:
    """One table of symbols to read, to write and to answer: what a symbol is must be learnt once, not three times."""
    source, target = model.get_submodule("source"), model.get_submodule("target")
    assert isinstance(source, nn.Embedding) and isinstance(target, nn.Embedding)
    nn.init.normal_(target.weight, std=target.embedding_dim**-0.5)
    source.weight = model.head.weight = target.weight


class Task(Contract):
    """Copy or reverse, with any architecture."""

    Config: ClassVar[type[Any]] = ProbeConfig
    Options: ClassVar[type[Any]] = ProbeConfig
    presets: ClassVar[dict[str, Any]] = {}
    summary: ClassVar[str] = "copy or reverse random symbols"
    score = "accuracy"

    def __init__(self, config: ProbeConfig) -> None:
        self.config = config
        size = config.symbols + MARKS
        self.model: Seq2Seq = build(config.model, Vocabularies(size, size))
        share_table(self.model)
        self.fingerprint = "generated"

    @classmethod
    def train_defaults(cls, config: Any) -> list[str]:
        """A gradient that has come back through 1,000 steps of a recurrent network can be huge."""
        return ["train.optim.clip=1"] if config.model.architecture.startswith("rnn") else []

    @classmethod
    def prepare(cls, config: Any, data: Path, assets: Path, advance: Progress = quiet) -> list[str]:
        return []

    @classmethod
    def open(cls, config: Any, assets: Path) -> Task:
        return cls(config)

    def load_data(self, data: Path, advance: Progress = quiet, *, whole: bool = False) -> list[str]:
        return []

    def batches(self, split: Split, seed: int) -> Draws:
        return Draws(self.config, seed)

    def losses(self, batch: Symbols) -> Iterator[tuple[str, Tensor]]:
        memory = self.model.encode(batch.source, torch.ones_like(batch.source, dtype=torch.bool))
        logits = self.model.head(self.model.decode(batch.inputs, memory))
        loss = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten())
        for halting in memory.halting:
            loss = loss + self.config.model.universal.ponder * halting.cost.mean()
        yield "model", loss

    @torch.no_grad()
    def evaluate(self, split: Split, *, quick: bool = False, advance: Progress = quiet) -> dict[str, float]:
        """Share of symbols, in percent, that are right after the right ones before them, at each length."""
        training, found = self.model.training, {}
        self.model.eval()
        lengths = QUICK if quick else LENGTHS
        for done, length in enumerate(lengths, start=1):
            found[f"accuracy_{length}"] = self._accuracy(length)
            advance(done / len(lengths))
        self.model.train(training)
        return {"accuracy": sum(found.values()) / len(found), **found}

    def _accuracy(self, length: int) -> float:
        batch = draw(self.config, max(2, TESTED // length), length, key(length, 7) % 2**32)
        batch = batch.to(next(self.model.parameters()).device)
        right, rows = 0, max(1, TESTED // length)
        for first in range(0, len(batch.source), rows):
            source, inputs, labels = (x[first : first + rows] for x in (batch.source, batch.inputs, batch.labels))
            logits = self.model(source, torch.ones_like(source, dtype=torch.bool), inputs)
            right += int((logits.argmax(-1) == labels).sum())
        return 100 * right / batch.count

    def predict(self, input: str, options: Any) -> Prediction:
        raise NotImplementedError("the probe is measured, not asked")
