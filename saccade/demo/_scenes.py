"""Scenes of coloured shapes: how they are composed and rendered.

A scene is a description in pixels, sampled with a random generator of its own, so that it depends on its seed alone.
"""

import io
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from saccade.errors import UsageError

if TYPE_CHECKING:
    from PIL import Image

RGB = tuple[int, int, int]

SIDE = 64  # pixels of a picture
SUPERSAMPLING = 4  # per pixel and axis
SHAPES = ("circle", "square", "triangle", "star", "ring", "cross")
COLOURS: dict[str, RGB] = {
    "red": (214, 40, 46),
    "green": (38, 158, 72),
    "blue": (44, 92, 222),
    "yellow": (238, 196, 32),
    "purple": (146, 58, 190),
    "cyan": (38, 190, 204),
}
RADII = {"small": (4.5, 5.5), "large": (9.0, 10.5)}
REACH = 1.15  # of a shape from its centre, in radii
HOLE = 0.55  # of a ring, in radii
TILT = 15.0  # degrees, at most: a square that is turned further is a diamond
MARGIN = 2.0  # pixels between objects, and from the edge
COLOUR_JITTER = 12


def _corners(distances: Sequence[float], start: float) -> list[tuple[float, float]]:
    """Return corners at equal angles around the origin, from `start` degrees, in radii; y points down."""
    angles = (math.radians(start + 360 * number / len(distances)) for number in range(len(distances)))
    return [(r * math.cos(angle), r * math.sin(angle)) for r, angle in zip(distances, angles, strict=True)]


ARM, END = 0.34, 1.05  # half the width and the length of an arm of a cross, in radii
OUTLINES = {
    "square": _corners((1.12,) * 4, -45),
    "triangle": _corners((REACH,) * 3, -90),
    "star": _corners((REACH, 0.5) * 5, -90),
    "cross": [
        *((ARM, -END), (ARM, -ARM), (END, -ARM), (END, ARM), (ARM, ARM), (ARM, END)),
        *((-ARM, END), (-ARM, ARM), (-END, ARM), (-END, -ARM), (-ARM, -ARM), (-ARM, -END)),
    ],
}


@dataclass(frozen=True)
class Attributes:
    """Attributes of an object."""

    size: str
    colour: str
    shape: str

    def __str__(self) -> str:
        return f"{self.size} {self.colour} {self.shape}"


@dataclass(frozen=True)
class Item:
    """An object in a picture; x and y are its centre, angle is in degrees."""

    attributes: Attributes
    x: float
    y: float
    radius: float
    angle: float
    rgb: RGB

    @property
    def reach(self) -> float:
        """The radius of a circle that holds the object."""
        return REACH * self.radius


@dataclass(frozen=True)
class Background:
    """A colour in the middle of the picture and its change from edge to edge, across and down."""

    rgb: RGB
    across: float
    down: float


@dataclass(frozen=True)
class Scene:
    """Objects on a background."""

    items: tuple[Item, ...]
    background: Background


def sample_attributes(rng: random.Random, colours: Sequence[str] = tuple(COLOURS), size: str = "") -> Attributes:
    """Sample the attributes of an object."""
    return Attributes(size or rng.choice(("small", "large")), rng.choice(colours), rng.choice(SHAPES))


def sample_item(rng: random.Random, attributes: Attributes, x: float, y: float, radius: float) -> Item:
    """Sample the angle and the shade of an object."""
    shades = (value + rng.randint(-COLOUR_JITTER, COLOUR_JITTER) for value in COLOURS[attributes.colour])
    red, green, blue = (min(255, max(0, shade)) for shade in shades)
    return Item(attributes, x, y, radius, rng.uniform(-TILT, TILT), (red, green, blue))


def sample_background(rng: random.Random) -> Background:
    """Sample a light or a dark background that is nearly grey."""
    grey = rng.randint(24, 64) if rng.random() < 0.5 else rng.randint(196, 232)
    red, green, blue = (grey + rng.randint(-8, 8) for _ in range(3))
    return Background((red, green, blue), rng.uniform(-16, 16), rng.uniform(-16, 16))


def sample_radius(rng: random.Random, attributes: Attributes) -> float:
    """Sample the radius of an object of its size."""
    return rng.uniform(*RADII[attributes.size])


def scatter(rng: random.Random, objects: Sequence[Attributes]) -> Scene:
    """Place objects anywhere, without overlap."""
    while True:
        radii = [sample_radius(rng, attributes) for attributes in objects]
        places = [_anywhere(rng, radius) for radius in radii]
        if _apart(places, radii):
            return _compose(rng, objects, places, radii)


def spread(rng: random.Random, objects: Sequence[Attributes], gap: float) -> Scene:
    """Place objects without overlap so that no two centres are closer than `gap` across, or closer than that down."""
    while True:
        radii = [sample_radius(rng, attributes) for attributes in objects]
        edge = REACH * max(radii) + MARGIN
        across, down = (_spaced(rng, len(objects), edge, SIDE - edge, gap) for _ in range(2))
        places = list(zip(across, down, strict=True))
        if _apart(places, radii):
            return _compose(rng, objects, places, radii)


def place_pair(rng: random.Random, objects: tuple[Attributes, Attributes], *, vertical: bool) -> Scene:
    """Place two objects side by side, or with `vertical` one above the other, in either order and no other way."""
    while True:
        radii = [sample_radius(rng, attributes) for attributes in objects]
        places = [_anywhere(rng, radius) for radius in radii]
        (x, y), (other_x, other_y) = places
        along, beside = abs(x - other_x), abs(y - other_y)
        if vertical:
            along, beside = beside, along
        if along > REACH * sum(radii) + MARGIN and beside < along / 2:
            return _compose(rng, objects, places, radii)


def _compose(
    rng: random.Random, objects: Sequence[Attributes], places: Sequence[tuple[float, float]], radii: Sequence[float]
) -> Scene:
    placed = zip(objects, places, radii, strict=True)
    items = (sample_item(rng, attributes, *place, radius) for attributes, place, radius in placed)
    return Scene(tuple(items), sample_background(rng))


def _anywhere(rng: random.Random, radius: float) -> tuple[float, float]:
    edge = REACH * radius + MARGIN
    return rng.uniform(edge, SIDE - edge), rng.uniform(edge, SIDE - edge)


def _spaced(rng: random.Random, count: int, low: float, high: float, gap: float) -> list[float]:
    """Sample numbers between two limits, no two closer than `gap`, in any order."""
    free = high - low - gap * (count - 1)
    values = sorted(rng.uniform(0, free) for _ in range(count))
    numbers = [low + value + gap * rank for rank, value in enumerate(values)]
    rng.shuffle(numbers)
    return numbers


def _apart(places: Sequence[tuple[float, float]], radii: Sequence[float]) -> bool:
    """Whether the circles around the objects have a margin between them."""
    return all(
        math.dist(places[first], places[second]) > REACH * (radii[first] + radii[second]) + MARGIN
        for second in range(len(places))
        for first in range(second)
    )


def render(scene: Scene) -> bytes:
    """Return the picture of a scene as PNG."""
    try:
        from PIL import Image
    except ImportError as error:
        raise UsageError("the demo needs Pillow; pip install 'saccade[demo]'") from error
    slope = (np.arange(SIDE) + 0.5) / SIDE - 0.5
    shade = scene.background.across * slope[None, :] + scene.background.down * slope[:, None]  # (H, W)
    pixels = np.asarray(scene.background.rgb) + shade[..., None]
    picture = Image.fromarray(pixels.round().clip(0, 255).astype(np.uint8))
    for item in scene.items:
        left, top = math.floor(item.x - item.reach), math.floor(item.y - item.reach)
        picture.paste(item.rgb, (left, top), _coverage(item, left, top))
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


def _coverage(item: Item, left: int, top: int) -> "Image.Image":
    """Return how much of each pixel an object covers, for the box around it whose corner is given."""
    from PIL import Image, ImageDraw

    side = math.ceil(2 * item.reach) + 1
    mask = Image.new("L", (side * SUPERSAMPLING, side * SUPERSAMPLING))
    draw = ImageDraw.Draw(mask)
    x, y = ((centre - corner) * SUPERSAMPLING for centre, corner in ((item.x, left), (item.y, top)))
    scale = item.radius * SUPERSAMPLING
    if item.attributes.shape in ("circle", "ring"):
        draw.ellipse((x - scale, y - scale, x + scale, y + scale), fill=255)
        if item.attributes.shape == "ring":
            hole = HOLE * scale
            draw.ellipse((x - hole, y - hole, x + hole, y + hole), fill=0)
    else:
        turned = math.radians(item.angle)
        cosine, sine = math.cos(turned) * scale, math.sin(turned) * scale
        corners = OUTLINES[item.attributes.shape]
        turned_corners = [(x + cosine * a - sine * d, y + sine * a + cosine * d) for a, d in corners]
        draw.polygon(turned_corners, fill=255)
    return mask.reduce(SUPERSAMPLING)
