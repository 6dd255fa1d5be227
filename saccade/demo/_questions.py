"""Questions about a scene with their answers, and its caption.

An object is named by attributes that no other object of the scene has together, such as "the star" or "the small ring".
A relation compares the centres of two objects across or down, so that every pair has two relations.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Sequence

from saccade.demo._scenes import COLOURS, SHAPES, Item, Scene

RELATIONS = ("left of", "right of", "above", "below")
QUESTIONS = 4  # per picture, at most

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
    """Return questions of different kinds about a scene, each with its answer."""
    kinds = [*KINDS]
    rng.shuffle(kinds)
    questions = (question for kind in kinds if (question := kind(scene, rng)) is not None)
    return [question for question, _ in zip(questions, range(QUESTIONS), strict=False)]


def _name(item: Item, names: Sequence[str]) -> str:
    """Return an object by some of its attributes, such as 'small ring'; without its shape it is an 'object'."""
    values = [str(getattr(item.attributes, name)) for name in names]
    return " ".join(values if "shape" in names else [*values, "object"])


def _named(scene: Scene, names: Sequence[str]) -> list[tuple[Item, str]]:
    """Return the objects that some attributes identify, each with its name."""
    phrases = [_name(item, names) for item in scene.items]
    return [(item, phrase) for item, phrase in zip(scene.items, phrases, strict=True) if phrases.count(phrase) == 1]


def _ask_attribute(
    scene: Scene, rng: random.Random, forms: Sequence[Sequence[str]], attribute: str, words: str
) -> Question | None:
    """Ask for an attribute of an object that others identify."""
    named = _named(scene, rng.choice(forms))
    if not named:
        return None
    item, name = rng.choice(named)
    return words.format(name), str(getattr(item.attributes, attribute))


def _ask_colour(scene: Scene, rng: random.Random) -> Question | None:
    return _ask_attribute(scene, rng, (("shape",), ("size", "shape")), "colour", "what colour is the {}?")


def _ask_shape(scene: Scene, rng: random.Random) -> Question | None:
    return _ask_attribute(scene, rng, (("colour",), ("size", "colour")), "shape", "what shape is the {}?")


def _ask_size(scene: Scene, rng: random.Random) -> Question | None:
    return _ask_attribute(scene, rng, (("shape",), ("colour", "shape")), "size", "is the {} small or large?")


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
    """Ask for a colour and a shape that an object has, or that two objects have but none together."""
    present = {(item.attributes.colour, item.attributes.shape) for item in scene.items}
    crossed = {(colour, shape) for colour, _ in present for _, shape in present} - present
    answer = rng.choice(("yes", "no")) if crossed else "yes"
    colour, shape = rng.choice(sorted(present if answer == "yes" else crossed))
    return f"is there a {colour} {shape}?", answer


def _ask_relation(scene: Scene, rng: random.Random) -> Question | None:
    """Ask whether two objects have a relation."""
    named = _named(scene, ("colour", "shape"))
    if len(named) < 2:
        return None
    (item, name), (other, other_name) = rng.sample(named, 2)
    relation = rng.choice(RELATIONS)
    return f"is the {name} {relation} the {other_name}?", "yes" if has_relation(item, relation, other) else "no"


def _ask_related(scene: Scene, rng: random.Random) -> Question | None:
    """Ask for the shape of the only object that has a relation to another one."""
    related = []
    for other, name in _named(scene, ("colour", "shape")):
        for relation in RELATIONS:
            shapes = [item.attributes.shape for item in scene.items if has_relation(item, relation, other)]
            if len(shapes) == 1:
                related.append((f"what shape is {relation} the {name}?", shapes[0]))
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
