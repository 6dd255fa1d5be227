"""Behaviour cloning: a policy learns the recorded actions of an expert by maximum likelihood."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from saccade.core.source import Split
from saccade.data.batching import BucketedBatches
from saccade.tasks._policy.task import PolicyTask, PolicyTaskConfig


@dataclass(frozen=True)
class CloningConfig(PolicyTaskConfig):
    """All settings of behaviour cloning except those of the training loop."""

    batch_size: int = 256
    """histories of a batch"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, but is {self.batch_size}")


@dataclass(frozen=True)
class HistoryBatch:
    """Histories (B, T, D) with the action of each step (B, T, ...); `keep` (B, T) is True for real steps."""

    observations: Tensor
    actions: Tensor
    keep: Tensor
    rows: list[str]

    @property
    def count(self) -> int:
        return int(self.keep.sum())

    @property
    def units(self) -> int:
        return len(self.observations)

    def to(self, device: Any) -> HistoryBatch:
        observations, actions, keep = (part.to(device) for part in (self.observations, self.actions, self.keep))
        return replace(self, observations=observations, actions=actions, keep=keep)


@dataclass(frozen=True)
class _Examples:
    """As many examples as there are steps, all of one length."""

    count: int

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.ones(self.count, dtype=np.int64)


class Task(PolicyTask):
    """Every step is an example: the history that ends with it."""

    Config: ClassVar[type[Any]] = CloningConfig
    summary: ClassVar[str] = "imitate recorded actions, step by step"

    @classmethod
    def train_defaults(cls, config: Any) -> list[str]:
        optim = {"kind": "adamw", "lr": "0.002", "schedule": "cosine", "weight_decay": "0.01"}
        return ["train.minutes=1", *(f"train.optim.{name}={value}" for name, value in optim.items())]

    def source(self, split: Split, seed: int) -> BucketedBatches:
        episodes = self.splits[split]

        def collate(steps: list[int]) -> HistoryBatch:
            return HistoryBatch(*self.window(split, steps), [episodes.origins.describe(step) for step in steps])

        return BucketedBatches(_Examples(len(episodes)), collate, budget=self.config.batch_size, seed=seed)

    def networks(self) -> dict[str, nn.Module]:
        return {"policy": self.policy}

    def losses(self, batch: HistoryBatch, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        yield "policy", networks["policy"](batch.observations, batch.actions, batch.keep)
