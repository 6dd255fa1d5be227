"""Adversarial imitation (GAIL): a policy acts until a discriminator cannot tell its steps from those of an expert.

https://arxiv.org/abs/1606.03476, Algorithm 1: equation 17 trains the discriminator, equation 18 the policy.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from saccade.config import settings
from saccade.core.callback import Progress, ignore_progress
from saccade.core.evaluation import Evaluation
from saccade.core.pretrained import Base
from saccade.core.source import Split
from saccade.data.batching import key
from saccade.data.environments import Environments, check_resumable, make, random_action, spaces
from saccade.data.episode_ends import termination_rate
from saccade.data.episodes import Episodes
from saccade.data.formats.trajectories import read_trajectories
from saccade.data.origins import RowOrigins
from saccade.errors import UsageError
from saccade.models.policy.imitation import Discriminator, TrustRegionPolicy, Value, absorbing_reward, advantages
from saccade.models.policy.policy import MLPConfig, PolicyConfig
from saccade.nn.trust_region import TrustRegionConfig
from saccade.tasks._policy.rollouts import observed
from saccade.tasks._policy.task import Description, PolicyTask, PolicyTaskConfig
from saccade.tasks._policy.training_rollouts import RolloutBatch, Rollouts

COPIES = 32  # of the environment, in which the demonstrations of the control are recorded
STARTS = 64  # episodes that show with which observations the environment starts


@dataclass(frozen=True)
class ImitationConfig(PolicyTaskConfig):
    """All settings of adversarial imitation except those of the training loop."""

    model: PolicyConfig = field(default_factory=lambda: PolicyConfig(architecture="mlp"))
    control: Literal["none", "random"] = "none"
    """random: train on demonstrations of random actions instead of the data; a policy that gets a high return from
    them does not imitate, it is rewarded for surviving"""
    expert_ends: Literal["auto", "limit", "terminal"] = "auto"
    """how recorded episodes end: at a time limit, or in terminal states of the environment, such as a fall; auto: as
    the data say, else by the lengths of episodes: several of one length ended at a time limit"""
    environments: int = 32
    """copies of the environment that are stepped together"""
    rollout_steps: int = 128
    """steps of each copy between two updates"""
    max_steps: int = 0
    """time limit of an episode during training; 0: that of the environment"""
    discriminator: MLPConfig = field(default_factory=MLPConfig)
    value: MLPConfig = field(default_factory=MLPConfig)
    trust_region: TrustRegionConfig = field(default_factory=TrustRegionConfig)
    discriminator_lr: float = 0.001
    """peak learning rate of the discriminator"""
    value_lr: float = 0.003
    """peak learning rate of the value network"""
    discriminator_steps: int = 5
    """updates of the discriminator in a step"""
    value_steps: int = 20
    """updates of the value network in a step"""
    batch_size: int = 512
    """steps of the policy, and as many of the expert, in an update"""
    gradient_penalty: float = 1.0
    """weight of the squared gradient of the discriminator between steps of the policy and of the expert"""
    discount: float = 0.99
    """discount of later rewards"""
    gae_decay: float = 0.97
    """lambda of generalised advantage estimation"""
    entropy: float = 0.001
    """weight of the entropy of the policy"""

    def __post_init__(self) -> None:
        super().__post_init__()
        least = ("environments", "rollout_steps", "discriminator_steps", "value_steps", "batch_size")
        for name, limit in {**dict.fromkeys(least, 1), "max_steps": 0}.items():
            if getattr(self, name) < limit:
                raise ValueError(f"{name} must be at least {limit}, but is {getattr(self, name)}")
        for name in ("discount", "gae_decay"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, but is {getattr(self, name)}")
        dropout = max(self.model.transformer.dropout, self.model.transformer.attention_dropout)
        if self.model.architecture == "transformer" and dropout:
            raise ValueError(f"dropout must be 0: a policy compares itself with how it acted, but is {dropout}")


class Task(PolicyTask):
    """Policy, discriminator and value network, which learn from the policy's own steps in an environment."""

    Config: ClassVar[type[Any]] = ImitationConfig
    summary: ClassVar[str] = "imitate an expert in an environment (GAIL)"
    needs: ClassVar[str] = "recorded episodes and an environment"

    def __init__(self, config: Any, description: Description) -> None:
        super().__init__(config, description)
        scales: dict[str, Any] = {"labels": len(self.space.labels), "actions": description.actions}
        self.discriminator = Discriminator(config.discriminator, description.observations, **scales)
        self.value = Value(config.value, description.observations)
        self.data: Path | None = None
        """what was loaded for training"""
        self.expert_rate = 0.0
        """terminations per step of the demonstrations"""

    def build_policy(self) -> TrustRegionPolicy:
        scales: dict[str, Any] = {"labels": len(self.space.labels), "actions": self.description.actions}
        policy = TrustRegionPolicy(self.config.model, self.description.observations, **scales)
        policy.trust_region = self.config.trust_region
        return policy

    # Data

    @classmethod
    def train_defaults(cls, config: Any) -> list[str]:
        optim = {"kind": "adamw", "schedule": "wsd", "cooldown": "0.5", "warmup": "0"}
        loop = ["train.minutes=1", "train.average=0.9"]
        return [*loop, *(f"train.optim.{name}={value}" for name, value in optim.items())]

    @classmethod
    def read(cls, config: Any, data: Path) -> tuple[Episodes, Episodes]:
        train, valid = super().read(config, data)
        if config.control == "random":
            name = config.environment
            return random_episodes(name, len(train), 0), random_episodes(name, len(valid), 1)
        return train, valid

    @classmethod
    def prepare(
        cls, config: Any, data: Path, assets: Path, *, base: Base = None, progress: Progress = ignore_progress
    ) -> list[str]:
        if not config.environment:
            raise UsageError("environment must be given, but is not; for example --environment CartPole-v1")
        check_resumable(config.environment)
        notes = super().prepare(config, data, assets, base=base, progress=progress)
        if config.control == "random":
            notes.append("control: the demonstrations are replaced by random actions; the return must stay low")
        return notes

    def load_data(self, data: Path, *, eval_only: bool = False, progress: Progress = ignore_progress) -> list[str]:
        notes = super().load_data(data, eval_only=eval_only, progress=progress)
        if eval_only:
            return notes
        config, environments = self.config, Environments(self.config.environment, range(STARTS))
        random = config.control == "random"
        episodes = self.splits[Split.TRAIN] if random else read_trajectories(data, config.data)  # with all their ends
        rate = termination_rate(episodes, config.expert_ends, environments.observations, environments.limit)
        self.data, self.expert_rate = data, rate.value
        return [*notes, f"terminal states: {rate.value * 100:.2f} per 100 steps of the demonstrations ({rate.note})"]

    def source(self, split: Split, seed: int) -> Rollouts:
        config = self.config
        seeds = [key(seed, copy) % (1 << 31) for copy in range(config.environments)]
        environments = Environments(config.environment, seeds, max_steps=config.max_steps)
        steps, window = config.rollout_steps, config.model.window
        return Rollouts(self.policy, environments, window=window, steps=steps, seed=key(seed, -1) % (1 << 31))

    # Training

    def networks(self) -> dict[str, nn.Module]:
        return {"discriminator": self.discriminator, "value": self.value, "policy": self.policy}

    def optimizer_overrides(self, network: str) -> list[str]:
        if network == "policy":  # its gradient is the whole step, which the schedule scales
            return ["kind=sgd", "lr=1", "clip=0", "weight_decay=0"]
        return [f"lr={self.config.discriminator_lr if network == 'discriminator' else self.config.value_lr}"]

    def losses(self, batch: RolloutBatch, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        config, observations = self.config, batch.observations
        seen, acted = observations.flatten(0, 1), batch.actions.flatten(0, 1)
        taken = self.space.clip(acted)  # what the environment did, and D sees
        expert_seen = torch.from_numpy(self.splits[Split.TRAIN].observations)
        expert_acted = self.space.clip(self.actions[Split.TRAIN])
        draw, size = torch.Generator().manual_seed(batch.step), config.batch_size
        for _ in range(config.discriminator_steps):
            own, other = (torch.randint(len(part), (size,), generator=draw) for part in (seen, expert_seen))
            between = torch.rand(size, 1, generator=draw).to(seen.device)
            expert = (expert_seen[other].to(seen.device), expert_acted[other].to(seen.device))
            loss = networks["discriminator"]((seen[own], taken[own]), expert, between, config.gradient_penalty)
            yield "discriminator", loss
        with torch.no_grad():
            rewards = -self.discriminator.cost(seen, taken).view_as(batch.lengths)
            absorbing = absorbing_reward(float(batch.terminated.float().mean()), self.expert_rate)
            mean = float(rewards.mean())  # of a return that never ends a constant changes nothing
            gains = advantages(
                rewards - mean,
                values := self.value.values(observations),
                self.value.values(batch.following),
                (batch.terminated, batch.truncated),
                absorbing=absorbing - mean,
                discount=config.discount,
                decay=config.gae_decay,
            )
            returns = (gains + values).flatten()
        for _ in range(config.value_steps):
            chosen = torch.randint(len(seen), (size,), generator=draw)
            yield "value", networks["value"](seen[chosen], returns[chosen])
        gains = gains.flatten()
        gains = (gains - gains.mean()) / (gains.std() + 1e-8)
        histories, lengths = batch.histories.flatten(0, 1), batch.lengths.flatten()
        yield "policy", networks["policy"](histories, lengths, acted, gains, config.entropy)

    # Evaluation

    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        evaluation = super().evaluate(split, quick=quick, progress=progress)
        accuracy = {"discriminator_accuracy": self.discriminator_accuracy(split)}
        notes = list(evaluation.notes)
        if self.data is not None and self.config.control == "none" and not quick:
            command = f"{control_command(self.data, self.config)} (with the train settings of this run)"
            notes.append(f"the policy imitates only if that of random demonstrations has a low return: {command}")
        return Evaluation({**evaluation.values, **accuracy}, notes=notes)

    @torch.no_grad()
    def discriminator_accuracy(self, split: Split) -> float:
        """Return how often D tells steps of the policy from held-out ones of the expert, in percent; 50 is chance."""
        source = self.source(split, seed=0)
        batch = source.at(0)[0].to(self.device())
        taken = self.space.clip(batch.actions.flatten(0, 1))
        own = self.discriminator.logits(batch.observations.flatten(0, 1), taken) > 0
        seen, acted = torch.from_numpy(self.splits[split].observations), self.space.clip(self.actions[split])
        other = self.discriminator.logits(seen.to(self.device()), acted.to(self.device())) <= 0
        return 50 * float(own.float().mean() + other.float().mean())


def control_command(data: Path, config: ImitationConfig) -> str:
    """Return the command that trains with the same settings on demonstrations of random actions."""
    pairs = zip(settings(type(config), default=config), settings(type(config)), strict=True)
    changed = [f"{own.name}={own.default}" for own, default in pairs if own.default != default.default]
    return shlex.join(["saccade", "train", str(data), "--task", "adversarial_imitation", *changed, "control=random"])


def random_episodes(name: str, count: int, seed: int) -> Episodes:
    """Return `count` steps of random actions in an environment, as an expert's would be recorded."""
    draw, space = np.random.default_rng(seed), make(name).action_space
    copies = min(COPIES, count)
    environments = Environments(name, range(seed * COPIES, seed * COPIES + copies))
    steps = []
    for _ in range(-(-count // copies)):
        actions = np.stack([random_action(space, draw) for _ in range(copies)])
        seen = observed(environments).numpy()
        moved = environments.step(actions)
        steps.append((seen, actions, moved.rewards, moved.terminated, moved.ended))
    # One copy after another, so that the steps of an episode follow each other.
    seen, actions, rewards, terminated, ended = (
        np.stack(part, 1).reshape(-1, *part[0].shape[1:])[:count] for part in zip(*steps, strict=True)
    )
    ended = ended | (np.arange(1, count + 1) % len(steps) == 0)  # a copy that stops is cut
    starts = np.flatnonzero(np.append(True, ended[:-1]))
    discrete = spaces(name)[1].discrete
    recorded = np.array([str(int(space.start) + int(action)) for action in actions]) if discrete else actions
    origins = RowOrigins((Path("random actions"),), np.zeros(count, np.int32), np.arange(count, dtype=np.int64))
    return Episodes(seen, recorded, starts, rewards, origins, terminated=terminated)
