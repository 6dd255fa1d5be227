"""Policy task: base class of tasks that imitate recorded actions, evaluated in an environment if there is one.

B rows, T steps, D numbers of an observation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from saccade.atomic_io import read_json, write_json
from saccade.core import (
    ActionsOutput,
    AttentionMap,
    AttentionMaps,
    Base,
    Evaluation,
    ForwardTrace,
    Metric,
    Prediction,
    PredictOptions,
    Progress,
    Role,
    Split,
    StepAxis,
    Task,
    Vector,
    ignore_progress,
)
from saccade.data.environments import ActionSpace, Environments, check_limited, spaces
from saccade.data.episodes import Episodes, action_space, encode_actions
from saccade.data.fingerprints import fingerprint
from saccade.data.formats.trajectories import TrajectorySettings, read_trajectories
from saccade.errors import DataError, UsageError
from saccade.metrics.returns import ReturnScore, summarise
from saccade.models.policy.distributions import Categorical
from saccade.models.policy.policy import Policy, PolicyConfig, Scale
from saccade.nn.probe import RecordedRow, watch
from saccade.tasks._policy import replaying
from saccade.tasks._policy.rollouts import SELECTION_SEED, TEST_SEED, act, act_randomly, episode_returns

ASSETS = "policy.json"
QUICK_EPISODES = 20
EVALUATED = 20_000  # held-out steps at most
LEAST_DEVIATION = 1e-6  # of a number that never changes
BATCH = 1024


@dataclass(frozen=True)
class PolicyTaskConfig:
    """Settings of a task that imitates."""

    data: TrajectorySettings = field(default_factory=TrajectorySettings)
    model: PolicyConfig = field(default_factory=PolicyConfig)
    environment: str = ""
    """environment of gymnasium in which the policy acts, such as CartPole-v1"""
    episodes: int = 100
    """episodes of the final evaluation"""

    def __post_init__(self) -> None:
        if self.episodes < 2:
            raise ValueError(f"episodes must be at least 2, but is {self.episodes}")


@dataclass(frozen=True)
class Description:
    """Observations and actions as the networks need them, without the data."""

    space: ActionSpace
    observations: Scale
    actions: Scale | None
    expert: Mapping[str, float]
    """the expert's return as in `ReturnScore`, and the length of its longest episode; empty: not recorded"""


class PolicyTask(Task):
    """A policy that imitates recorded actions; `policy` is built here, its training is that of the subclass."""

    unit: ClassVar[str] = "steps"
    environment_setting: ClassVar[str] = "environment"
    needs: ClassVar[str] = "recorded episodes: observations and actions"

    def __init__(self, config: Any, description: Description) -> None:
        self.config, self.description = config, description
        self.space = description.space
        self.policy = self.build_policy()
        size = len(description.observations.mean)
        help = f"observations of the last steps, {size} numbers each, the newest last"
        self.inputs = (Vector("observations", sequence=True, help=help),)
        self.metric = Metric("return", True) if config.environment else Metric("loss", False)
        self.splits: dict[Split, Episodes] = {}
        self.actions: dict[Split, Tensor] = {}
        self._environments: dict[int, Environments] = {}
        self._random: dict[int, np.ndarray[Any, Any]] = {}

    def build_policy(self) -> Policy:
        """Return a new policy."""
        scale, actions = self.description.observations, self.description.actions
        return Policy(self.config.model, scale, labels=len(self.space.labels), actions=actions)

    # Data

    @classmethod
    def read(cls, config: Any, data: Path) -> tuple[Episodes, Episodes]:
        """Return the steps for training and for validation."""
        episodes = read_trajectories(data, config.data)
        if config.data.valid:
            return episodes, read_trajectories(Path(config.data.valid), config.data)
        return episodes.split(config.data.valid_fraction)

    @classmethod
    def prepare(
        cls, config: Any, data: Path, assets: Path, *, base: Base = None, progress: Progress = ignore_progress
    ) -> list[str]:
        episodes = read_trajectories(data, config.data)
        train, _ = cls.read(config, data)
        space = action_space(episodes, config.data.actions)
        size = episodes.observations.shape[1]
        if config.environment:
            space = _environment_space(config.environment, episodes, space)
        actions = None if space.discrete else _scale(encode_actions(train, space))
        returns = episodes.returns()
        expert = (
            {} if returns is None else {**vars(summarise(returns)), "longest": (episodes.ends - episodes.starts).max()}
        )
        described = {
            "space": vars(space),
            "observations": vars(_scale(train.observations)),
            "actions": None if actions is None else vars(actions),
            "expert": {name: float(value) for name, value in expert.items()},
        }
        write_json(assets / ASSETS, described)
        kind = f"{space.describe()}; a policy that sees {config.model.window} of {size} numbers each"
        where = f"evaluated in {config.environment}" if config.environment else "not evaluated in an environment"
        return [*episodes.notes(), f"{kind}, {where}"]

    @classmethod
    def open(cls, config: Any, assets: Path) -> PolicyTask:
        described = read_json(assets / ASSETS)
        space: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in described["space"].items()}
        actions = described["actions"]
        return cls(
            config,
            Description(
                ActionSpace(**space),
                Scale(**described["observations"]),
                None if actions is None else Scale(**actions),
                described["expert"],
            ),
        )

    def load_data(self, data: Path, *, eval_only: bool = False, progress: Progress = ignore_progress) -> list[str]:
        if eval_only:
            splits = {Split.VALID: read_trajectories(data, self.config.data)}
        else:
            train, valid = self.read(self.config, data)
            splits = {Split.TRAIN: train, Split.VALID: valid}
        size = len(self.description.observations.mean)
        for episodes in splits.values():
            if episodes.observations.shape[1] != size:
                numbers = f"an observation of {episodes.observations.shape[1]} numbers, expected {size}"
                raise DataError(f"{episodes.origins.describe(0)}: {numbers} as in the training data")
        self.set_splits(splits)
        self.fingerprint = fingerprint(splits.values())
        counts = [f"{len(episodes):,} {split.value}" for split, episodes in splits.items()]
        return [f"steps: {', '.join(counts)}"]

    def set_splits(self, splits: dict[Split, Episodes]) -> None:
        """Store the splits with their actions as the policy reads them."""
        self.splits = splits
        self.actions = {
            split: torch.from_numpy(encode_actions(episodes, self.space)) for split, episodes in splits.items()
        }

    def window(self, split: Split, steps: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Return histories (B, T, D) that end with some steps, their actions (B, T, ...) and which are real (B, T)."""
        episodes, size = self.splits[split], self.config.model.window
        last = np.asarray(steps, dtype=np.int64)
        first = episodes.windows(size)[last]
        at = first[:, None] + np.arange(size)  # (B, T)
        keep = at <= last[:, None]
        at = np.minimum(at, last[:, None])
        observations = torch.from_numpy(episodes.observations[at]) * torch.from_numpy(keep)[..., None]
        return observations, self.actions[split][torch.from_numpy(at)], torch.from_numpy(keep)

    # Evaluation

    def evaluate(self, split: Split, *, quick: bool = False, progress: Progress = ignore_progress) -> Evaluation:
        values, notes = self.held_out(split), list[str]()
        if self.config.environment:
            returns, notes = self.returns(quick, progress)
            values = {**returns, **values}
        return Evaluation(values, notes=notes)

    @torch.no_grad()
    def held_out(self, split: Split) -> dict[str, float]:
        """Return loss and accuracy, or the root mean squared error, of recorded steps."""
        count = len(self.splits[split])
        steps = np.arange(0, count, max(1, -(-count // EVALUATED)))
        losses, errors = [], []
        for block in np.array_split(steps, -(-len(steps) // BATCH)):
            observations, actions, keep = self.window(split, block.tolist())
            lengths = keep.sum(1)
            device = self.device()
            policy = self.policy.act(observations.to(device), lengths.to(device))
            target = actions[torch.arange(len(lengths)), lengths - 1].to(device)
            losses.append(-policy.log_prob(self.policy.to_targets(target)))
            difference = self.space.clip(self.policy.to_actions(policy.mode())) - target
            errors.append((difference != 0).float() if self.space.discrete else difference.square().mean(-1))
        loss, error = float(torch.cat(losses).mean()), float(torch.cat(errors).mean())
        fit = {"accuracy": 100 * (1 - error)} if self.space.discrete else {"rmse": error**0.5}
        return {"loss": loss, **fit, "held_out_steps": len(steps)}

    def returns(self, quick: bool, progress: Progress) -> tuple[dict[str, float], list[str]]:
        """Return the return of episodes by the policy, beside a random policy's and the expert's, and notes.

        Seeds are fixed; those of the quick evaluation, which chooses a checkpoint, are not those of the final one.
        """
        count = min(QUICK_EPISODES, self.config.episodes) if quick else self.config.episodes
        seed, window = SELECTION_SEED if quick else TEST_SEED, self.config.model.window
        if count not in self._environments:
            self._environments[count] = Environments(self.config.environment, range(count))
        environments = self._environments[count]
        generator = torch.Generator().manual_seed(seed)
        score = summarise(episode_returns(environments, act(self.policy, generator), window, seed))
        values = {"return": score.mean, "return_deviation": score.deviation, "episodes": count}
        if quick:
            return values, []
        progress(0.4)
        greedy = summarise(episode_returns(environments, act(self.policy, None), window, seed))
        progress(0.8)
        if count not in self._random:
            choose = act_randomly(self.config.environment, seed)
            self._random[count] = episode_returns(environments, choose, 1, seed)
        random = summarise(self._random[count])
        values |= {"return_low": score.low, "return_high": score.high, "return_greedy": greedy.mean}
        values |= {"return_random": random.mean}
        notes = [f"return of the policy: {score.describe()}", f"of its most probable actions: {greedy.describe()}"]
        notes += [f"of random actions: {random.describe()}", *self._expert_notes(environments.limit)]
        if self.description.expert:
            values["return_expert"] = self.description.expert["mean"]
        return values, notes

    def _expert_notes(self, limit: int) -> list[str]:
        """Return the recorded return of the expert for the user, and whether it can be compared."""
        recorded = dict(self.description.expert)
        if not recorded:
            return ["of the expert: not in the data"]
        longest, episodes = int(recorded.pop("longest")), int(recorded.pop("episodes"))
        notes = [f"of the expert: {ReturnScore(**recorded, episodes=episodes).describe()}"]
        if longest < limit:
            lengths = f"at most {longest} steps, those of {self.config.environment} up to {limit}"
            notes.append(f"the expert's return cannot be compared with the others: its episodes have {lengths}")
        return notes

    # Inference

    def predict(self, inputs: Sequence[Mapping[str, Any]], options: PredictOptions) -> Iterator[Prediction]:
        for example in inputs:
            observations, notes = self._history(example["observations"])
            lengths = torch.tensor([len(observations)])
            maps: Mapping[str, Any] = {}
            with torch.no_grad():
                if options.attention and self.policy.encoder is not None:
                    with watch(self.policy) as maps:
                        policy = self.policy.act(observations[None], lengths)
                else:
                    policy = self.policy.act(observations[None], lengths)
            axis = history_axis(len(observations))
            attention = AttentionMaps(AttentionMap(name, RecordedRow(m, 0), axis, axis) for name, m in maps.items())
            actions, scores = self._answer(policy)
            yield Prediction(example, ActionsOutput(actions), scores, attention, trace=observations, notes=notes)

    def _history(self, observations: Tensor) -> tuple[Tensor, tuple[str, ...]]:
        """Return the steps that the policy sees, on its device, and a note if there are more."""
        size, window = len(self.description.observations.mean), self.config.model.window
        if observations.shape[1] != size:
            raise UsageError(f"observations must have {size} numbers each, but have {observations.shape[1]}")
        given = len(observations)
        note = (f"the policy sees the last {window} of {given} observations",) if given > window else ()
        return observations[-window:].to(self.device()), note

    def _answer(self, policy: Any) -> tuple[tuple[str, ...], dict[str, float]]:
        """Return the most probable action as text, and probabilities or numbers by name."""
        if isinstance(policy, Categorical):
            probabilities = policy.logits.softmax(-1)[0].tolist()
            scores = dict(zip(self.space.labels, probabilities, strict=True))
            return (max(scores, key=scores.__getitem__),), scores
        numbers = self.space.clip(self.policy.to_actions(policy.mode()))[0].tolist()
        return tuple(f"{number:.4g}" for number in numbers), {f"action {n}": v for n, v in enumerate(numbers)}

    def rerun(self, prediction: Prediction, *, layers: bool = False) -> ForwardTrace:
        observations, states = prediction.trace, list[Tensor]()
        observations = observations.to(self.policy.head.weight.dtype)
        outputs = self.policy.outputs(observations[None], states)[:, -1]  # (1, L or A)
        by_layer: list[tuple[str, Tensor]] = []
        if layers and self.policy.encoder is not None:
            vectors = [*map(self.policy.encoder.norm, states[1:-1]), states[-1]]
            by_layer = [(f"encoder.{n}", self.policy.head(x[:, -1])) for n, x in enumerate(vectors)]
        axis = history_axis(len(observations))
        if self.space.discrete:
            position, chosen = StepAxis(Role.LABEL, ("action",)), (int(outputs.argmax()),)
            return ForwardTrace(outputs, chosen, position, (axis,), self.space.labels.__getitem__, tuple(by_layer))
        numbers = [(name, self.policy.to_actions(value).t()) for name, value in [("", outputs), *by_layer]]  # (A, 1)
        names = StepAxis(Role.LABEL, tuple(f"action {n}" for n in range(self.space.dim)))
        first = (0,) * self.space.dim
        return ForwardTrace(numbers[0][1], first, names, (axis,), lambda _: "value", tuple(numbers[1:]))

    def attention_snapshot(self) -> list[Prediction]:
        episodes, window = self.splits[Split.VALID], self.config.model.window
        if self.policy.encoder is None:
            return []
        steps = {min(window, len(episodes)) - 1, len(episodes) - 1}
        first = episodes.windows(window)
        inputs = [{"observations": torch.from_numpy(episodes.observations[first[n] : n + 1])} for n in sorted(steps)]
        return list(self.predict(inputs, PredictOptions(attention=True)))

    def replay(self, seed: int) -> Mapping[str, Any]:
        if not self.config.environment:
            return super().replay(seed)
        return replaying.replay(self.policy, self.space, self.config.environment, self.config.model.window, seed)


def history_axis(count: int) -> StepAxis:
    """Return the axis of the last observations: t-2, t-1, t."""
    return StepAxis(Role.STATE, tuple(f"t-{count - 1 - n}" if n < count - 1 else "t" for n in range(count)))


def _scale(values: Any) -> Scale:
    deviation = np.maximum(values.std(0), LEAST_DEVIATION)
    return Scale([float(v) for v in values.mean(0)], [float(v) if v > LEAST_DEVIATION else 1.0 for v in deviation])


def _environment_space(name: str, episodes: Episodes, space: ActionSpace) -> ActionSpace:
    """Return the actions of an environment, if the data fit it."""
    size, own = spaces(name)
    check_limited(name)
    recorded = episodes.observations.shape[1]
    where = episodes.origins.describe(0)
    if recorded != size:
        raise DataError(f"{where}: an observation of {recorded} numbers, expected {size} as in {name}")
    if own.discrete != space.discrete and own.discrete:
        raise DataError(f"{where}: {space.describe()}, expected {own.describe()} as in {name}")
    encode_actions(episodes, own)
    return own
