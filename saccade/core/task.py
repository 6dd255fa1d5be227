"""Task: the interface between one file in tasks/, the training loop and every front end."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from saccade.core.callback import Log, Progress, ignore_progress
from saccade.core.evaluation import Evaluation, Metric
from saccade.core.fields import Field
from saccade.core.generation import StreamControl, TextEngine
from saccade.core.options import PredictOptions
from saccade.core.prediction import ForwardTrace, GeneratedToken, Prediction
from saccade.core.pretrained import Base, Pretrained
from saccade.core.source import Source, Split
from saccade.errors import DataError, UsageError

PRECISION_RULE = "only language models have others"


@dataclass(frozen=True)
class InputLength:
    """The tokens of one input of an example, and how many of them the model reads."""

    name: str
    """of the input, of an option that is a text, or of several that are read together"""
    tokens: int
    limit: int | None = None
    """maximum number of tokens; None: any number"""


def even_sample(total: int, limit: int) -> list[int]:
    """Return at most `limit` of the numbers from 0 to `total`, evenly spaced."""
    count = min(total, limit)
    return [number * total // count for number in range(count)]


class Task(abc.ABC):
    """A kind of problem: how data become batches, losses, metrics and predictions.

    A task owns no loop, no optimizer, no printing, no device and no run folder. Its networks are in eval mode except
    inside a training step: the loop sets the mode, the task never does, so that several threads can use one model.
    """

    Config: ClassVar[type[Any]]
    Options: ClassVar[type[Any]] = PredictOptions
    """settings of `predict` and `stream`; never an input"""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType({})
    """named settings, as JSON of `Config`"""
    summary: ClassVar[str]
    needs: ClassVar[str] = ""
    """what the data are, in a few words"""
    unit: ClassVar[str] = "tokens"
    """what `Batch.units` counts"""
    loss_unit: ClassVar[str] = ""
    """unit of the loss: nats, where it is a cross-entropy"""
    environment_setting: ClassVar[str] = ""
    """the setting that names the environment in which `replay` plays episodes; empty: this task has none"""
    continues: bool = False
    """whether the output continues the input, as with a language model"""

    inputs: tuple[Field, ...]
    metric: Metric
    """the value of `evaluate` that decides which checkpoint is best"""

    config: Any
    fingerprint: str = ""
    """a hash of the loaded data, validation data included: it must not change when a run is resumed"""
    data_notes: Sequence[str] = ()
    """notes on the loaded data that every evaluation on them has, such as which part of them is scored"""
    analysis: Mapping[str, Any] = MappingProxyType({})
    """the result of `analyse` at the end of training; empty before"""

    # Data

    @classmethod
    def train_defaults(cls, config: Any) -> Sequence[str]:
        """Return default overrides of the training settings for this config; the user's overrides take precedence."""
        return ()

    @classmethod
    @abc.abstractmethod
    def prepare(
        cls, config: Any, data: Path, assets: Path, *, base: Base = None, progress: Progress = ignore_progress
    ) -> list[str]:
        """Derive from the data what is needed to open the task (vocabulary, labels) and write it to `assets`.

        `base` is the pretrained model to start from. Returns notes for the user.
        """

    @classmethod
    @abc.abstractmethod
    def open(cls, config: Any, assets: Path) -> Task:
        """Return the task with newly initialized networks, from its assets alone: no data needed."""

    @abc.abstractmethod
    def load_data(self, data: Path, *, eval_only: bool = False, progress: Progress = ignore_progress) -> list[str]:
        """Load the data for `source` and `evaluate` and return notes.

        `eval_only`: all of it is validation data, or its test part (else its validation part) where it has parts.
        """

    def check_fingerprint(self, expected: object, data: Path, run: str) -> None:
        """Refuse loaded data that are not those a run was started with: nothing is trained or scored on others."""
        if self.fingerprint != expected:
            raise DataError(
                f"{data}: fingerprint {self.fingerprint}, expected {expected}: the data have changed since run '{run}' "
                "started; restore them to continue, or train a new run on them"
            )

    @abc.abstractmethod
    def source(self, split: Split, seed: int) -> Source:
        """Return the batches of a split."""

    # Training

    @abc.abstractmethod
    def networks(self) -> dict[str, nn.Module]:
        """Return the networks that are trained, by name; each has its own optimizer."""

    def optimizer_overrides(self, network: str) -> Sequence[str]:
        """Return overrides of `train.optim` for one network, such as `lr=4e-4` (two time-scale update rule)."""
        return ()

    @abc.abstractmethod
    def losses(self, batch: Any, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        """Yield (network name, mean loss) in the order in which networks are updated.

        The complete loss is computed by calling `networks[name]`, which may be wrapped (torch.compile, DDP, FSDP). The
        next pair is requested after the previous network was updated.
        """

    def state(self) -> Mapping[str, Tensor]:
        """Return the tensors that resuming needs besides networks, optimizers and source."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore a saved state."""
        raise NotImplementedError("a task with a state must implement load_state")

    # Inference

    @abc.abstractmethod
    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        """Evaluate on a split; quick: on a fixed sample of it, to monitor training."""

    def evaluate_rounded(self, dtype: str, split: Split, *, progress: Progress = ignore_progress) -> Evaluation:
        """Evaluate with weights rounded to a type, beside those of the model; a note says what that costs."""
        raise UsageError(f"dtype must be auto or float32 for this task, but is '{dtype}': {PRECISION_RULE}")

    @abc.abstractmethod
    def predict(self, inputs: Sequence[Mapping[str, Any]], options: Any) -> Iterator[Prediction]:
        """Yield the predictions for examples (validated values by field name) in order, computed in batches."""

    def set_precision(self, dtype: str, log: Log) -> None:
        """Round the weights of the loaded networks to a type for inference; auto: they stay as they are."""
        if dtype not in ("auto", "float32"):
            raise UsageError(f"dtype must be auto or float32 for this task, but is '{dtype}': {PRECISION_RULE}")

    def input_lengths(self, inputs: Mapping[str, Any], options: Any) -> list[InputLength]:
        """Return the lengths of the texts of one example, before anything is truncated or computed."""
        return []

    def stream(
        self, inputs: Mapping[str, Any], options: Any, control: StreamControl | None = None
    ) -> Iterator[GeneratedToken]:
        """Yield the output for one example token by token, with attention if `options.attention` is set.

        With a `control` the caller gives the first tokens, and may change options while the stream runs.
        """
        raise UsageError("this model does not generate token by token")

    def engine(self, rows: int | None = None) -> TextEngine:
        """Return an engine that generates text for this many requests at once; None: 16, or as many as memory holds."""
        raise UsageError("this model does not continue texts: it has no engine")

    def rerun(self, prediction: Prediction, *, layers: bool = False) -> ForwardTrace:
        """Recompute a prediction, with gradients where they are enabled; `layers`: also logits after each layer."""
        raise UsageError("this task cannot explain its predictions")

    def replay(self, seed: int) -> Mapping[str, Any]:
        """Return one episode in the environment of the task, as JSON: what the model observed, did and attended to."""
        raise UsageError("this model has no environment: there is no episode to replay")

    def analyse(self) -> dict[str, Any]:
        """Return an analysis of the trained model on its validation data, as JSON that is stored with the run."""
        return {}

    def validation_inputs(self, limit: int) -> list[dict[str, Any]]:
        """Return the inputs of the loaded validation rows, of more than `limit` an even sample."""
        raise UsageError("the validation rows of this task cannot be listed as texts; give texts or a file of them")

    def attention_snapshot(self) -> list[Prediction]:
        """Return a few fixed validation examples with their attention, to show how it develops during training."""
        return []

    def sample(self) -> str:
        """Return a sample output to log during training; empty: none."""
        return ""

    # Exchange

    @classmethod
    def from_pretrained(cls, pretrained: Pretrained) -> Task:
        """Return the task of a pretrained network that runs without fine-tuning."""
        raise UsageError(f"a {pretrained.task} cannot be opened from pretrained weights")

    def to_pretrained(self) -> Pretrained:
        """Return the network with its config and processor, for export and fine-tuning."""
        raise UsageError("this task has no exchange format")

    def device(self) -> torch.device:
        """Return the device of the networks."""
        return next(next(iter(self.networks().values())).parameters()).device
