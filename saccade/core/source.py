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
        """Number of targets that the mean loss averages: the weight of a micro-batch."""

    @property
    def units(self) -> int:
        """What throughput counts, in the unit of the task: real tokens, images, frames, environment steps."""

    @property
    def rows(self) -> Sequence[str]:
        """Origin of each example, such as file and line: reported when a loss is not finite."""

    def to(self, device: Any) -> Batch: ...


class Source(abc.ABC):
    """Batches of one split.

    A dataset has no state: `at` is a pure function of (seed, step), independent of earlier calls, so that batches can
    be prefetched and resuming needs no state. An environment is stepped in order; its `state` is saved in every
    checkpoint.
    """

    @property
    @abc.abstractmethod
    def per_epoch(self) -> int:
        """Number of steps in an epoch."""

    @abc.abstractmethod
    def at(self, step: int) -> Sequence[Batch]:
        """Return the batch of a step, as micro-batches that fit into memory (gradient accumulation)."""

    def state(self) -> Mapping[str, Tensor] | None:
        """Return what the next batch depends on besides (seed, step); None: nothing."""
        return None

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore a saved state."""
        raise NotImplementedError("a source with a state must implement load_state")
