"""Distributions of actions: categorical over labels, and diagonal Gaussian over vectors.

Shapes: any leading axes, L labels, A numbers of an action.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Categorical:
    """Probabilities of labels, by their logits (..., L)."""

    logits: Tensor

    @property
    def log_probs(self) -> Tensor:
        """(..., L)"""
        return self.logits.log_softmax(-1)

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return the log probability (...) of labels (...)."""
        return self.log_probs.gather(-1, actions[..., None])[..., 0]

    def entropy(self) -> Tensor:
        """Return the entropy (...) in nats."""
        return -(self.log_probs.exp() * self.log_probs).sum(-1)

    def kl(self, other: Categorical) -> Tensor:
        """Return KL(self, other) (...)."""
        return (self.log_probs.exp() * (self.log_probs - other.log_probs)).sum(-1)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Return random labels (...)."""
        flat = self.logits.softmax(-1).flatten(0, -2)
        return torch.multinomial(flat, 1, generator=generator).view(self.logits.shape[:-1])

    def mode(self) -> Tensor:
        """Return the most probable labels (...)."""
        return self.logits.argmax(-1)

    def detach(self) -> Categorical:
        return Categorical(self.logits.detach())


@dataclass(frozen=True)
class DiagonalGaussian:
    """Independent normal distributions of the numbers of an action: means (..., A), log standard deviations (A,)."""

    mean: Tensor
    log_std: Tensor

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return the log density (...) of actions (..., A)."""
        z = (actions - self.mean) * (-self.log_std).exp()
        return (-0.5 * z.square() - self.log_std - 0.5 * math.log(2 * math.pi)).sum(-1)

    def entropy(self) -> Tensor:
        """Return the differential entropy (...) in nats."""
        value = (self.log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)
        return value.expand(self.mean.shape[:-1])

    def kl(self, other: DiagonalGaussian) -> Tensor:
        """Return KL(self, other) (...)."""
        variance = (2 * self.log_std).exp() + (self.mean - other.mean).square()
        return (other.log_std - self.log_std + 0.5 * variance * (-2 * other.log_std).exp() - 0.5).sum(-1)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Return random actions (..., A)."""
        noise = torch.randn(self.mean.shape, generator=generator, dtype=self.mean.dtype)
        return self.mean + self.log_std.exp() * noise.to(self.mean.device)

    def mode(self) -> Tensor:
        """Return the most probable actions (..., A)."""
        return self.mean

    def detach(self) -> DiagonalGaussian:
        return DiagonalGaussian(self.mean.detach(), self.log_std.detach())


Distribution = Categorical | DiagonalGaussian
