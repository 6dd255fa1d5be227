"""Image policies: frames of an episode stay together, a rollout acts in the world, and its maps lie over each frame."""

import csv
import json

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from saccade.cli import main
from saccade.config import override
from saccade.core import GridAxis, Split, StepAxis, bind
from saccade.errors import DataError, UsageError
from saccade.tasks import guess_task, load_task
from saccade.tasks._worlds.reaching import evaluate_reach, evaluation_scenes, rollout
from saccade.worlds import arm
from tests.tasks import world_data
from tests.tasks.battery import SETTINGS


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return world_data.write_frames(tmp_path_factory.mktemp("frames")) / "frames.csv"


@pytest.fixture
def prepared(data, tmp_path, monkeypatch):
    """An untrained task with random weights."""
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))

    def make(*overrides, path=data):
        kind = load_task("image_policy")
        config = override(kind.Config(), [*SETTINGS["image_policy"], *overrides])
        assets = tmp_path / f"assets{len(list(tmp_path.iterdir()))}"
        assets.mkdir()
        kind.prepare(config, path, assets)
        task = kind.open(config, assets)
        torch.manual_seed(3)
        with torch.no_grad():
            for value in task.model.parameters():
                value.normal_(std=0.3)
        task.model.eval()
        task.load_data(path)
        return task

    return make


def test_the_data_are_recognized(data):
    assert guess_task(data) == "image_policy"


def test_frames_of_an_episode_are_never_in_both_parts(prepared, data, tmp_path):
    with data.open(newline="") as file:
        rows = list(csv.DictReader(file))
    table = data.with_name("no-split.csv")
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("image", "episode", "action"))
        writer.writerows((row["image"], row["episode"], row["action"]) for row in rows)
    task = prepared("data.valid_fraction=0.3", path=table)
    parts = [set(task.splits[split].rows.texts["episode"]) for split in (Split.TRAIN, Split.VALID)]
    assert not parts[0] & parts[1] and len(parts[0] | parts[1]) == 8 and len(parts[1]) == 2
    table.unlink()


def test_a_perfect_policy_succeeds_as_the_expert_and_a_constant_one_never():
    scenes = evaluation_scenes(30)
    state = {"joints": np.array([scene.joints for scene in scenes]), "alive": np.arange(30)}
    targets = np.array([scene.target for scene in scenes])

    def policy(frames):
        alive = state["alive"]
        assert len(frames) == len(alive)
        actions = arm.expert(state["joints"][alive], targets[alive])
        state["joints"][alive] = arm.step(state["joints"][alive], actions)
        state["alive"] = alive[actions != arm.GRIP]
        return torch.eye(5)[torch.from_numpy(actions)]

    result = evaluate_reach(policy, 30)
    assert result.values["success"] == result.values["expert_success"] == 100
    assert result.values["random_success"] < 30
    assert result.note.startswith("success 100.0 is 100.0% of the expert's; random actions reach ")
    never = evaluate_reach(lambda frames: torch.eye(5)[torch.zeros(len(frames), dtype=torch.long)], 30)
    assert never.values["success"] == 0 and never.values["steps"] == arm.MAX_STEPS


def test_the_scenes_that_choose_a_checkpoint_are_not_those_of_the_final_evaluation():
    chosen, final = ([scene.to_json() for scene in evaluation_scenes(20, quick=quick)] for quick in (True, False))
    assert not [scene for scene in chosen if scene in final]


def test_a_rollout_shows_what_comes_of_its_actions():
    scene = world_data.SCENE
    plan = iter([0, 2, 4])
    (episode,) = rollout(lambda frames: torch.eye(5)[[next(plan)]], [scene])
    assert episode.actions == (0, 2, 4) and episode.gripped and len(episode.frames) == 3
    joints = np.array([scene.joints])
    for action, frame in zip(episode.actions, episode.frames, strict=True):
        assert (arm.render(joints, [scene])[0] == frame).all()
        joints = arm.step(joints, np.array([action]))
    assert episode.success == bool(arm.touches(joints, np.array([scene.target]))[0])


def test_a_scene_is_acted_out_with_a_map_over_every_frame(prepared):
    task = prepared()
    (answer,) = task.predict([{"scene": world_data.scene_json()}], task.Options(attention=True))
    steps = len(answer.output.actions)
    assert set(answer.attention) == {"hop1", "hop2"} and answer.output.reward in (0.0, 1.0)
    for attention in answer.attention.values():
        assert isinstance(attention.keys, GridAxis) and isinstance(attention.queries, StepAxis)
        assert attention.shape == (2, steps, 16) and len(attention.queries.frames) == steps
        torch.testing.assert_close(attention.weights.sum(-1), torch.ones(2, steps))
    trace = task.rerun(answer, layers=True)
    assert [task.actions[int(row.argmax())] for row in trace.logits] == list(answer.output.actions)
    torch.testing.assert_close(trace.layers[-1][1], trace.logits)
    (frame,) = task.predict([{"image": answer.attention["hop1"].queries.frames[0]}], task.Options(attention=True))
    assert frame.text == answer.output.actions[0]
    torch.testing.assert_close(frame.attention["hop1"].weights[:, 0], answer.attention["hop1"].weights[:, 0])
    assert "encoder.encoder.0.self" in frame.attention or any(name.startswith("encoder") for name in frame.attention)


def test_evaluation_has_expert_and_random_beside_the_model(prepared):
    task = prepared()
    full = task.evaluate(Split.VALID)
    assert {"success", "expert_success", "random_success", "steps", "accuracy", "loss"} <= full.values.keys()
    assert full.values["expert_success"] == 100 and full.values["episodes"] == 4
    assert task.evaluate(Split.VALID, quick=True).values["episodes"] == 1
    frames_only = prepared("world=")
    assert frames_only.metric.name == "accuracy" and "success" not in frames_only.evaluate(Split.VALID).values


@pytest.mark.parametrize(
    ("inputs", "world", "message"),
    [
        ({}, "reach", "image or scene must be given, but neither is; give a frame, or a scene to act in"),
        ({"image": 1, "scene": 1}, "reach", "image or scene must be given, but both are; give a frame, or a scene"),
        ({"scene": 1}, "", r"scene must be left out for a model without a world \(settings world, environment\); give"),
    ],
)
def test_what_is_given_must_fit(prepared, inputs, world, message):
    task = prepared(f"world={world}")
    values = {"image": world_data.frame(), "scene": world_data.scene_json()}
    example = bind(task.inputs, (), {name: values[name] for name in inputs})
    with pytest.raises(UsageError, match=f"^{message}"):
        list(task.predict([example], task.Options()))


def test_a_scene_is_checked_when_it_is_bound(prepared):
    task = prepared()
    with pytest.raises(UsageError) as error:
        bind(task.inputs, (), {"scene": {"joints": [0, 0], "target": [0, 1]}})
    assert str(error.value) == (
        "scene: 'target' is 1.0 pixels from the shoulder, expected 5 to 20, where the hand can reach"
    )


BROKEN = {
    "an action that is not one of the world": (
        "1.png,a,grip\n1.png,b,jump\n",
        "frames.csv:3: action 'jump', expected one of the world reach: ",
    ),
    "one action alone": ("1.png,a,grip\n1.png,b,grip\n", "every action is 'grip', expected at least two; add other"),
    "an empty action": ("1.png,a,grip\n1.png,b,\n", ":3: the action of '1.png' is empty, expected some text in every"),
    "an empty episode": ("1.png,,grip\n1.png,b,grip\n", ":2: the episode of '1.png' is empty, expected some text in"),
    "a missing picture": ("1.png,a,grip\n2.png,b,grip\n", ":3: "),
    "a row too short": ("1.png,a,grip\n1.png,b\n", ":3: "),
    "one episode alone": ("1.png,a,grip\n1.png,a,elbow-left\n", "1 distinct episode, expected at least 2 to hold one"),
    "a picture that is none": ("bad.png,a,grip\n1.png,b,elbow-left\n", "bad.png"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_table_is_named(name, tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    rows, message = BROKEN[name]
    Image.fromarray(world_data.frame()).save(tmp_path / "1.png")
    (tmp_path / "bad.png").write_bytes(b"no picture")
    table = tmp_path / "frames.csv"
    table.write_text("image,episode,action\n" + rows)
    arguments = ["train", table, "--task", "image_policy", "--runs", tmp_path / "runs", "world=reach", "train.steps=1"]
    result = CliRunner().invoke(main, list(map(str, arguments)))
    assert result.exit_code == 3, result.stderr
    assert "frames.csv" in result.stderr or "bad.png" in result.stderr
    assert message in result.stderr


def test_other_actions_cannot_be_evaluated(prepared, tmp_path):
    task = prepared()
    Image.fromarray(world_data.frame()).save(tmp_path / "1.png")
    table = tmp_path / "frames.csv"
    table.write_text("image,episode,action\n1.png,a,grip\n1.png,b,dance\n")
    with pytest.raises(
        DataError, match=r"frames.csv:3: action 'dance', expected one of the training data: shoulder-left"
    ):
        task.load_data(table, eval_only=True)


def test_the_scene_of_a_file_is_read(prepared, tmp_path):
    path = tmp_path / "scene.json"
    path.write_text(json.dumps(world_data.scene_json()))
    assert bind(prepared().inputs, (), {"scene": path}) == {"scene": world_data.scene_json()}
