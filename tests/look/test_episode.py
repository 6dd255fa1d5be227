"""An episode as text: curves over its steps, and the mean attention over the history."""

import json

import pytest

from saccade.errors import UsageError
from saccade.look.episode import episode_text, mean_attention, write_episode


def episode(count=40, labels=("0", "1")):
    steps = [
        {
            "observation": [float(number), -1.0],
            "action": "1" if number % 2 else "0",
            "probabilities": [0.25, 0.75],
            "reward": 1.0,
            "attention": {"encoder.0.self": [[1.0], [1.0]] if not number else [[0.2, 0.8], [0.4, 0.6]]},
        }
        for number in range(count)
    ]
    head = {"environment": "CartPole-v1", "seed": 3, "return": float(count), "end": "terminated", "labels": labels}
    return {**head, "observations": ["position", "speed"], "steps": steps}


def test_each_number_is_a_line_of_blocks_over_the_steps():
    lines = episode_text(episode(), 60)
    assert lines[0] == "CartPole-v1, seed 3: 40 steps, return 40.0, terminated"
    assert lines[1].startswith("position") and "▁" in lines[1] and lines[1].endswith("█ 0 to 39")
    assert lines[2].split()[1] == "▁" * 14 and lines[2].endswith("-1 to -1"), "a constant is a flat line"
    assert [line.split()[0] for line in lines[3:6]] == ["action", "probability", "probability"]


def test_the_mean_attention_is_that_of_full_histories():
    assert mean_attention(episode(), "encoder.0.self") == pytest.approx([0.3, 0.7])
    assert episode_text(episode())[-1].split(maxsplit=1) == ["encoder.0.self", "t-1 0.30  t 0.70"]
    assert mean_attention(episode(1), "encoder.0.self") == [1.0]


def test_continuous_actions_have_a_line_each():
    played = episode(labels=())
    for step in played["steps"]:
        step.update(action=[0.5, 1.0], probabilities=[])
    assert [line[:8] for line in episode_text(played)[3:5]] == ["action 0", "action 1"]


def test_numbers_that_are_not_finite_are_counted():
    played = {**episode(), "return": None}
    for number in (3, 4):
        played["steps"][number]["observation"][1] = None  # as JSON has it
    lines = episode_text(played, 60)
    assert lines[0] == "CartPole-v1, seed 3: 40 steps, return not finite, terminated"
    assert lines[1].endswith("█ 0 to 39") and lines[2].split(maxsplit=1) == ["speed", "2 of 40 values are not finite"]


def test_every_step_is_written_as_json(tmp_path):
    write_episode(episode(), tmp_path / "episode.json")
    assert json.loads((tmp_path / "episode.json").read_text())["steps"] == episode()["steps"]
    with pytest.raises(UsageError, match=r"an episode is written as \.json, but the file is 'episode\.gif'"):
        write_episode(episode(), tmp_path.joinpath("episode.gif").relative_to(tmp_path))
