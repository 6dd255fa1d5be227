"""Instruction following: a whole episode equals its steps, maps equal the eager weights, and a success is a success."""

import json

import numpy as np
import pytest
import torch

from saccade.config import override
from saccade.core import ActionsOutput, GridAxis, Split, StepAxis, TokenAxis
from saccade.errors import DataError, UsageError
from saccade.models.policy.following import FollowerConfig, Observations
from saccade.nn.probe import watch
from saccade.tasks import load_task
from saccade.tasks._worlds.walks import Walk
from saccade.worlds.grid import ACTIONS, Pose, parse_grid
from tests.tasks import world_data
from tests.tasks.battery import SETTINGS

TEXT = "go to the red lamp and stop"


@pytest.fixture(params=["lstm", "transformer"])
def task(request, tmp_path, monkeypatch):
    """An untrained task with random weights."""
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    kind = load_task("instruction_following")
    config = override(kind.Config(), [*SETTINGS["instruction_following"], f"model.encoder={request.param}"])
    data, assets = world_data.write_instructions(tmp_path / "data"), tmp_path / "assets"
    assets.mkdir()
    kind.prepare(config, data, assets)
    made = kind.open(config, assets)
    torch.manual_seed(5)
    with torch.no_grad():
        for value in made.model.parameters():
            value.normal_(std=0.4)
    made.model.eval()
    made.load_data(data)
    return made


def test_a_whole_episode_equals_its_steps(task):
    batch = task.source(Split.TRAIN, 1).at(2)[0]
    seen = Observations(batch.cells, batch.heading, batch.previous)
    keep = batch.inputs.keep if batch.inputs.keep is not None else torch.ones_like(batch.inputs.ids, dtype=torch.bool)
    with torch.no_grad():
        together = task.model(batch.inputs.ids, keep, seen)
        instruction, state = task.model.encode(batch.inputs.ids, keep)
        for step in range(batch.targets.shape[1]):
            logits, state = task.model.step(instruction, seen.at(step), state)
            torch.testing.assert_close(logits[-1], together[:, step], atol=1e-5, rtol=1e-4)


def test_the_loss_is_that_of_the_expert_and_padding_does_not_count(task):
    batch = task.source(Split.TRAIN, 1).at(2)[0]
    ((name, loss),) = task.losses(batch, task.networks())
    keep = batch.inputs.keep if batch.inputs.keep is not None else torch.ones_like(batch.inputs.ids, dtype=torch.bool)
    with torch.no_grad():
        logits = task.model(batch.inputs.ids, keep, Observations(batch.cells, batch.heading, batch.previous))
    real = batch.targets >= 0
    expected = -logits.log_softmax(-1)[real].gather(1, batch.targets[real][:, None]).mean()
    assert name == "model" and float(loss.detach()) == pytest.approx(float(expected), rel=1e-5)
    assert batch.count == batch.units == int(real.sum())


def test_maps_equal_the_eager_weights(task):
    (answer,) = task.predict([{"map": world_data.MAP, "instruction": TEXT}], task.Options(attention=True))
    assert isinstance(answer.output, ActionsOutput)
    words, views = answer.attention["words"], [answer.attention[name] for name in ("view1", "view2")]
    steps = len(answer.output.actions)
    assert isinstance(words.keys, TokenAxis) and isinstance(words.queries, StepAxis)
    assert words.queries.steps == answer.output.actions and words.shape[1] == steps == len(words.queries.frames)
    for attention in answer.attention.values():
        torch.testing.assert_close(attention.weights.sum(-1), torch.ones(attention.shape[:2]), atol=1e-5, rtol=0)
    for attention in views:
        assert isinstance(attention.keys, GridAxis) and attention.shape == (2, steps, 81)
    eager: dict[str, list[torch.Tensor]] = {}
    names = {id(task.model.get_submodule(name)): name for name in ("words", "view1", "view2")}
    layer = type(task.model.words)
    plain = layer._attend

    def slow(self, q, k, v, lowered):
        weights = self.weights(q, k, None if lowered is None else lowered.allowed(0, q.shape[2]))
        eager.setdefault(names.get(id(self), "other"), []).append(weights[0])
        return weights @ v

    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(layer, "_attend", slow)
        list(task.retrace(*answer.trace))
    assert layer._attend is plain
    for name in names.values():
        torch.testing.assert_close(torch.cat(eager[name], 1), answer.attention[name].weights, atol=1e-5, rtol=1e-4)


def test_a_batch_is_walked_as_each_world_alone(task):
    small = {"map": ["...", ".L."], "legend": {"L": "red lamp"}, "start": [0, 0, "south"]}
    examples = [
        {"map": world_data.MAP, "instruction": TEXT},
        {"map": small, "instruction": "turn left"},
        {"map": {**small, "start": [0, 2, "west"]}, "instruction": "go through the blue door, turn left and stop"},
    ]
    together = list(task.predict(examples, task.Options()))
    for example, answer in zip(examples, together, strict=True):
        (alone,) = task.predict([example], task.Options())
        assert alone.output == answer.output
        assert alone.scores["probability"] == pytest.approx(answer.scores["probability"], abs=1e-5)


def test_success_means_stopping_at_the_goal(task, monkeypatch):
    items = task.splits[Split.VALID].episodes.items

    def walked(worlds, texts, *_):
        results = []
        for number, item in enumerate(items):
            end = Pose(*item.goal, 0) if number != 1 else Pose(0, 0, 0)
            actions = (0,) if number == 2 else item.actions
            results.append(Walk(actions, (0.5,) * len(actions), (*[item.world.start] * len(actions), end)))
        return results

    monkeypatch.setattr(type(task), "rollouts", walked)
    values = task.evaluate(Split.VALID).values
    count = len(items)
    assert count >= 4 and values["episodes"] == count
    assert values["success"] == pytest.approx(100 * (count - 2) / count), "one ended elsewhere, one never stopped"
    assert values["exact"] == pytest.approx(100 * (count - 1) / count)


def test_the_expert_itself_succeeds_always(task, monkeypatch):
    """The evaluation of the very actions of the data, stepped in the world."""
    items = task.splits[Split.VALID].episodes.items

    def step(instruction, seen, state):
        number = step.calls
        step.calls += 1
        logits = torch.full((len(step.items), len(ACTIONS)), -9.0)
        for row, item in enumerate(step.items):
            logits[row, item.actions[min(number, len(item.actions) - 1)]] = 9.0
        return [logits], state

    monkeypatch.setattr("saccade.tasks.instruction_following.BATCH", 1)
    for item in items[:5]:
        step.calls, step.items = 0, [item]
        monkeypatch.setattr(task.model, "step", step)
        text = task.reader.encode("instruction", [item.instruction])
        (walk,) = task.rollouts([item.world], text)
        assert walk.actions == item.actions and walk.stopped and walk.end == item.goal


def test_a_goal_in_the_map_says_whether_it_was_reached(task):
    example = {"map": {**world_data.MAP, "goal": [2, 3]}, "instruction": TEXT}
    (answer,) = task.predict([example], task.Options())
    walked: Walk = answer.trace[2]
    assert answer.output.reward == float(walked.stopped and walked.end == (2, 3))
    (without,) = task.predict([{"map": world_data.MAP, "instruction": TEXT}], task.Options())
    assert without.output.reward is None


def test_an_episode_that_does_not_stop_is_over_and_says_so(task):
    with torch.no_grad():
        task.model.head.weight.zero_()
        task.model.head.bias.copy_(torch.tensor([0.0, 1.0, 0.0, 0.0]))
    (answer,) = task.predict([{"map": world_data.MAP, "instruction": TEXT}], task.Options())
    assert answer.output.actions == ("left",) * 20
    assert answer.notes == ("it did not stop within 20 actions",)


def test_unknown_landmarks_are_refused_by_name(task, tmp_path):
    world = {**world_data.MAP, "legend": {"L": "violet lamp", "D": "blue door"}}
    with pytest.raises(
        UsageError, match=r"^map has the landmark word 'violet', expected words of the training data \("
    ):
        list(task.predict([{"map": world, "instruction": TEXT}], task.Options()))
    path = tmp_path / "other.jsonl"
    path.write_text(json.dumps({**world, "instruction": "stop", "actions": ["stop"], "goal": [2, 1]}) + "\n")
    with pytest.raises(DataError) as error:
        task.load_data(path, eval_only=True)
    assert str(error.value).startswith(f"{path}:1: the landmark word 'violet', expected words of the training data (")


def test_a_transformer_encoder_shows_its_own_attention(task):
    with watch(task.model) as recorder:
        list(task.predict([{"map": world_data.MAP, "instruction": TEXT}], task.Options()))
    names = {"words", "view1", "view2"}
    expected = names | ({"encoder.0.self"} if task.config.model.encoder == "transformer" else set())
    assert set(recorder) == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"view": 4}, "view must be odd and at least 3, but is 4"),
        ({"dim": 30}, "dim must be a multiple of 2 heads, but 30 is not a multiple of 8"),
        ({"hops": 0}, "hops must be at least 1, but is 0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, but is 1.0"),
    ],
)
def test_a_wrong_shape_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        FollowerConfig(**change)


def test_held_out_names_are_told(tmp_path, monkeypatch):
    from saccade.demo import maze

    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
    files = maze.write_instructions(tmp_path / "data", train_rows=30, valid_rows=12)
    kind = load_task("instruction_following")
    config = override(kind.Config(), [*SETTINGS["instruction_following"], f"data.valid={files.valid}"])
    (tmp_path / "assets").mkdir()
    notes = kind.prepare(config, files.train, tmp_path / "assets")
    held_out = [json.loads(line)["held_out"] for line in files.valid.read_text().splitlines()]
    listed = ", ".join(sorted({name for names in held_out for name in names}))
    assert f"held-out combinations, only in validation: {listed}" in notes
    task = kind.open(config, tmp_path / "assets")
    task.load_data(files.train)
    (table,) = task.evaluate(Split.VALID).tables
    assert [row[0] for row in table.rows] == sorted({name for names in held_out for name in names})
    assert sum(int(row[1]) for row in table.rows) == sum(map(len, held_out))


def test_the_view_of_a_walker_changes_what_it_does(task):
    """What silently did nothing must be noticed: other surroundings or another text give other logits."""
    world = parse_grid(world_data.MAP)
    (text,), (other,) = (task.reader.encode("instruction", [words]) for words in (TEXT, "turn right and stop"))
    steps = Walk((0, 3), (1.0, 1.0), (world.start, Pose(2, 2, 1), Pose(2, 2, 1)))
    moved = parse_grid({**world_data.MAP, "map": ["######", "#....#", "#..L.D", "######"]})
    first, second, third = (
        np.concatenate([step[-1].detach().numpy() for step in task.retrace(*episode)])
        for episode in ((world, text, steps), (world, other, steps), (moved, text, steps))
    )
    assert np.abs(first - second).max() > 1e-3 and np.abs(first - third).max() > 1e-3
