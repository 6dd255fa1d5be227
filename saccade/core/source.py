"""Sources: where the training loop gets its batches."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

from torch import Tensor


class Split(StrEnum):
    TRAIN = "train"
    VALID = "valid"


class Batch(Protocol):
    """A dataclass of tensors."""

    @property
    def count(self) -> int:
        """Number of targets the mean loss is a mean over: the weight of a micro-batch."""

    @property
    def units(self) -> int:
        """What throughput counts, in the unit of the task: real tokens, images, frames, environment steps."""

    @property
    def rows(self) -> Sequence[str]:
        """Where the examples come from, for people: named when a loss is not finite."""

    def to(self, device: Any) -> Batch: ...


class Source(abc.ABC):
    """Batches of one split.

    A data set has no state: `at` is a pure function of (seed, step), whatever was asked for before, so that it can be
    prefetched and resuming is free. An environment is stepped in order; its `state` is saved in every checkpoint.
    """

    @property
    @abc.abstractmethod
    def per_epoch(self) -> int:
        """Steps that see every example once."""

    @abc.abstractmethod
    def at(self, step: int) -> Sequence[Batch]:
        """The batch of a step, as the micro-batches that fit the memory (gradient accumulation)."""

    def state(self) -> Mapping[str, Tensor] | None:
        """All that the next batch depends on beside (seed, step); None: nothing."""
        return None

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Go back to a saved state."""
        raise NotImplementedError("a source with a state must be able to go back to it")
