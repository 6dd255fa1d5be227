"""GAIL: demonstrations of an expert and of random actions take the same path, and an end is rewarded as it is there."""

from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("gymnasium", reason="environments need gymnasium")

from saccade.config import override
from saccade.core import Split
from saccade.demo.cartpole import write_cartpole
from saccade.errors import UsageError
from saccade.tasks import load_task
from saccade.tasks.adversarial_imitation import random_episodes

NAME = "CartPole-v1"
TINY = [f"environment={NAME}", "environments=4", "rollout_steps=32", "batch_size=32", "value_steps=1", "episodes=2"]


def write_steps(folder: Path, episodes) -> Path:
    """Write observations and actions, without a word on episodes."""
    folder.mkdir(exist_ok=True)
    rows = (" ".join(f"{value:.6g}" for value in row) + "\n" for row in episodes.observations)
    (folder / "observations.csv").write_text("".join(rows))
    (folder / "actions.csv").write_text("".join(f"{action}\n" for action in episodes.actions))
    return folder


@pytest.fixture(scope="module")
def expert(tmp_path_factory):
    return write_cartpole(tmp_path_factory.mktemp("expert"), episodes=6).train


@pytest.fixture(scope="module")
def unmarked(tmp_path_factory):
    return write_steps(tmp_path_factory.mktemp("random"), random_episodes(NAME, 1500, 7))


@pytest.fixture
def load(tmp_path):
    def load_task_on(data, *overrides):
        kind = load_task("adversarial_imitation")
        config = override(kind.Config(), [*TINY, *overrides])
        assets = tmp_path / f"assets{len(list(tmp_path.iterdir()))}"
        assets.mkdir()
        prepared = kind.prepare(config, data, assets)
        torch.manual_seed(1)
        task = kind.open(config, assets)
        return task, [*prepared, *task.load_data(data)]

    return load_task_on


def test_random_episodes_are_those_of_an_environment_with_their_terminations():
    episodes = random_episodes(NAME, 1000, 3)
    lengths = episodes.ends - episodes.starts
    assert len(episodes) == 1000 and set(episodes.actions) == {"0", "1"}
    assert 8 <= np.median(lengths) < 40 and episodes.terminated is not None
    ended = np.flatnonzero(episodes.terminated)
    assert set(ended + 1) <= {*episodes.starts.tolist(), 1000}, "a termination is the end of an episode"
    assert len(ended) > episodes.count - 40, "all others were cut at the end of the recording"
    assert np.abs(episodes.observations[episodes.starts]).max() <= 0.05, "where the environment starts"
    np.testing.assert_array_equal(episodes.returns(), lengths)
    again, other = random_episodes(NAME, 1000, 3), random_episodes(NAME, 1000, 4)
    assert episodes.fingerprint() == again.fingerprint() != other.fingerprint()


def test_the_control_has_the_terminations_scale_and_size_of_its_own_demonstrations(load, expert):
    task, notes = load(expert, "control=random")
    plain, _ = load(expert)
    assert len(task.splits[Split.TRAIN]) == len(plain.splits[Split.TRAIN])
    assert "control: the demonstrations are replaced by random actions; the return must stay low" in notes
    assert task.expert_rate == pytest.approx(0.045, abs=0.015) and plain.expert_rate < 0.005
    assert any(note.startswith("terminal states: ") and "as recorded" in note for note in notes)
    angle = [one.description.observations.deviation[2] for one in (task, plain)]
    assert angle[0] > 1.5 * angle[1], "observations are scaled by the demonstrations that are imitated"


def test_unmarked_demonstrations_of_random_actions_are_not_taken_for_an_expert_that_never_falls(load, unmarked):
    """The apples-to-apples control: the same files as those of an expert, with random actions, and no setting."""
    task, notes = load(unmarked)
    assert task.splits[Split.TRAIN].marked is False
    assert task.expert_rate == pytest.approx(0.045, abs=0.015)
    assert any("which start where the observation jumps" in note for note in notes)


def test_expert_ends_overrides_what_is_inferred(load, expert, unmarked):
    never, notes = load(unmarked, "expert_ends=limit")
    assert never.expert_rate == 0
    assert any("avoiding a terminal state is rewarded, whatever is imitated" in note for note in notes)
    steps = len(expert.read_text().splitlines()) - 1
    assert load(expert, "expert_ends=terminal")[0].expert_rate == 6 / steps


def test_ends_count_even_where_the_last_steps_of_each_episode_are_held_out(load, tmp_path):
    episodes = random_episodes(NAME, 1000, 5)
    chosen = np.flatnonzero(episodes.terminated)[:3] + 1
    rows = ["a,b,c,d,action,terminated"]
    for step in range(int(chosen[-1])):
        numbers = ",".join(f"{value:.6g}" for value in episodes.observations[step])
        rows.append(f"{numbers},{episodes.actions[step]},{int(episodes.terminated[step])}")
    (tmp_path / "three.csv").write_text("\n".join(rows) + "\n")
    task, _ = load(tmp_path / "three.csv")
    assert task.expert_rate == 3 / int(chosen[-1]) and not task.splits[Split.TRAIN].terminated.any()


def test_terminal_ends_need_to_be_in_the_data(load, tmp_path):
    calm = random_episodes(NAME, 40, 1).take(np.arange(20))
    calm.observations[:] = np.linspace(0, 0.01, 20)[:, None]
    data = write_steps(tmp_path / "calm", calm)
    with pytest.raises(
        UsageError, match=r"for data that do not say where episodes end, but is terminal; mark the ends"
    ):
        load(data, "expert_ends=terminal")


@pytest.mark.parametrize(("rate", "sign"), [(0.0, -1), (1.0, 1)])
def test_a_fall_is_worse_than_surviving_only_for_an_expert_that_falls_less(load, expert, rate, sign, monkeypatch):
    """With a discriminator that cannot tell steps apart, the ends of episodes alone decide."""
    task, _ = load(expert)
    task.expert_rate = rate
    monkeypatch.setattr(task.discriminator, "cost", lambda seen, acted: torch.full((len(seen),), -np.log(2)))
    monkeypatch.setattr(task.value, "values", lambda seen: torch.zeros(seen.shape[:-1]))
    batch = task.source(Split.TRAIN, 1).at(0)[0]
    fell = batch.terminated.flatten()
    assert fell.any()
    networks = {name: lambda *_: torch.zeros(()) for name in ("discriminator", "value")}
    gains = []
    networks["policy"] = lambda _histories, _lengths, _actions, advantages, _entropy: gains.append(advantages)
    list(task.losses(batch, networks))
    assert sign * float(gains[0][fell].mean() - gains[0][~fell].mean()) > 0


def test_rollouts_keep_time_limits_and_the_observation_before_the_next_episode(load, expert):
    task, _ = load(expert, "max_steps=5")
    batch = task.source(Split.TRAIN, 1).at(0)[0]
    assert batch.truncated[4].all() and not batch.terminated.any()
    torch.testing.assert_close(batch.following[0], batch.observations[1])
    assert not torch.equal(batch.following[4], batch.observations[5]), "the next episode starts elsewhere"
    assert batch.to("cpu").truncated.equal(batch.truncated)


def test_after_a_run_the_command_of_its_control_is_printed(load, expert):
    task, _ = load(expert, "data.valid_fraction=0.2")
    changed = "data.valid_fraction=0.2 environment=CartPole-v1 episodes=2 environments=4 rollout_steps=32"
    (note,) = [note for note in task.evaluate(Split.VALID).notes if "imitates only" in note]
    assert note == (
        "the policy imitates only if that of random demonstrations has a low return: saccade train "
        f"{expert} --task adversarial_imitation {changed} value_steps=1 batch_size=32 control=random "
        "(with the train settings of this run)"
    )
    assert not [note for note in task.evaluate(Split.VALID, quick=True).notes if "imitates only" in note]
    control, _ = load(expert, "control=random")
    assert not [note for note in control.evaluate(Split.VALID).notes if "imitates only" in note]


def test_a_return_of_shorter_episodes_is_not_compared(load, unmarked, expert, tmp_path):
    table = tmp_path / "short.csv"
    lines = expert.read_text().splitlines()
    first = [line for line in lines[1:] if line.startswith("0,")][:60]
    second = [line for line in lines[1:] if line.startswith("1,")][:60]
    table.write_text("\n".join([lines[0], *first, *second]) + "\n")
    notes = load(table)[0].evaluate(Split.VALID).notes
    assert "of the expert: 60.0 ± 0.0 (95% interval 60.0 to 60.0, 2 episodes)" in notes
    assert (
        "the expert's return cannot be compared with the others: its episodes have at most 60 steps, those of "
        "CartPole-v1 up to 500"
    ) in notes
    assert not [note for note in load(expert)[0].evaluate(Split.VALID).notes if "cannot be compared" in note]
    assert "of the expert: not in the data" in load(unmarked)[0].evaluate(Split.VALID).notes


def test_the_discriminator_and_predictions_see_actions_as_the_environment_takes_them(tmp_path):
    """Those beyond the bounds of Pendulum, 2 either way, do the same as the bound; the policy's density does not."""
    recorded = random_episodes("Pendulum-v1", 400, 1)
    np.savez(tmp_path / "steps.npz", observations=recorded.observations, actions=4 * recorded.actions)
    kind = load_task("adversarial_imitation")
    config = override(kind.Config(), [*TINY, "environment=Pendulum-v1", "discriminator_steps=1"])
    kind.prepare(config, tmp_path / "steps.npz", tmp_path)
    torch.manual_seed(1)
    task = kind.open(config, tmp_path)
    task.load_data(tmp_path / "steps.npz")
    batch = task.source(Split.TRAIN, 1).at(0)[0]
    assert float(batch.actions.abs().max()) > 2, "the policy acts beyond the bounds, as the data do"
    seen = {}

    def record(name, result):
        return lambda *inputs: seen.setdefault(name, inputs) and result

    networks = {name: record(name, torch.zeros(())) for name in ("discriminator", "value", "policy")}
    list(task.losses(batch, networks))
    (_, own), (_, expert), *_ = seen["discriminator"]
    assert float(own.abs().max()) == float(expert.abs().max()) == 2
    torch.testing.assert_close(seen["policy"][2], batch.actions.flatten(0, 1))
    with torch.no_grad():
        task.policy.head.bias.fill_(50.0)
    (answer,) = task.predict([{"observations": torch.zeros(1, 3)}], task.Options())
    assert answer.output.actions == ("2",) and answer.scores == {"action 0": 2.0}
