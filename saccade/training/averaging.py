"""Weight averaging: an exponential moving average of the weights, which is evaluated and used to predict."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from saccade.runs.weights import Networks, assign, check, local, weights


class WeightAverage:
    """The moving average of all weights and buffers of some networks; integer buffers are copied as they are."""

    def __init__(self, networks: Networks, decay: float) -> None:
        self._networks, self.decay = networks, decay
        self.tensors = {name: value.clone() for name, value in weights(networks).items()}

    def update(self, step: int) -> None:
        """Move the average towards the weights after `step` steps."""
        # Early on the average is short, so that it forgets the initial weights.
        decay = min(self.decay, step / (step + 10))
        current = {name: local(value) for name, value in weights(self._networks).items()}
        averages = {name: local(value) for name, value in self.tensors.items()}
        floating = [name for name, value in current.items() if value.is_floating_point()]
        torch._foreach_lerp_([averages[name] for name in floating], [current[name] for name in floating], 1 - decay)
        for name in current.keys() - set(floating):
            averages[name].copy_(current[name])

    def load(self, tensors: Mapping[str, Tensor], where: str) -> None:
        """Go back to a saved average."""
        check(self._networks, tensors, where)
        for name, value in self.tensors.items():
            value.copy_(tensors[name])

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Give the networks the averaged weights for a while."""
        current = {name: value.clone() for name, value in weights(self._networks).items()}
        assign(self._networks, self.tensors)
        try:
            yield
        finally:
            assign(self._networks, current)
