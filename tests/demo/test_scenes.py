"""Scenes of the shapes demo: their pixels, and captions and answers read again from their descriptions."""

import io
import math
import random
import re
import sys
from itertools import product

import numpy as np
import pytest

from saccade.demo import _scenes as scenes
from saccade.demo._questions import KINDS, RELATIONS, ask, describe
from saccade.errors import UsageError

Image = pytest.importorskip("PIL.Image", reason="the demo needs Pillow; pip install 'saccade[demo]'")

GROUPS = [
    scenes.spread(rng, [scenes.sample_attributes(rng) for _ in range(1 + seed % 4)], 8.0)
    for seed, rng in ((seed, random.Random(seed)) for seed in range(300))
]
PAIRS = [
    scenes.place_pair(rng, (scenes.sample_attributes(rng), scenes.sample_attributes(rng)), vertical=seed % 2 == 1)
    for seed, rng in ((seed, random.Random(f"pair {seed}")) for seed in range(300))
]


def pixels(scene):
    return np.asarray(Image.open(io.BytesIO(scenes.render(scene)))).astype(int)


def inside(item, x, y, margin):
    """Whether a point is inside an object by a margin of pixels; negative: or at most that far outside."""
    angle = math.radians(-item.angle)
    across, down = x - item.x, y - item.y
    across, down = (
        (across * math.cos(angle) - down * math.sin(angle)) / item.radius,
        (across * math.sin(angle) + down * math.cos(angle)) / item.radius,
    )
    margin, distance = margin / item.radius, math.hypot(across, down)
    shape = item.attributes.shape
    if shape == "circle":
        return distance < 1 - margin
    if shape == "ring":
        return 0.55 + margin < distance < 1 - margin
    if shape == "square":
        return max(abs(across), abs(down)) < 1.12 / math.sqrt(2) - margin
    if shape == "triangle":
        return down < 1.15 / 2 - margin and abs(across) * math.sqrt(3) / 2 - down / 2 < 1.15 / 2 - margin
    if shape == "cross":
        narrow, wide = sorted((abs(across), abs(down)))
        return narrow < 0.34 - margin and wide < 1.05 - margin
    # Between a tip of the star and the notch beside it the edge is a straight line.
    turn = (math.atan2(across, -down) + math.pi / 5) % (2 * math.pi / 5) - math.pi / 5
    tip, notch = (0.0, 1.15), (0.5 * math.sin(math.pi / 5), 0.5 * math.cos(math.pi / 5))
    point = (distance * math.sin(abs(turn)), distance * math.cos(turn))
    edge = (notch[0] - tip[0], notch[1] - tip[1])
    signed = (edge[1] * (point[0] - tip[0]) - edge[0] * (point[1] - tip[1])) / math.hypot(*edge)
    return signed > margin


@pytest.mark.parametrize("shape", scenes.SHAPES)
def test_pixels_have_the_colour_of_the_object_they_are_in_and_no_other(shape):
    checked = {"inside": 0, "outside": 0}
    for scene in [scene for scene in GROUPS if any(item.attributes.shape == shape for item in scene.items)][:12]:
        picture = pixels(scene)
        for row in range(scenes.SIDE):
            for column in range(scenes.SIDE):
                point = (column + 0.5, row + 0.5)
                holders = [item for item in scene.items if inside(item, *point, 1.0)]
                if holders:
                    (item,) = holders
                    checked["inside"] += item.attributes.shape == shape
                    assert tuple(picture[row, column]) == item.rgb, (item, point)
                elif not any(inside(item, *point, -1.5) for item in scene.items):
                    checked["outside"] += 1
                    assert np.abs(picture[row, column] - scene.background.rgb).max() <= 17, point
    assert checked["inside"] > 100 and checked["outside"] > 10_000


@pytest.mark.parametrize("group", [GROUPS, PAIRS], ids=["groups", "pairs"])
def test_objects_are_in_the_picture_and_do_not_touch(group):
    for scene in group:
        for number, item in enumerate(scene.items):
            assert item.reach + 1 < min(item.x, item.y) and max(item.x, item.y) < scenes.SIDE - item.reach - 1
            low, high = scenes.RADII[item.attributes.size]
            assert low <= item.radius <= high
            for other in scene.items[:number]:
                assert math.dist((item.x, item.y), (other.x, other.y)) > item.reach + other.reach + 1


def test_a_colour_is_nearer_to_its_own_name_than_to_any_other():
    for scene in GROUPS:
        for item in scene.items:
            names = sorted(scenes.COLOURS, key=lambda name: math.dist(scenes.COLOURS[name], item.rgb))
            assert names[0] == item.attributes.colour
            own, other = (math.dist(scenes.COLOURS[name], item.rgb) for name in names[:2])
            assert other > 3 * own


def test_centres_of_a_group_are_apart_across_and_down():
    for scene in GROUPS:
        for number, item in enumerate(scene.items):
            for other in scene.items[:number]:
                assert min(abs(item.x - other.x), abs(item.y - other.y)) >= 8 - 1e-9


def read_caption(scene):
    """The caption of a scene, written again from its description."""
    (a, b) = sorted(scene.items, key=lambda item: (item.attributes.size != "large", item.x + item.y))
    across, down = b.x - a.x, b.y - a.y
    if abs(across) > abs(down):
        relation = "left of" if across > 0 else "right of"
    else:
        relation = "above" if down > 0 else "below"
    names = [f"a {item.attributes.size} {item.attributes.colour} {item.attributes.shape}" for item in (a, b)]
    return f"{names[0]} {relation} {names[1]}"


def test_captions_describe_their_scenes():
    for scene in PAIRS:
        assert describe(scene) == read_caption(scene)
    counts = {relation: sum(f" {relation} " in describe(scene) for scene in PAIRS) for relation in RELATIONS}
    assert min(counts.values()) > 20  # right of and below occur where sizes differ


def test_two_objects_are_side_by_side_or_one_above_the_other():
    for number, scene in enumerate(PAIRS):
        a, b = scene.items
        along, beside = abs(a.x - b.x), abs(a.y - b.y)
        if number % 2:
            along, beside = beside, along
        assert beside < along / 2 and along > a.reach + b.reach


def answer(scene, question):
    """The answer to a question, found again by parsing it."""
    things = [item.attributes for item in scene.items]

    def find(phrase):
        words = [word for word in phrase.split() if word != "object"]
        (item,) = [i for i in scene.items if all(w in str(i.attributes).split() for w in words)]
        return item

    def related(item, relation, other):
        axis, sign = {"left of": ("x", -1), "right of": ("x", 1), "above": ("y", -1), "below": ("y", 1)}[relation]
        return sign * (getattr(item, axis) - getattr(other, axis)) > 0

    relation = "|".join(RELATIONS)
    if match := re.fullmatch("what colour is the (.+)\\?", question):
        return find(match[1]).attributes.colour
    if match := re.fullmatch(f"what shape is ({relation}) the (.+)\\?", question):
        other = find(match[2])
        (item,) = [item for item in scene.items if related(item, match[1], other)]
        return item.attributes.shape
    if match := re.fullmatch("what shape is the (.+)\\?", question):
        return find(match[1]).attributes.shape
    if match := re.fullmatch("is the (.+) small or large\\?", question):
        return find(match[1]).attributes.size
    if match := re.fullmatch("how many (\\w+) objects are there\\?", question):
        return str(sum(thing.colour == match[1] for thing in things))
    if match := re.fullmatch("how many (\\w+) are there\\?", question):
        return str(sum(match[1] in (f"{thing.shape}s", f"{thing.shape}es") for thing in things))
    if match := re.fullmatch("is there a (\\w+) (\\w+)\\?", question):
        return "yes" if any((thing.colour, thing.shape) == match.groups() for thing in things) else "no"
    match = re.fullmatch(f"is the (.+) ({relation}) the (.+)\\?", question)
    return "yes" if related(find(match[1]), match[2], find(match[3])) else "no"


def test_answers_are_right():
    for number, scene in enumerate(GROUPS):
        questions = ask(scene, random.Random(number))
        assert 3 <= len(questions) <= 14
        assert len({question for question, _ in questions}) == len(questions)
        for question, expected in questions:
            assert answer(scene, question) == expected, (question, scene)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_answer_prevails_among_questions_of_a_kind(kind):
    answers = [found[1] for n, scene in enumerate(GROUPS) if (found := kind(scene, random.Random(n)))]
    counts = {value: answers.count(value) for value in set(answers)}
    assert len(answers) > 100 and len(counts) >= 2
    assert max(counts.values()) < 0.62 * len(answers)


def test_what_is_not_there_resembles_what_is():
    """A green square is asked for where there is a green ring and a red square, or one of them at least."""
    for number, scene in enumerate(GROUPS):
        for question, expected in ask(scene, random.Random(number)):
            if question.startswith("is there") and expected == "no":
                _, _, _, colour, shape = question.rstrip("?").split()
                present = {(item.attributes.colour, item.attributes.shape) for item in scene.items}
                colours, shapes = ({pair[side] for pair in present} for side in (0, 1))
                similar = (colour in colours, shape in shapes)
                assert all(similar) if set(product(colours, shapes)) - present else any(similar)


def test_without_pillow_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UsageError, match=re.escape("the demo needs Pillow; pip install 'saccade[demo]'")):
        scenes.render(GROUPS[0])
