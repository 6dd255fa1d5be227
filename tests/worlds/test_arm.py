"""The reach world: the hand is where the joints put it, the expert reaches every target, frames show what is there."""

import math

import numpy as np
import pytest

from saccade.worlds import arm
from saccade.worlds.rules import RuleError

SCENE = {"joints": [0.5, -1.0], "target": [10, 12], "distractors": [[-8, 6, "blue"]]}


def scenes(count):
    rng = np.random.default_rng(7)
    return [arm.sample_scene(rng, 2) for _ in range(count)]


def test_a_scene_survives_json():
    scene = arm.parse_scene(SCENE)
    assert scene == arm.Scene((0.5, -1.0), (10.0, 12.0), ((-8.0, 6.0, "blue"),))
    assert arm.parse_scene(scene.to_json()) == scene


def test_the_hand_is_where_the_joints_put_it():
    _, tip = arm.hand(np.array([[0.0, 0.0], [math.pi / 2, 0.0], [0.0, math.pi / 2]]))
    upper, lower = arm.LINKS
    np.testing.assert_allclose(tip, [[upper + lower, 0], [0, upper + lower], [upper, lower]], atol=1e-9)


def test_the_expert_reaches_every_target_by_ever_fewer_turns():
    made = scenes(200)
    joints, targets = np.array([one.joints for one in made]), np.array([one.target for one in made])
    gripped = np.zeros(len(made), bool)
    for _ in range(arm.MAX_STEPS):
        actions = np.where(gripped, arm.GRIP, arm.expert(joints, targets))
        gripped |= actions == arm.GRIP
        joints = arm.step(joints, actions)
    assert gripped.all() and arm.touches(joints, targets).all()


def test_left_and_right_undo_each_other_and_gripping_moves_nothing():
    joints = np.array([[0.3, -0.7]] * 5)
    after = arm.step(joints, np.arange(5))
    np.testing.assert_allclose(arm.step(after, np.array([1, 0, 3, 2, 4])), joints, atol=1e-12)
    assert (after[:4] != joints[:4]).any(1).all()
    np.testing.assert_allclose(after[4], joints[4], atol=1e-12)


def test_a_frame_shows_the_target_the_distractors_and_the_hand():
    scene = arm.parse_scene(SCENE)
    (frame,) = arm.render(np.array([scene.joints]), [scene])
    assert frame.shape == (48, 48, 3)

    def pixel(x, y):
        return tuple(frame[int(arm.BASE - y), int(arm.BASE + x)].tolist())

    assert pixel(10, 12) == arm.COLOURS["red"] and pixel(-8, 6) == arm.COLOURS["blue"]
    assert pixel(*arm.hand(np.array([scene.joints]))[1][0]) == arm.HAND
    assert pixel(-15, -15) == arm.PAPER
    together = arm.render(np.array([one.joints for one in scenes(3)]), scenes(3))
    for one, seen in zip(scenes(3), together, strict=True):
        assert (arm.render(np.array([one.joints]), [one])[0] == seen).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"joints": [1]}, "'joints' is [1], expected two angles in radians"),
        ({"joints": [1, math.nan]}, "'joints' is [1, nan], expected two angles in radians"),
        ({"target": None}, "'target' is None, expected [x, y] in pixels from the shoulder"),
        ({"target": [30, 0]}, "'target' is 30.0 pixels from the shoulder, expected 5 to 20, where the hand can reach"),
        ({"distractors": 3}, "'distractors' is 3, expected a list of at most 8"),
        ({"distractors": [[1, 9]]}, "distractor 1 is [1, 9], expected [x, y, colour]"),
        ({"distractors": [[1, 9, "red"]]}, "the colour of distractor 1 is 'red', expected blue or green or yellow"),
        ({"arm": 1}, "a key 'arm', expected only 'joints', 'target' and 'distractors'"),
    ],
)
def test_a_scene_that_breaks_a_rule_is_refused_with_its_values(change, message):
    with pytest.raises(RuleError) as error:
        arm.parse_scene({**SCENE, **change})
    assert str(error.value) == message
