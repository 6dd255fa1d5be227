"""Questions about a scene with their answers, and its caption.

An object is named by an attribute that no other object of the scene has, such as "the star" or "the red object".
A relation compares the centres of two objects across or down, so that every pair has two relations.
"""

import random
from collections import defaultdict
from collections.abc import Callable
from itertools import product

from saccade.demo._scenes import COLOURS, SHAPES, Item, Scene

RELATIONS = ("left of", "right of", "above", "below")
ROUNDS = 2  # questions of each kind per picture, at most

Question = tuple[str, str]  # with its answer


def has_relation(item: Item, relation: str, other: Item) -> bool:
    """Whether an object is left of, right of, above or below another one."""
    difference = item.x - other.x if relation in ("left of", "right of") else item.y - other.y
    return difference < 0 if relation in ("left of", "above") else difference > 0


def describe(scene: Scene) -> str:
    """Return the caption of two objects: the larger is named first, of two of one size the left or the upper one."""
    first, second = scene.items
    vertical = abs(first.y - second.y) > abs(first.x - second.x)
    if first.attributes.size == second.attributes.size:
        named_first = has_relation(first, "above" if vertical else "left of", second)
    else:
        named_first = first.attributes.size == "large"
    if not named_first:
        first, second = second, first
    relations = RELATIONS[2:] if vertical else RELATIONS[:2]
    relation = next(relation for relation in relations if has_relation(first, relation, second))
    return f"a {first.attributes} {relation} a {second.attributes}"


def ask(scene: Scene, rng: random.Random) -> list[Question]:
    """Return questions of all kinds about a scene, in any order, each with its answer."""
    asked = (kind(scene, rng) for kind in KINDS for _ in range(ROUNDS))
    questions = sorted({question for question in asked if question is not None})
    rng.shuffle(questions)
    return questions


def _unique(scene: Scene, attribute: str) -> list[Item]:
    """Return the objects whose shape, or whose colour, no other object has."""
    values = [getattr(item.attributes, attribute) for item in scene.items]
    return [item for item, value in zip(scene.items, values, strict=True) if values.count(value) == 1]


def _ask_colour(scene: Scene, rng: random.Random) -> Question | None:
    items = _unique(scene, "shape")
    if not items:
        return None
    attributes = rng.choice(items).attributes
    return f"what colour is the {attributes.shape}?", attributes.colour


def _ask_shape(scene: Scene, rng: random.Random) -> Question | None:
    items = _unique(scene, "colour")
    if not items:
        return None
    attributes = rng.choice(items).attributes
    return f"what shape is the {attributes.colour} object?", attributes.shape


def _ask_size(scene: Scene, rng: random.Random) -> Question | None:
    items = _unique(scene, "shape")
    if not items:
        return None
    attributes = rng.choice(items).attributes
    return f"is the {attributes.shape} small or large?", attributes.size


def _ask_count(scene: Scene, rng: random.Random) -> Question | None:
    """Ask how many objects have a shape or a colour; each number that occurs is equally likely, or 0 would prevail."""
    attribute, values, ending = rng.choice((("shape", SHAPES, ""), ("colour", tuple(COLOURS), " objects")))
    counts = defaultdict(list)
    for value in values:
        counts[sum(getattr(item.attributes, attribute) == value for item in scene.items)].append(value)
    count = rng.choice(sorted(counts))
    value = rng.choice(counts[count])
    return f"how many {value + ending if ending else _plural(value)} are there?", str(count)


def _ask_existence(scene: Scene, rng: random.Random) -> Question | None:
    """Ask for a colour and a shape that an object has, or that objects have but none of them both."""
    present = {(item.attributes.colour, item.attributes.shape) for item in scene.items}
    crossed = {(colour, shape) for colour, _ in present for _, shape in present} - present
    near = {pair for item in present for pair in product(COLOURS, SHAPES) if set(pair) & set(item)} - present
    answer = rng.choice(("yes", "no"))
    colour, shape = rng.choice(sorted(present if answer == "yes" else crossed or near))
    return f"is there a {colour} {shape}?", answer


def _ask_relation(scene: Scene, rng: random.Random) -> Question | None:
    """Ask whether two objects have a relation."""
    items = _unique(scene, "shape")
    if len(items) < 2:
        return None
    item, other = rng.sample(items, 2)
    relation = rng.choice(RELATIONS)
    question = f"is the {item.attributes.shape} {relation} the {other.attributes.shape}?"
    return question, "yes" if has_relation(item, relation, other) else "no"


def _ask_related(scene: Scene, rng: random.Random) -> Question | None:
    """Ask for the shape of the only object that has a relation to another one."""
    related = []
    for other in _unique(scene, "shape"):
        for relation in RELATIONS:
            shapes = [item.attributes.shape for item in scene.items if has_relation(item, relation, other)]
            if len(shapes) == 1:
                related.append((f"what shape is {relation} the {other.attributes.shape}?", shapes[0]))
    return rng.choice(related) if related else None


def _plural(noun: str) -> str:
    return f"{noun}es" if noun.endswith("s") else f"{noun}s"


KINDS: tuple[Callable[[Scene, random.Random], Question | None], ...] = (
    _ask_colour,
    _ask_shape,
    _ask_size,
    _ask_count,
    _ask_existence,
    _ask_relation,
    _ask_related,
)
