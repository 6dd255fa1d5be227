"""Environments: copies step as gymnasium does, and continue exactly from a saved state."""

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("gymnasium", reason="environments need gymnasium")

import gymnasium

from saccade.data import environments as module
from saccade.data.environments import Environments, check_limited, check_resumable, spaces
from saccade.errors import UsageError
from saccade.tasks._policy.rollouts import act_randomly, episode_returns

NAMES = ["CartPole-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1"]
MUJOCO = ["Hopper-v5", "HalfCheetah-v5", "Ant-v5"]


def actions_of(name: str, copies: int, steps: int) -> list[np.ndarray]:
    space, draw = module.make(name).action_space, np.random.default_rng(0)
    return [np.stack([module.random_action(space, draw) for _ in range(copies)]) for _ in range(steps)]


@pytest.mark.parametrize("name", NAMES)
def test_copies_step_as_gymnasium_does(name: str) -> None:
    ours, theirs = Environments(name, [7]), gymnasium.make(name)
    observation, _ = theirs.reset(seed=7)
    for action in actions_of(name, 1, 300):
        np.testing.assert_array_equal(ours.observations[0], observation)
        step = ours.step(action)
        given = module.to_action(theirs.action_space, action[0])
        observation, reward, terminated, truncated, _ = theirs.step(given)
        assert (float(step.rewards[0]), bool(step.terminated[0])) == (float(reward), bool(terminated))
        assert bool(step.ended[0]) == (terminated or truncated)
        np.testing.assert_array_equal(step.last[0], observation)
        if terminated or truncated:
            observation, _ = theirs.reset()


@pytest.mark.parametrize("name", [*NAMES, *MUJOCO])
def test_a_saved_state_continues_exactly_through_the_ends_of_episodes(name: str) -> None:
    if name in MUJOCO:
        pytest.importorskip("mujoco", reason="MuJoCo is not installed")
    actions = actions_of(name, 2, 120)
    one, other = Environments(name, [1, 2], max_steps=30), Environments(name, [3, 4], max_steps=30)
    for action in actions[:45]:
        one.step(action)
    other.load_state({key: value.clone() for key, value in one.state().items()})
    for action in actions[45:]:
        first, second = one.step(action), other.step(action)
        np.testing.assert_array_equal(first.rewards, second.rewards)
        np.testing.assert_array_equal(one.observations, other.observations)
        np.testing.assert_array_equal(first.ended, second.ended)
    assert all(torch.equal(value, other.state()[key]) for key, value in one.state().items())
    check_resumable(name)


def test_the_time_limit_ends_an_episode_and_starts_the_next() -> None:
    environments = Environments("Pendulum-v1", [1], max_steps=5)
    ends = [bool(environments.step(np.zeros((1, 1))).truncated[0]) for _ in range(11)]
    assert [number for number, end in enumerate(ends, 1) if end] == [5, 10]
    assert environments.steps.tolist() == [1]


def test_actions_are_clipped_to_their_bounds() -> None:
    one, other = Environments("Pendulum-v1", [1]), Environments("Pendulum-v1", [1])
    one.step(np.full((1, 1), 100.0))
    other.step(np.full((1, 1), 2.0))
    np.testing.assert_array_equal(one.observations, other.observations)


def test_continuous_actions_are_clipped_for_networks_too() -> None:
    _, space = spaces("Pendulum-v1")
    torch.testing.assert_close(space.clip(torch.tensor([[5.0], [-9.0], [0.5]])), torch.tensor([[2.0], [-2.0], [0.5]]))
    labels = torch.tensor([0, 1])
    assert spaces("CartPole-v1")[1].clip(labels) is labels and module.ActionSpace((), 1).clip(labels) is labels


def test_spaces_are_described() -> None:
    assert spaces("CartPole-v1") == (4, module.ActionSpace(("0", "1")))
    size, space = spaces("Pendulum-v1")
    assert (size, space.dim, space.low, space.high) == (3, 1, (-2.0,), (2.0,))


def test_an_unknown_environment_is_named() -> None:
    with pytest.raises(UsageError, match="no environment 'CartPol-v1' in gymnasium; did you mean 'CartPole-v1'"):
        Environments("CartPol-v1", [1])


def test_observations_that_are_no_vectors_are_refused() -> None:
    with pytest.raises(
        UsageError, match="the observations of 'FrozenLake-v1' must be vectors of numbers, but are Discr"
    ):
        spaces("FrozenLake-v1")


class Walk(gymnasium.Env):
    """A random walk whose position is hidden from `_save`, unless a subclass saves it."""

    observation_space = gymnasium.spaces.Box(-9, 9, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.position = 0.0
        return np.array([self.position], np.float32), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.position += (2 * action - 1) * float(self.np_random.random())
        return np.array([self.position], np.float32), 1.0, abs(self.position) > 3, False, {}


class EndlessWalk(Walk):
    """Never ends by itself."""

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, _, _, info = super().step(action)
        return observation, reward, False, False, info


class CutWalk(Walk):
    def reset(self, **settings: Any) -> tuple[Any, dict[str, Any]]:
        self.taken = 0
        return super().reset(**settings)

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.taken += 1
        observation, reward, _, _, info = super().step(action)
        return observation, reward, False, self.taken == 7, info


class SavedWalk(Walk):
    def state_dict(self) -> dict[str, np.ndarray]:
        return {"position": np.array(self.position)}

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        self.position = float(state["position"])


class ForgetfulWalk(SavedWalk):
    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        pass


@pytest.fixture
def walks() -> Any:
    names = {"Walk-v0": Walk, "SavedWalk-v0": SavedWalk, "ForgetfulWalk-v0": ForgetfulWalk}
    for name, kind in names.items():
        gymnasium.register(name, kind, max_episode_steps=50)
    gymnasium.register("CutWalk-v0", CutWalk, max_episode_steps=50)
    gymnasium.register("EndlessWalk-v0", EndlessWalk)
    yield
    for name in (*names, "CutWalk-v0", "EndlessWalk-v0"):
        gymnasium.registry.pop(name)


def test_an_environment_without_a_time_limit_is_not_evaluated(walks: None) -> None:
    message = (
        "the episodes of 'EndlessWalk-v0' must have a time limit, but have none, so that an evaluation might never "
        "end; register it with max_episode_steps"
    )
    with pytest.raises(UsageError, match=message):
        check_limited("EndlessWalk-v0")
    with pytest.raises(UsageError, match=message):
        episode_returns(Environments("EndlessWalk-v0", [1]), act_randomly("EndlessWalk-v0", 1), 1, 1)


def test_an_environment_may_truncate_an_episode_itself(walks: None) -> None:
    environments = Environments("CutWalk-v0", [1])
    ends = [environments.step(np.zeros(1)) for _ in range(14)]
    assert [number for number, end in enumerate(ends, 1) if end.truncated[0]] == [7, 14]
    assert not any(end.terminated[0] for end in ends)


def test_an_evaluation_builds_no_environment_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    environments, choose = Environments("CartPole-v1", [1, 2]), act_randomly("CartPole-v1", 1)
    built: list[str] = []
    make = module.make
    monkeypatch.setattr(module, "make", lambda name, **settings: built.append(name) or make(name, **settings))
    returns = episode_returns(environments, choose, 1, 5)
    assert len(returns) == 2 and returns.min() >= 8 and len(built) <= 1, "one, which knows the time limit"


def test_an_environment_with_state_dict_can_be_resumed(walks: None) -> None:
    check_resumable("SavedWalk-v0")


def test_an_environment_without_a_known_state_is_refused_by_name(walks: None) -> None:
    with pytest.raises(UsageError, match=r"the state of 'Walk-v0' cannot be saved.*CartPoleEnv.*state_dict\(\)"):
        check_resumable("Walk-v0")


def test_an_environment_that_does_not_continue_exactly_is_refused_by_name(walks: None) -> None:
    with pytest.raises(UsageError, match="'ForgetfulWalk-v0' does not continue exactly from a saved state"):
        check_resumable("ForgetfulWalk-v0")


def test_a_missing_gymnasium_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(module.importlib, "import_module", missing)
    with pytest.raises(UsageError, match=r"environments need gymnasium; install it with: pip install 'saccade\[rl\]'"):
        module.require_gymnasium()
