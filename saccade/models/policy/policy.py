"""Policy: a distribution of actions for each step of an episode, from the observations up to that step.

A multilayer perceptron reads the observation of the step alone; a causal Transformer attends to those before it.
Shapes: B rows, T steps, D numbers of an observation, A numbers of an action, L labels, W width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from saccade.models.policy.distributions import Categorical, DiagonalGaussian, Distribution
from saccade.nn.ablation import patch_embeddings
from saccade.nn.linear import Linear
from saccade.nn.masks import Causal
from saccade.nn.transformer import Transformer, TransformerConfig


@dataclass(frozen=True)
class MLPConfig:
    """Shape of a multilayer perceptron."""

    hidden: int = 64
    """width of the hidden layers"""
    depth: int = 2
    """number of hidden layers"""

    def __post_init__(self) -> None:
        for name in ("hidden", "depth"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, but is {getattr(self, name)}")


def _policy_transformer() -> TransformerConfig:
    return TransformerConfig(dim=64, depth=2, heads=4, hidden=128, norm="layer", activation="gelu")


@dataclass(frozen=True)
class PolicyConfig:
    """Architecture of a policy and its shape; only the shape of the chosen architecture is used."""

    architecture: Literal["mlp", "transformer"] = "transformer"
    """mlp: the current observation alone; transformer: attention over the observations of the last steps"""
    history: int = 8
    """observations that the Transformer sees, the current one included"""
    mlp: MLPConfig = field(default_factory=MLPConfig)
    transformer: TransformerConfig = field(default_factory=_policy_transformer)

    def __post_init__(self) -> None:
        if self.history < 1:
            raise ValueError(f"history must be at least 1, but is {self.history}")

    @property
    def window(self) -> int:
        """Steps that an action depends on."""
        return self.history if self.architecture == "transformer" else 1


@dataclass(frozen=True)
class Scale:
    """Mean and standard deviation of each number of a vector."""

    mean: Sequence[float]
    deviation: Sequence[float]


class MLP(nn.Sequential):
    """Linear layers with tanh between them: (..., D) to (..., W)."""

    def __init__(self, config: MLPConfig, inputs: int) -> None:
        layers: list[nn.Module] = []
        for number in range(config.depth):
            layers += [Linear(config.hidden if number else inputs, config.hidden), nn.Tanh()]
        super().__init__(*layers)


class Normalize(nn.Module):
    """Scale vectors to mean 0 and standard deviation 1, by statistics of the training data."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(scale.mean, dtype=torch.float32))
        self.register_buffer("deviation", torch.tensor(scale.deviation, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.deviation

    def inverse(self, x: Tensor) -> Tensor:
        """Return vectors in their own unit."""
        return x * self.deviation + self.mean


class Policy(nn.Module):
    """Policy network; with `labels` of discrete actions, else of continuous ones on the scale of `actions`."""

    def __init__(
        self, config: PolicyConfig, observations: Scale, *, labels: int = 0, actions: Scale | None = None
    ) -> None:
        super().__init__()
        inputs = len(observations.mean)
        self.normalize = Normalize(observations)
        self.normalize_actions = None if actions is None else Normalize(actions)
        self.encoder: Transformer | None = None
        if config.architecture == "transformer":
            self.embed: nn.Module = Linear(inputs, config.transformer.dim)
            self.encoder = Transformer(config.transformer)
            width = config.transformer.dim
        else:
            self.embed, width = MLP(config.mlp, inputs), config.mlp.hidden
        outputs = labels if actions is None else len(actions.mean)
        self.head = Linear(width, outputs)
        with torch.no_grad():  # all actions are about equally probable at first
            self.head.weight.mul_(0.1)
            self.head.bias.zero_()
        self.log_std = None if actions is None else nn.Parameter(torch.zeros(outputs))

    def outputs(self, observations: Tensor, states: list[Tensor] | None = None) -> Tensor:
        """Return logits or means (B, T, L or A) for each step of (B, T, D), from the steps up to it."""
        x = patch_embeddings(self.embed(self.normalize(observations)))  # (B, T, W)
        if self.encoder is not None:
            x = self.encoder(x, mask=Causal(), states=states)
        out: Tensor = self.head(x)
        return out

    def distribution(self, outputs: Tensor) -> Distribution:
        """Return the distribution of actions; continuous ones are normalized."""
        return Categorical(outputs) if self.log_std is None else DiagonalGaussian(outputs, self.log_std)

    def act(self, histories: Tensor, lengths: Tensor) -> Distribution:
        """Return the distribution at the last step of each history (B, T, D), which has `lengths` (B,) steps."""
        out = self.outputs(histories)
        return self.distribution(out[torch.arange(len(out), device=out.device), lengths - 1])

    def to_targets(self, actions: Tensor) -> Tensor:
        """Return actions as the distribution has them: labels, or normalized vectors."""
        return actions if self.normalize_actions is None else self.normalize_actions(actions)

    def to_actions(self, targets: Tensor) -> Tensor:
        """Return actions as the environment has them."""
        return targets if self.normalize_actions is None else self.normalize_actions.inverse(targets)

    def forward(self, observations: Tensor, actions: Tensor, keep: Tensor) -> Tensor:
        """Return the mean negative log-likelihood of actions (B, T, ...) where `keep` (B, T) is True."""
        log_probs = self.distribution(self.outputs(observations)).log_prob(self.to_targets(actions))
        return -torch.where(keep, log_probs, 0.0).sum() / keep.sum()
