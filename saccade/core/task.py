"""The contract: a Task is what one file in tasks/ offers to the only training loop and to everyone else."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from saccade.errors import UsageError

Progress = Callable[[float], None]
"""Called with the share of a long job that is done, 0 to 1."""


def quiet(share: float) -> None:
    """Tell nobody."""


class Split(StrEnum):
    TRAIN = "train"
    VALID = "valid"


class Batch(Protocol):
    """A dataclass of tensors that knows how much it weighs and which rows of the data it holds."""

    @property
    def count(self) -> int:
        """Number of targets: what the mean loss is a mean over."""

    @property
    def rows(self) -> Sequence[str]:
        """Where the rows come from, for a person: said when a loss is not finite."""

    def to(self, device: Any) -> Batch: ...


class Batches(Protocol):
    """The batches of one split; which rows go where depends on (seed, step) alone."""

    @property
    def per_epoch(self) -> int:
        """Steps that see every row once."""

    def at(self, step: int) -> Sequence[Batch]:
        """The batch of a step, in the parts that fit the memory (gradient accumulation)."""


@dataclass(frozen=True)
class Axis:
    """What an axis of a map means: words, an image grid, audio time, graph nodes, steps."""

    kind: str
    labels: tuple[str, ...]
    words: tuple[int, ...] = ()
    """For pieces of words: the number of the word each label belongs to; empty: every label is one of its own."""


class Weights(Protocol):
    """Attention weights that are computed when they are asked for."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """(heads, queries, keys)"""

    def rows(self, first: int, last: int, *, step: int = 1, head: int | None = None) -> Tensor:
        """The weights of every `step`-th of the queries first..last, of all heads or one: (heads, queries, keys)."""


@dataclass(frozen=True)
class AttentionMap:
    """One attention of one prediction: weights (heads, queries, keys) with named axes."""

    name: str
    source: Tensor | Weights
    """the weights, or what computes any rows of them: a long text has too many to keep"""
    queries: Axis
    keys: Axis

    @property
    def shape(self) -> tuple[int, int, int]:
        """(heads, queries, keys)"""
        heads, queries, keys = self.source.shape
        return heads, queries, keys

    @property
    def weights(self) -> Tensor:
        """All of them: (heads, queries, keys)."""
        return self.rows(0, self.shape[1])

    def rows(self, first: int, last: int, *, step: int = 1, head: int | None = None) -> Tensor:
        """The weights of every `step`-th of the queries first..last, of all heads or one: (heads, queries, keys)."""
        if isinstance(self.source, Tensor):
            return self.source[slice(None) if head is None else slice(head, head + 1), first:last:step]
        return self.source.rows(first, last, step=step, head=head)


@dataclass(frozen=True)
class TokenScores:
    """A number for each label of an axis: the steps a Universal Transformer took for each token."""

    name: str
    axis: Axis
    values: tuple[float, ...]


@dataclass(frozen=True)
class Prediction:
    """What a model answered, with its scores and what it looked at."""

    input: str
    output: str
    scores: dict[str, float] = field(default_factory=dict)
    maps: tuple[AttentionMap, ...] = ()
    readings: tuple[TokenScores, ...] = ()
    alignment: AttentionMap | None = None
    """Which source words each output word looked at, by the head that shows it best: (1, output, source)."""
    others: tuple[Prediction, ...] = ()
    """The next best answers, where more than one was asked for."""
    trace: Any = None
    """What the task needs to compute this answer once more, for `replay`; nobody else's business."""


@dataclass(frozen=True)
class GeneratedToken:
    """A token that was just written, the text it completes, and what all tokens read so far looked at."""

    token: str
    text: str
    maps: Mapping[str, Weights]
    prompt: tuple[str, ...]
    """the tokens that were given, before the first one that was written"""


@dataclass(frozen=True)
class ForwardTrace:
    """What a model says at each place of an answer, computed once more to see what it depends on.

    Shapes: N places, V outputs.
    """

    logits: Tensor
    """(N, V); of a number (N, 1), the number itself"""
    chosen: tuple[int, ...]
    """which of the outputs was the answer at each place"""
    places: Axis
    reads: tuple[Axis, ...]
    """the texts that went into the network, in the order they entered"""
    name: Callable[[int], str]
    """what an output is called"""
    layers: tuple[tuple[str, Tensor], ...] = ()
    """the logits that the output layer reads off after each layer, if they were asked for"""


class Task(abc.ABC):
    """A kind of problem: how data become batches, losses, scores and answers.

    A task owns no loop, no optimizer, no printing, no device and no run folder.
    """

    Config: ClassVar[type[Any]]
    Options: ClassVar[type[Any]]
    """Settings of `predict`."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]]
    """Named settings, as JSON of `Config`."""
    summary: ClassVar[str]
    continues: ClassVar[bool] = False
    """Whether an output goes on where the input ends, as a language model's does."""
    score: str
    """The value of `evaluate` that says which checkpoint is best; lower is better if it ends on 'loss'."""

    config: Any
    model: nn.Module
    fingerprint: str = ""
    """What the attached data are, in a few letters: a resumed run must find the same."""
    explained: Mapping[str, str] = MappingProxyType({})
    """How the last `evaluate` computed its scores, where others must be able to repeat it: signatures by name."""
    remarks: Sequence[str] = ()
    """What the last `evaluate` saw beyond its scores, for people: lines of Markdown."""
    analysis: Mapping[str, Any] = MappingProxyType({})
    """What `study` found when the run had ended; empty before."""

    @classmethod
    def train_defaults(cls, config: Any) -> Sequence[str]:
        """Words for the training loop that suit these settings; the user's own words come after them."""
        return ()

    @classmethod
    @abc.abstractmethod
    def prepare(cls, config: Any, data: Path, assets: Path, advance: Progress = quiet) -> list[str]:
        """Learn from the data what must be learnt (vocabulary, labels) into `assets`; says what it found."""

    @classmethod
    @abc.abstractmethod
    def open(cls, config: Any, assets: Path) -> Task:
        """The task with a fresh model, from its assets alone: no data needed."""

    @abc.abstractmethod
    def load_data(self, data: Path, advance: Progress = quiet, *, whole: bool = False) -> list[str]:
        """Make the data ready for `batches` and `evaluate`; says what it found. `whole`: all of it is validation."""

    @abc.abstractmethod
    def batches(self, split: Split, seed: int) -> Batches:
        """The batches of a split, in an order that depends on the seed alone."""

    @abc.abstractmethod
    def losses(self, batch: Any) -> Iterator[tuple[str, Tensor]]:
        """(player, mean loss) pairs: one for most tasks, two where two networks play against each other."""

    @abc.abstractmethod
    def evaluate(self, split: Split, *, quick: bool = False, advance: Progress = quiet) -> dict[str, float]:
        """Scores on a split; quick: on a fixed sample of it, to follow a run."""

    @abc.abstractmethod
    def predict(self, input: str, options: Any) -> Prediction: ...

    def predict_all(self, inputs: Sequence[str], options: Any) -> Iterator[Prediction]:
        """The answers to several inputs, in their order; a task may work on many at once."""
        return (self.predict(input, options) for input in inputs)

    def rerun(self, found: Prediction, *, layers: bool = False) -> ForwardTrace:
        """Compute an answer once more, with gradients where they are on; `layers`: also what each layer would say."""
        raise UsageError("this task cannot say what its answer depends on")

    def analyse(self) -> dict[str, Any]:
        """What is worth knowing of the finished model, from its validation data, as JSON; kept with the run."""
        return {}

    def stream(self, input: str, options: Any) -> Iterator[str]:
        """The output piece by piece, where it comes that way."""
        yield self.predict(input, options).output

    def follow(self, input: str, options: Any) -> Iterator[GeneratedToken]:
        """The output token by token with what was looked at, where it comes that way."""
        raise UsageError("this model does not write token by token")

    def attention_snapshot(self) -> list[Prediction]:
        """A few validation examples with their maps, the same ones each time, to see attention form in training."""
        return []

    def sample(self) -> str:
        """A line of output to look at while training; nothing where there is none to show."""
        return ""

    def networks(self) -> dict[str, nn.Module]:
        """The networks that learn, each with its own optimizer."""
        return {"model": self.model}

    @contextmanager
    def _settled(self) -> Iterator[None]:
        """The model without dropout for a while, whatever happens."""
        training = self.model.training
        self.model.eval()
        try:
            yield
        finally:
            self.model.train(training)

    def _device(self) -> torch.device:
        return next(self.model.parameters()).device
