"""Reach world: an arm with two joints in the plane, a target to touch and distractors, seen as pixels.

Shapes: B scenes, K objects of a scene (the target first), S side of a frame.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.worlds.rules import RuleError, shown

ACTIONS = ("shoulder-left", "shoulder-right", "elbow-left", "elbow-right", "grip")
GRIP = 4
SIDE = 48  # pixels of a frame
BASE = SIDE / 2  # x and y of the shoulder
LINKS = (11.0, 10.0)  # pixels
ANGLE = math.radians(10)  # of one action
REACHED = 3.5  # pixels between hand and target
MAX_STEPS = 60  # actions of an episode
RADIUS = 3.0  # of objects, pixels
TARGET_COLOUR = "red"
COLOURS = {"red": (214, 40, 48), "blue": (38, 92, 204), "green": (40, 148, 72), "yellow": (240, 196, 32)}
PAPER, UPPER, LOWER, HAND = (238, 238, 234), (70, 74, 82), (128, 134, 144), (16, 16, 20)
NEAREST, FARTHEST = 5.0, 20.0  # of an object from the shoulder, pixels
MAX_DISTRACTORS = 8

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Scene:
    """Angles of the joints, where the target is, and distractors with their colours."""

    joints: tuple[float, float]
    """of the shoulder from the x axis and of the elbow from the upper arm, in radians, turning left"""
    target: tuple[float, float]
    """x to the right and y up from the shoulder, in pixels"""
    distractors: tuple[tuple[float, float, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the scene as `parse_scene` reads it."""
        return {
            "joints": list(self.joints),
            "target": list(self.target),
            "distractors": [list(distractor) for distractor in self.distractors],
        }


def parse_scene(value: Mapping[str, Any]) -> Scene:
    """Return the scene of a JSON object; raises RuleError where it breaks a rule."""
    keys = ("joints", "target", "distractors")
    unknown = next((key for key in value if key not in keys), None)
    if unknown is not None:
        raise RuleError(f"a key {str(unknown)[:40]!r}", "only 'joints', 'target' and 'distractors'")
    joints = _pair(value.get("joints"), "joints", "two angles in radians")
    target = _place(value.get("target"), "target")
    distractors = value.get("distractors", [])
    if not isinstance(distractors, list | tuple) or len(distractors) > MAX_DISTRACTORS:
        raise RuleError(f"'distractors' is {shown(distractors)}", f"a list of at most {MAX_DISTRACTORS}")
    parsed = []
    for number, distractor in enumerate(distractors, 1):
        if not isinstance(distractor, list | tuple) or len(distractor) != 3:
            raise RuleError(f"distractor {number} is {shown(distractor)}", "[x, y, colour]")
        x, y = _place(distractor[:2], f"distractor {number}")
        colours = [colour for colour in COLOURS if colour != TARGET_COLOUR]
        if distractor[2] not in colours:
            raise RuleError(f"the colour of distractor {number} is {shown(distractor[2])}", " or ".join(colours))
        parsed.append((x, y, str(distractor[2])))
    return Scene(joints, target, tuple(parsed))


def _pair(value: Any, name: str, rule: str) -> tuple[float, float]:
    numbers = list(value) if isinstance(value, list | tuple) else []
    if len(numbers) != 2 or not all(type(n) in (int, float) and math.isfinite(n) and abs(n) < 1e6 for n in numbers):
        raise RuleError(f"'{name}' is {shown(value)}", rule)
    return float(numbers[0]), float(numbers[1])


def _place(value: Any, name: str) -> tuple[float, float]:
    x, y = _pair(value, name, "[x, y] in pixels from the shoulder")
    if not NEAREST <= math.hypot(x, y) <= FARTHEST:
        distance = f"{math.hypot(x, y):.1f} pixels from the shoulder"
        raise RuleError(f"'{name}' is {distance}", f"{NEAREST:g} to {FARTHEST:g}, where the hand can reach")
    return x, y


def hand(joints: Floats) -> tuple[Floats, Floats]:
    """Return the places of elbow and hand (B, 2) by the angles of the joints (B, 2)."""
    upper, lower = joints[:, 0], joints.sum(1)
    elbow = LINKS[0] * np.stack((np.cos(upper), np.sin(upper)), axis=1)
    return elbow, elbow + LINKS[1] * np.stack((np.cos(lower), np.sin(lower)), axis=1)


def step(joints: Floats, actions: NDArray[np.int64]) -> Floats:
    """Return the angles (B, 2) after one action each."""
    turns = np.array(((ANGLE, 0), (-ANGLE, 0), (0, ANGLE), (0, -ANGLE), (0, 0)))
    return wrap(joints + turns[actions])


def wrap(angles: Floats) -> Floats:
    """Return angles as the same ones between -pi and pi."""
    wrapped: Floats = (angles + math.pi) % (2 * math.pi) - math.pi
    return wrapped


def touches(joints: Floats, targets: Floats) -> NDArray[np.bool_]:
    """Return whether each hand is at its target (B, 2)."""
    reached: NDArray[np.bool_] = np.hypot(*(hand(joints)[1] - targets).T) <= REACHED
    return reached


def expert(joints: Floats, targets: Floats) -> NDArray[np.int64]:
    """Return the action (B,) of an expert: it turns the joint that is farther from the nearer solution, then grips."""
    distance = np.hypot(*targets.T)
    cosine = (distance**2 - LINKS[0] ** 2 - LINKS[1] ** 2) / (2 * LINKS[0] * LINKS[1])
    bend = np.arccos(cosine.clip(-1, 1))
    turns = []
    for elbow in (bend, -bend):
        inner = np.arctan2(LINKS[1] * np.sin(elbow), LINKS[0] + LINKS[1] * np.cos(elbow))
        shoulder = np.arctan2(targets[:, 1], targets[:, 0]) - inner
        turns.append(np.round(wrap(np.stack((shoulder, elbow), axis=1) - joints) / ANGLE))
    first, second = (np.abs(turn).sum(1) for turn in turns)
    turn = np.where((first <= second)[:, None], turns[0], turns[1])  # (B, 2): actions that are left for each joint
    joint = (np.abs(turn[:, 1]) > np.abs(turn[:, 0])).astype(np.int64)
    left = np.take_along_axis(turn, joint[:, None], 1)[:, 0]
    actions: NDArray[np.int64] = np.where(left == 0, GRIP, 2 * joint + (left < 0))
    return actions


def render(joints: Floats, scenes: Sequence[Scene]) -> NDArray[np.uint8]:
    """Return the frames (B, S, S, 3) of some scenes with these joints."""
    down, across = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32) + np.float32(0.5)
    x, y = across - BASE, BASE - down  # (S, S), up is up
    frames = np.broadcast_to(np.array(PAPER, np.float32), (len(joints), SIDE, SIDE, 3)).copy()
    most = max(1 + len(scene.distractors) for scene in scenes)
    places = np.full((len(scenes), most, 2), 1e3, np.float32)  # what a scene does not have is far away
    colours = np.zeros((len(scenes), most, 3), np.float32)
    for row, scene in enumerate(scenes):
        objects = [(*scene.target, TARGET_COLOUR), *scene.distractors]
        for number, (right, up, colour) in enumerate(objects):
            places[row, number], colours[row, number] = (right, up), COLOURS[colour]
    for number in range(most):
        at = places[:, number, :, None, None]
        _paint(frames, np.hypot(x - at[:, 0], y - at[:, 1]) - RADIUS, colours[:, number])
    elbow, tip = (place.astype(np.float32) for place in hand(joints))
    for start, end, width, grey in ((np.zeros_like(elbow), elbow, 1.6, UPPER), (elbow, tip, 1.2, LOWER)):
        _paint(frames, _distance(x, y, start, end) - width, np.array(grey, np.float32))
    _paint(frames, np.hypot(x - tip[:, 0, None, None], y - tip[:, 1, None, None]) - 1.8, np.array(HAND, np.float32))
    return frames.round().astype(np.uint8)


def _distance(x: Floats, y: Floats, start: Floats, end: Floats) -> Floats:
    """Return the distance (B, S, S) of each pixel to the lines from `start` to `end` (B, 2)."""
    along = end - start
    (dx, dy), (sx, sy) = (value.T[:, :, None, None] for value in (along, start))
    part = (((x - sx) * dx + (y - sy) * dy) / (dx**2 + dy**2)).clip(0, 1)
    distance: Floats = np.hypot(x - sx - part * dx, y - sy - part * dy)
    return distance


def _paint(frames: Floats, outside: Floats, colour: Floats) -> None:
    """Paint what is inside a shape; `outside` (B, S, S) is the distance of each pixel to its edge."""
    cover = (0.5 - outside).clip(0, 1)[..., None]
    frames += cover * (np.broadcast_to(colour, (len(frames), 3))[:, None, None] - frames)


def sample_scene(rng: np.random.Generator, distractors: int) -> Scene:
    """Return a random scene, whose objects do not overlap."""
    places: list[tuple[float, float]] = []
    while len(places) < 1 + distractors:
        radius, angle = math.sqrt(rng.uniform(NEAREST**2, FARTHEST**2)), rng.uniform(-math.pi, math.pi)
        x, y = round(radius * math.cos(angle), 2), round(radius * math.sin(angle), 2)
        inside = NEAREST <= math.hypot(x, y) <= FARTHEST
        if inside and all(math.hypot(x - other[0], y - other[1]) > 2.5 * RADIUS for other in places):
            places.append((x, y))
    others = [colour for colour in COLOURS if colour != TARGET_COLOUR]
    chosen = tuple((x, y, others[int(rng.integers(len(others)))]) for x, y in places[1:])
    joints = (round(float(rng.uniform(-math.pi, math.pi)), 3), round(float(rng.uniform(-math.pi, math.pi)), 3))
    return Scene(joints, places[0], chosen)
