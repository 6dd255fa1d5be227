"""Continuous actions end to end: a linear controller of an inverted pendulum is cloned and imitated in MuJoCo."""

from pathlib import Path

import numpy as np
import pytest

import saccade
from saccade.data.environments import Environments
from saccade.errors import DataError, UsageError

pytest.importorskip("mujoco", reason="the pendulum is an environment of MuJoCo")

NAME = "InvertedPendulum-v5"
GAINS = np.array([0.5, 6.0, 0.7, 1.0])  # of position, angle and their velocities
LOOP = ["train.device=cpu", "episodes=4", "train.precision=float32"]
TINY = ["model.transformer.dim=16", "model.transformer.depth=1", "model.transformer.heads=2", "model.history=3"]
GAIL = ["environments=8", "rollout_steps=32", "batch_size=64", "max_steps=100"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SACCADE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Five episodes of the controller with noise, 100 steps each, as npz."""
    draw, environments = np.random.default_rng(1), Environments(NAME, range(5), max_steps=100)
    parts = {"observations": [], "actions": [], "rewards": [], "dones": []}
    for _ in range(100):
        seen = environments.observations.copy()
        actions = (seen @ GAINS)[:, None]
        moved = environments.step(actions + draw.normal(0, 0.3, actions.shape))
        for name, value in zip(parts, (seen, actions, moved.rewards, moved.ended), strict=True):
            parts[name].append(value)
    assert not np.stack(parts["dones"])[:-1].any(), "the controller balances"
    path = tmp_path_factory.mktemp("pendulum") / "expert.npz"
    np.savez(
        path, **{name: np.swapaxes(np.stack(value), 0, 1).reshape(500, -1).squeeze() for name, value in parts.items()}
    )
    return path


def train(data, root, task, *overrides, callbacks=(), name="run"):
    settings = [*LOOP, f"environment={NAME}", *overrides]
    return saccade.train(data, task=task, name=name, root=root, overrides=settings, callbacks=callbacks, progress=False)


class Stop(saccade.Callback):
    def on_step(self, record, progress, total):
        if record["step"] == 5:
            raise KeyboardInterrupt


# Without a display the replay has no frames, and the graphics library warns of it when it is collected.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::Warning:glfw")
def test_a_cloned_controller_balances_the_pendulum(data, tmp_path, cache):
    run = train(data, tmp_path, "behaviour_cloning", "model.architecture=mlp", "train.steps=150", "batch_size=128")
    assert run.metrics["rmse"] < 0.2 and run.metrics["return_expert"] == 100
    assert run.metrics["return"] > 10 * run.metrics["return_random"]
    model = saccade.load(run.path)
    answer = model(observations=[[0.0, 0.1, 0.0, 0.0]])
    assert float(answer.output.actions[0]) == pytest.approx(GAINS[1] * 0.1, abs=0.3)
    episode = model.replay(1)
    assert episode["labels"] == [] and all(len(step["action"]) == 1 for step in episode["steps"])
    assert episode["return"] == len(episode["steps"]) and all(step["probabilities"] == [] for step in episode["steps"])


@pytest.mark.parametrize("task", ["behaviour_cloning", "adversarial_imitation"])
def test_a_resumed_run_of_a_gaussian_policy_has_the_same_bits(task, data, tmp_path, cache):
    settings = [*TINY, "train.steps=8", "train.save_every=4", "train.evaluate_every=8"]
    settings += GAIL if task == "adversarial_imitation" else ["batch_size=64"]
    if task == "adversarial_imitation":
        settings.append("model.architecture=transformer")
    run = train(data, tmp_path / "whole", task, *settings)
    with pytest.raises(KeyboardInterrupt):
        train(data, tmp_path / "cut", task, *settings, callbacks=[Stop()])
    resumed = saccade.resume("run", root=tmp_path / "cut", progress=False)
    folders = [Path(one.path) / "checkpoints" / "step-000008" for one in (run, resumed)]
    names = sorted(path.name for path in folders[0].glob("*.safetensors"))
    assert "model.safetensors" in names and names == sorted(path.name for path in folders[1].glob("*.safetensors"))
    for name in names:
        assert folders[0].joinpath(name).read_bytes() == folders[1].joinpath(name).read_bytes(), name
    assert run.metrics == resumed.metrics


def test_gail_moves_a_gaussian_policy_within_its_trust_region(data, tmp_path, cache):
    run = train(data, tmp_path, "adversarial_imitation", *GAIL, "train.steps=12", "train.evaluate_every=6")
    task = saccade.load(run.path).task
    assert task.policy.log_std is not None and bool(task.policy.log_std.abs().gt(0).all()), "the noise is learned"
    assert run.metrics["return"] > run.metrics["return_random"] and "discriminator_accuracy" in run.metrics


def test_continuous_data_do_not_fit_an_environment_of_labels(data, tmp_path, cache):
    with pytest.raises(DataError, match="actions of 1 number, expected 2 actions as in CartPole-v1"):
        saccade.train(data, task="behaviour_cloning", environment="CartPole-v1", root=tmp_path, progress=False)
    with pytest.raises(UsageError, match="observations must have 4 numbers each, but have 2"):
        run = train(data, tmp_path, "behaviour_cloning", "train.steps=1", "train.evaluate_every=1", *TINY)
        saccade.load(run.path)(observations=[[0.0, 0.1]])
