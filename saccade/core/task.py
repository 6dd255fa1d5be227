"""The contract: a Task is what one file in tasks/ offers to the only training loop and to every front end."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from saccade.core.callback import Progress, ignore_progress
from saccade.core.evaluation import Evaluation, Metric
from saccade.core.fields import Field
from saccade.core.prediction import ForwardTrace, GeneratedToken, Prediction
from saccade.core.pretrained import Base, Pretrained
from saccade.core.source import Source, Split
from saccade.errors import UsageError


class Task(abc.ABC):
    """A kind of problem: how data become batches, losses, metrics and predictions.

    A task owns no loop, no optimizer, no printing, no device and no run folder. Its networks are in eval mode except
    inside a training step: the loop switches, the task never does, so that several threads can read one model.
    """

    Config: ClassVar[type[Any]]
    Options: ClassVar[type[Any]]
    """settings of `predict` and `stream`; never an input"""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType({})
    """named settings, as JSON of `Config`"""
    summary: ClassVar[str]
    unit: ClassVar[str] = "tokens"
    """what `Batch.units` counts"""
    continues: ClassVar[bool] = False
    """whether an output continues its input, as that of a language model does"""

    inputs: tuple[Field, ...]
    metric: Metric
    """the value of `evaluate` that decides which checkpoint is best"""

    config: Any
    fingerprint: str = ""
    """a hash of the loaded data, validation data included: a resumed run must find the same"""
    analysis: Mapping[str, Any] = MappingProxyType({})
    """what `analyse` returned when training had ended; empty before"""

    # Data

    @classmethod
    def train_defaults(cls, config: Any) -> Sequence[str]:
        """Overrides of the training loop's settings that suit this config; the user's own come after them."""
        return ()

    @classmethod
    @abc.abstractmethod
    def prepare(
        cls, config: Any, data: Path, assets: Path, *, base: Base = None, progress: Progress = ignore_progress
    ) -> list[str]:
        """Learn from the data what must be known to open the task (vocabulary, labels) and write it to `assets`.

        `base` is the pretrained model to start from. Returns notes for people.
        """

    @classmethod
    @abc.abstractmethod
    def open(cls, config: Any, assets: Path) -> Task:
        """Return the task with freshly initialised networks, from its assets alone: no data needed."""

    @abc.abstractmethod
    def load_data(self, data: Path, *, eval_only: bool = False, progress: Progress = ignore_progress) -> list[str]:
        """Load the data for `source` and `evaluate`; `eval_only`: all of it is validation data. Returns notes."""

    @abc.abstractmethod
    def source(self, split: Split, seed: int) -> Source:
        """The batches of a split."""

    # Training

    @abc.abstractmethod
    def networks(self) -> dict[str, nn.Module]:
        """The networks that are trained, by name; each has its own optimizer."""

    def optimizer_overrides(self, network: str) -> Sequence[str]:
        """Overrides of `train.optim` for one network, such as `lr=4e-4`; two networks may need two time scales."""
        return ()

    @abc.abstractmethod
    def losses(self, batch: Any, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        """Yield (network name, mean loss) in the order in which networks are updated.

        The whole loss is computed by calling `networks[name]`, which may be wrapped (torch.compile, DDP, FSDP). The
        next pair is asked for after the network before it was updated.
        """

    def state(self) -> Mapping[str, Tensor]:
        """Tensors beside networks, optimizers and source that resuming needs."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Go back to a saved state."""
        raise NotImplementedError("a task with a state must be able to go back to it")

    # Using

    @abc.abstractmethod
    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        """Evaluate on a split; quick: on a fixed sample of it, to follow a run."""

    @abc.abstractmethod
    def predict(self, inputs: Sequence[Mapping[str, Any]], options: Any) -> Iterator[Prediction]:
        """Yield the answers to some examples (validated values by field name) in order, computed in batches."""

    def stream(self, inputs: Mapping[str, Any], options: Any) -> Iterator[GeneratedToken]:
        """Yield the answer to one example token by token, with attention where `options.attention` asks for it."""
        raise UsageError("this model does not generate token by token")

    def rerun(self, prediction: Prediction, *, layers: bool = False) -> ForwardTrace:
        """Compute an answer again, with gradients where they are enabled; `layers`: also logits after each layer."""
        raise UsageError("this task cannot explain its predictions")

    def analyse(self) -> dict[str, Any]:
        """Return what is worth knowing of the trained model, from its validation data, as JSON kept with the run."""
        return {}

    def attention_snapshot(self) -> list[Prediction]:
        """Return a few fixed validation examples with their attention, to watch it form during training."""
        return []

    def sample(self) -> str:
        """Return an output to look at during training; empty where there is none to show."""
        return ""

    # Exchange

    @classmethod
    def from_pretrained(cls, pretrained: Pretrained) -> Task:
        """Return the task around a pretrained network that can run as it is."""
        raise UsageError(f"a {pretrained.task} cannot be opened from pretrained weights")

    def to_pretrained(self) -> Pretrained:
        """Return what exporting and fine-tuning need of this task."""
        raise UsageError("this task has no exchange format")

    def device(self) -> torch.device:
        """Where the networks are."""
        return next(next(iter(self.networks().values())).parameters()).device
