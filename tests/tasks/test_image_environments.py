"""Image policies in gymnasium environments: frames are observations or rendered, and episodes have a return."""

import importlib.util
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

pytest.importorskip("gymnasium", reason="environments need gymnasium")

import gymnasium

import saccade
from saccade.cli import main
from saccade.config import override
from saccade.core import GridAxis, Split, bind
from saccade.errors import UsageError
from saccade.tasks import load_task
from saccade.tasks._worlds.playing import check_playable, evaluate_play, frames_of, open_environments, play
from tests.tasks.battery import SETTINGS

CELLS, CELL = 5, 8
PIXELS, RENDERED = "Corridor-v0", "RenderedCorridor-v0"


def picture(position: int, target: int) -> np.ndarray:
    """Return a corridor (8, 40, 3): the walker is white, the target red."""
    frame = np.zeros((CELL, CELLS * CELL, 3), np.uint8)
    frame[:, target * CELL : (target + 1) * CELL, 0] = 255
    frame[2:6, position * CELL + 2 : position * CELL + 6] = 255
    return frame


class Corridor(gymnasium.Env):
    """A walker between two ends, one of which is the target; a reward of 1 there, -0.25 for each step."""

    observation_space = gymnasium.spaces.Box(0, 255, (CELL, CELLS * CELL, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.position, self.target = CELLS // 2, int(self.np_random.integers(2)) * (CELLS - 1)
        return self.observe(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.position = min(max(self.position + 2 * action - 1, 0), CELLS - 1)
        reached = self.position == self.target
        return self.observe(), 1.0 if reached else -0.25, reached, False, {}

    def observe(self) -> Any:
        return picture(self.position, self.target)


class RenderedCorridor(Corridor):
    """The same with a vector as observation; it is seen only where it is rendered."""

    observation_space = gymnasium.spaces.Box(0, CELLS, (2,), np.float32)
    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def observe(self) -> Any:
        return np.array([self.position, self.target], np.float32)

    def render(self) -> Any:
        return picture(self.position, self.target)


class Unseen(RenderedCorridor):
    metadata = {"render_modes": []}


@pytest.fixture(scope="module", autouse=True)
def corridors():
    names = {PIXELS: Corridor, RENDERED: RenderedCorridor, "Unseen-v0": Unseen}
    for name, kind in names.items():
        gymnasium.register(name, kind, max_episode_steps=12)
    gymnasium.register("EndlessCorridor-v0", Corridor)
    yield
    for name in (*names, "EndlessCorridor-v0"):
        gymnasium.registry.pop(name)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Frames of six episodes of an expert, three to each side, with rewards."""
    folder = tmp_path_factory.mktemp("corridor")
    rows = ["image,episode,action,reward"]
    for episode in range(6):
        target = episode % 2 * (CELLS - 1)
        for step in range(2):
            name = f"{episode}-{step}.png"
            position = CELLS // 2 + step * (1 if target else -1)
            Image.fromarray(picture(position, target)).save(folder / name)
            rows.append(f"{name},{episode},{int(target > 0)},{1.0 if step else -0.25}")
    (folder / "frames.csv").write_text("\n".join(rows) + "\n")
    return folder / "frames.csv"


@pytest.fixture
def prepared(data, tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))

    def make(*overrides):
        kind = load_task("image_policy")
        settings = [*SETTINGS["image_policy"], "world=", "size=24", "data.valid_fraction=0.3", *overrides]
        config = override(kind.Config(), settings)
        (tmp_path / "assets").mkdir()
        kind.prepare(config, data, tmp_path / "assets")
        torch.manual_seed(1)
        task = kind.open(config, tmp_path / "assets")
        task.model.eval()
        task.load_data(data)
        return task

    return make


def expert(frames):
    """Return the probabilities of an expert, which sees on which side the target is."""
    right = torch.tensor([int(frame[0, -1, 0] == 255 and frame[0, -1, 1] == 0) for frame in frames])
    return torch.eye(2)[right]


@pytest.mark.parametrize("name", [PIXELS, RENDERED])
def test_frames_are_observations_or_rendered_and_an_expert_gets_its_return(name):
    environments = open_environments(name, range(8))
    for frame, copy in zip(frames_of(environments, np.arange(8)), environments._copies, strict=True):
        np.testing.assert_array_equal(frame, picture(copy.position, copy.target))
    values, notes = evaluate_play(expert, environments)
    assert values["return"] == 0.75 and values["return_deviation"] == 0 and values["episodes"] == 8
    assert values["return_random"] < 0.5
    assert notes[0] == "return of the policy: 0.8 ± 0.0 (95% interval 0.8 to 0.8, 8 episodes)"
    quick, nothing = evaluate_play(expert, environments, quick=True)
    assert set(quick) == {"return", "return_deviation", "episodes"} and nothing == []
    episode = play(expert, name, 3)
    assert len(episode.frames) == len(episode.actions) == 2 and (episode.total, episode.end) == (0.75, "terminated")
    stubborn = play(lambda frames: torch.eye(2)[[0]], name, next(s for s in range(9) if target_of(s)))
    assert stubborn.end == "time limit" and len(stubborn.actions) == 12 and stubborn.total == -3


def target_of(seed: int) -> int:
    corridor = Corridor()
    corridor.reset(seed=seed)
    return corridor.target


def test_a_policy_is_evaluated_in_its_environment_and_an_episode_has_a_map_over_each_frame(prepared):
    task = prepared(f"environment={PIXELS}", "data.reward_column=reward")
    assert task.metric.name == "return" and task.actions == ("0", "1")
    full = task.evaluate(Split.VALID)
    assert {"return", "return_random", "return_low", "accuracy", "loss"} <= full.values.keys()
    assert "of held-out recorded episodes: 0.8 ± 0.0 (95% interval 0.8 to 0.8, 2 episodes)" in full.notes
    assert task.evaluate(Split.VALID, quick=True).values["episodes"] == 1
    (answer,) = task.predict([bind(task.inputs, (), {"scene": {"seed": 3}})], task.Options(attention=True))
    steps = len(answer.output.actions)
    assert answer.output.reward == pytest.approx(1.25 - 0.25 * steps if steps < 12 else -3)
    for attention in answer.attention.values():
        assert isinstance(attention.keys, GridAxis) and attention.shape[1] == steps == len(attention.queries.frames)
    trace = task.rerun(answer)
    assert [task.actions[int(row.argmax())] for row in trace.logits] == list(answer.output.actions)


def test_without_a_reward_column_the_recorded_return_is_unknown(prepared):
    notes = prepared(f"environment={RENDERED}").evaluate(Split.VALID).notes
    assert "of recorded episodes: unknown; data.reward_column=NAME says which column has the rewards" in notes


def test_a_policy_learns_to_walk_to_the_target(data, tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    settings = [*SETTINGS["image_policy"], "world=", "size=24", f"environment={PIXELS}", "data.valid_fraction=0.3"]
    loop = ["train.steps=60", "train.evaluate_every=60", "train.device=cpu", "train.precision=float32"]
    run = saccade.train(
        data, task="image_policy", root=tmp_path, overrides=[*settings, *loop, "train.optim.lr=0.01"], progress=False
    )
    assert run.metrics["return"] == 0.75 > run.metrics["return_random"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Unseen-v0", "'Unseen-v0' cannot be rendered: it has no render mode rgb_array"),
        (
            "Pendulum-v1",
            "the actions of 'Pendulum-v1' must be discrete for an image policy, but are actions of 1 number",
        ),
        ("EndlessCorridor-v0", "the episodes of 'EndlessCorridor-v0' must have a time limit, but have none"),
    ],
)
def test_an_environment_that_cannot_be_played_from_pictures_is_named(name, message):
    with pytest.raises(UsageError, match=message):
        check_playable(name)


@pytest.mark.skipif(importlib.util.find_spec("pygame") is not None, reason="pygame is installed")
def test_a_missing_graphics_package_is_named():
    with pytest.raises(
        UsageError, match=r"'CartPole-v1' cannot be rendered: .*pygame is not installed, run `pip install"
    ):
        check_playable("CartPole-v1")


@pytest.mark.skipif(importlib.util.find_spec("pygame") is None, reason="CartPole is rendered by pygame")
def test_the_cart_and_the_pole_are_rendered():
    assert check_playable("CartPole-v1") == ("0", "1")


@pytest.mark.parametrize("value", [{"seed": -1}, {"seed": "3"}, {"joints": [0, 1]}, {"seed": True}])
def test_a_seed_is_checked_when_it_is_bound(prepared, value):
    with pytest.raises(UsageError, match=r"scene: .*, expected the seed of an episode, such as \{\"seed\": 3\}"):
        bind(prepared(f"environment={PIXELS}").inputs, (), {"scene": value})


def test_other_actions_and_bad_rewards_are_named(data, tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    text = data.read_text()
    for change, message in (
        (("5-0.png,5,1,", "5-0.png,5,up,"), "other.csv:12: action 'up', expected one of Corridor-v0: 0, 1"),
        (("5-0.png,5,1,-0.25", "5-0.png,5,1,inf"), "other.csv:12: reward 'inf', expected a finite number; correct it"),
    ):
        path = data.with_name("other.csv")
        path.write_text(text.replace(*change))
        settings = ["environment=Corridor-v0", "data.reward_column=reward", "train.steps=1"]
        arguments = ["train", path, "--task", "image_policy", "--runs", tmp_path / "runs", *settings]
        result = CliRunner().invoke(main, list(map(str, arguments)))
        assert result.exit_code == 3 and message in result.stderr, result.stderr
        path.unlink()


def test_a_world_and_an_environment_exclude_each_other():
    with pytest.raises(UsageError, match="world must be empty with an environment, but is reach"):
        override(load_task("image_policy").Config(), ["world=reach", f"environment={PIXELS}"])
