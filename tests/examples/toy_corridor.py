"""A toy task of two networks on an environment, in one file: walk to the goal in a corridor.

A policy and a critic learn from their own steps (actor-critic). The critic has a learning rate of its own and a
gradient penalty, which needs a second derivative; the policy has a frozen parameter and an integer buffer. The
environment is stepped in order, and its state is part of every checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade import core
from saccade.core import Base, Evaluation, Prediction, Progress, Split, ignore_progress
from saccade.nn.ablation import patch_embeddings
from saccade.nn.kernels import twice_differentiable
from saccade.nn.probe import RecordedRow, watch
from saccade.nn.transformer import Transformer, TransformerConfig

ACTIONS = ("left", "right")
CELLS = 6
EMPTY, WALKER, GOAL = 0.0, 1.0, 2.0


@dataclass(frozen=True)
class Config:
    """Settings of policy and critic."""

    model: TransformerConfig = field(
        default_factory=lambda: TransformerConfig(dim=16, depth=1, heads=2, hidden=32, position="none")
    )
    walkers: int = 256
    """environments that are stepped in parallel"""
    critic_lr: float = 0.01
    """learning rate of the critic"""
    penalty: float = 0.01
    """weight of the critic's gradient penalty"""


@dataclass(frozen=True)
class Steps:
    """One step of every walker: observations (B, C), actions (B,), rewards (B,) and next observations (B, C)."""

    cells: Tensor
    actions: Tensor
    rewards: Tensor
    following: Tensor
    step: int

    @property
    def count(self) -> int:
        return len(self.actions)

    @property
    def units(self) -> int:
        return len(self.actions)

    @property
    def rows(self) -> list[str]:
        return [f"walker {number} of step {self.step}" for number in range(len(self.actions))]

    def to(self, device: Any) -> Steps:
        tensors = (tensor.to(device) for tensor in (self.cells, self.actions, self.rewards, self.following))
        return Steps(*tensors, self.step)


class Reader(nn.Module):
    """Transformer from cells (B, C) to outputs (B, N)."""

    def __init__(self, config: TransformerConfig, outputs: int) -> None:
        super().__init__()
        self.cell = nn.Linear(3, config.dim)
        self.encoder = Transformer(config)
        self.head = nn.Linear(CELLS * config.dim, outputs)

    def read(self, cells: Tensor, states: list[Tensor] | None = None) -> Tensor:
        one_hot = F.one_hot(cells.long(), 3).to(self.head.weight.dtype)  # (B, C, 3)
        out: Tensor = self.head(self.encoder(patch_embeddings(self.cell(one_hot)), states=states).flatten(1))
        return out


class Policy(Reader):
    """Policy network: logits of the actions."""

    updates: Tensor

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config, len(ACTIONS))
        self.temperature = nn.Parameter(torch.tensor(1.0), requires_grad=False)
        self.register_buffer("updates", torch.tensor(0))

    def logits(self, cells: Tensor, states: list[Tensor] | None = None) -> Tensor:
        return self.read(cells, states) / self.temperature

    def forward(self, cells: Tensor, actions: Tensor, advantages: Tensor) -> Tensor:
        """Return the policy gradient loss with an entropy bonus."""
        self.updates += 1
        log_probs = self.logits(cells).log_softmax(-1)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        return -(log_probs.gather(1, actions[:, None])[:, 0] * advantages).mean() - 0.01 * entropy.mean()


class Critic(Reader):
    """Value network: the expected return of a state."""

    def forward(self, cells: Tensor, returns: Tensor, penalty: float) -> Tensor:
        """Return the squared error with a gradient penalty."""
        with twice_differentiable():
            one_hot = F.one_hot(cells.long(), 3).float().requires_grad_()
            values = self.head(self.encoder(self.cell(one_hot)).flatten(1))[:, 0]
            (grad,) = torch.autograd.grad(values.sum(), one_hot, create_graph=True)
            return F.mse_loss(values, returns) + penalty * grad.square().sum((1, 2)).mean()


class Corridor(core.Source):
    """Walkers in corridors; every step continues from the state of the previous one."""

    def __init__(self, policy: Policy, walkers: int, seed: int) -> None:
        self._policy, self._generator = policy, torch.Generator().manual_seed(seed)
        self._next = 0
        self._walker = self._draw(walkers)
        self._goal = self._draw(walkers)

    @property
    def per_epoch(self) -> int:
        return 100

    def at(self, step: int) -> list[Steps]:
        if step != self._next:
            raise ValueError(f"an environment is stepped in order: step {self._next} comes next, not {step}")
        self._next += 1
        cells = observe(self._walker, self._goal)
        with torch.no_grad():
            probs = self._policy.logits(cells.to(self._policy.temperature.device)).softmax(-1).cpu()
        actions = torch.multinomial(probs, 1, generator=self._generator)[:, 0]
        before = (self._goal - self._walker).abs()
        self._walker = (self._walker + 2 * actions - 1).clamp(0, CELLS - 1)
        after = (self._goal - self._walker).abs()
        batch = Steps(cells, actions, (before - after).float(), observe(self._walker, self._goal), step)
        there = after == 0
        self._walker = torch.where(there, self._draw(len(there)), self._walker)
        self._goal = torch.where(there, self._draw(len(there)), self._goal)
        return [batch]

    def state(self) -> dict[str, Tensor]:
        return {
            "walker": self._walker,
            "goal": self._goal,
            "next": torch.tensor(self._next),
            "generator": self._generator.get_state(),
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self._walker, self._goal, self._next = state["walker"], state["goal"], int(state["next"])
        self._generator.set_state(state["generator"])

    def _draw(self, count: int) -> Tensor:
        return torch.randint(0, CELLS, (count,), generator=self._generator)


class Task(core.Task):
    """Walk to the goal."""

    Config: ClassVar[type[Any]] = Config
    summary: ClassVar[str] = "learn to walk to the goal of a corridor"
    unit: ClassVar[str] = "steps"
    inputs = (core.Vector("state", help=f"{CELLS} cells: 0 empty, 1 walker, 2 goal"),)
    metric = core.Metric("success", True, "%")

    def __init__(self, config: Config) -> None:
        self.config = config
        self.policy, self.critic = Policy(config.model), Critic(config.model, 1)
        self.baseline = torch.zeros(())

    @classmethod
    def train_defaults(cls, config: Any) -> list[str]:
        return ["train.optim.kind=adamw", "train.optim.lr=0.02", "train.optim.schedule=constant"]

    @classmethod
    def prepare(
        cls,
        config: Any,
        data: Path,
        assets: Path,
        *,
        base: Base = None,
        progress: Progress = ignore_progress,
    ) -> list[str]:
        return [f"corridors of {CELLS} cells"]

    @classmethod
    def open(cls, config: Any, assets: Path) -> Task:
        return cls(config)

    def load_data(self, data: Path, *, eval_only: bool = False, progress: Progress = ignore_progress) -> list[str]:
        self.fingerprint = data.read_text().strip()
        return []

    def source(self, split: Split, seed: int) -> core.Source:
        return Corridor(self.policy, self.config.walkers, seed)

    def networks(self) -> dict[str, nn.Module]:
        return {"critic": self.critic, "policy": self.policy}

    def optimizer_overrides(self, network: str) -> list[str]:
        return [f"lr={self.config.critic_lr}"] if network == "critic" else []

    def losses(self, batch: Steps, networks: Mapping[str, nn.Module]) -> Iterator[tuple[str, Tensor]]:
        with torch.no_grad():
            returns = batch.rewards + 0.9 * self.critic.read(batch.following)[:, 0]
        yield "critic", networks["critic"](batch.cells, returns, self.config.penalty)
        with torch.no_grad():  # the critic has been updated by now
            advantages = returns - self.critic.read(batch.cells)[:, 0]
            self.baseline = 0.9 * self.baseline + 0.1 * advantages.mean().cpu()
        yield "policy", networks["policy"](batch.cells, batch.actions, advantages - self.baseline.to(advantages))

    def state(self) -> dict[str, Tensor]:
        return {"baseline": self.baseline}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.baseline = state["baseline"]

    @torch.no_grad()
    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        """Evaluate the greedy policy on every pair of positions."""
        walker = torch.arange(CELLS).repeat_interleave(CELLS)
        goal = torch.arange(CELLS).repeat(CELLS)
        apart = walker != goal
        walker, goal = walker[apart], goal[apart]
        reached = torch.zeros(len(walker), dtype=torch.bool)
        for _ in range(CELLS):
            action = self.policy.logits(observe(walker, goal).to(self.device())).argmax(-1).cpu()
            walker = torch.where(reached, walker, (walker + 2 * action - 1).clamp(0, CELLS - 1))
            reached |= walker == goal
        return Evaluation({"success": 100 * float(reached.float().mean()), "episodes": len(goal)})

    @torch.no_grad()
    def predict(self, inputs: Sequence[Mapping[str, Any]], options: Any) -> Iterator[Prediction]:
        cells = torch.stack([one["state"] for one in inputs]).to(self.device())
        maps: Mapping[str, Any] = {}
        if options.attention:
            with watch(self.policy) as maps:
                logits = self.policy.logits(cells)
        else:
            logits = self.policy.logits(cells)
        axis = core.StepAxis(core.Role.STATE, tuple(f"cell {number}" for number in range(CELLS)))
        for row, probabilities in enumerate(logits.softmax(-1).tolist()):
            scores = dict(zip(ACTIONS, probabilities, strict=True))
            attention = [core.AttentionMap(name, RecordedRow(one, row), axis, axis) for name, one in maps.items()]
            best = max(scores, key=scores.__getitem__)
            yield Prediction(
                inputs[row], core.ActionsOutput((best,)), scores, core.AttentionMaps(attention), trace=cells[row]
            )

    def rerun(self, prediction: Prediction, *, layers: bool = False) -> core.ForwardTrace:
        states: list[Tensor] = []
        logits = self.policy.logits(prediction.trace[None], states)
        scale = self.policy.temperature
        by_layer = [(f"encoder.{n}", self.policy.head(x.flatten(1)) / scale) for n, x in enumerate(states[1:])]
        axis = core.StepAxis(core.Role.STATE, tuple(f"cell {number}" for number in range(CELLS)))
        position = core.StepAxis(core.Role.LABEL, ("action",))
        layered = tuple(by_layer) if layers else ()
        return core.ForwardTrace(logits, (int(logits.argmax()),), position, (axis,), ACTIONS.__getitem__, layered)

    def attention_snapshot(self) -> list[Prediction]:
        return list(
            self.predict([{"state": torch.tensor(example_inputs()["state"])}], core.PredictOptions(attention=True))
        )


def observe(walker: Tensor, goal: Tensor) -> Tensor:
    """Return the observations of walkers: the cells (B, C) of their corridors."""
    cells = torch.full((len(walker), CELLS), EMPTY)
    cells.scatter_(1, goal[:, None], GOAL)
    cells.scatter_(1, walker[:, None], WALKER)
    return cells


# Used by the task battery
SETTINGS: list[str] = []


def write_data(folder: Path) -> Path:
    """Write a data file; the environment needs only its name."""
    path = folder / "corridor.txt"
    path.write_text("corridor\n")
    return path


def example_inputs() -> dict[str, Any]:
    """Return the inputs of one example."""
    return {"state": [WALKER, EMPTY, EMPTY, EMPTY, GOAL, EMPTY]}
