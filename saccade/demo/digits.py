"""The digits demo: pictures of slanted and shifted digits in several fonts, one folder for each digit."""

import io
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

from saccade.demo._demo import Demo, DemoFiles, DemoTask
from saccade.demo._files import write_files
from saccade.demo._lines import font_names, load_font

SIZE = 28  # pixels of a side
FONT_SIZES = (20, 25)  # pixels
SLANT = 0.3  # at most, pixels across per pixel down
TURN = 10.0  # at most, degrees
SHIFT = 2.0  # at most, pixels


def render_digit(digit: str, rng: random.Random) -> bytes:
    """Return a picture of a digit as PNG, white on black: a random font, size, slant, rotation and position."""
    font = load_font(rng.choice(font_names()), rng.randint(*FONT_SIZES))
    from PIL import Image, ImageDraw

    left, top, right, bottom = font.getbbox(digit)
    picture = Image.new("L", (SIZE, SIZE))
    across, down = (rng.uniform(-SHIFT, SHIFT) for _ in range(2))
    corner = ((SIZE - left - right) / 2 + across, (SIZE - top - bottom) / 2 + down)
    ImageDraw.Draw(picture).text(corner, digit, fill=255, font=font)
    slant = rng.uniform(-SLANT, SLANT)
    sheared = (1, slant, -slant * SIZE / 2, 0, 1, 0)  # the middle row stays
    picture = picture.transform(picture.size, Image.Transform.AFFINE, sheared, Image.Resampling.BICUBIC)
    picture = picture.rotate(rng.uniform(-TURN, TURN), Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


def write_digits(folder: Path, *, seed: int = 1, train_rows: int = 6_000, valid_rows: int = 1_000) -> DemoFiles:
    """Write pictures of digits into a folder for each digit, for training and for validation."""
    files: dict[str, Callable[[], bytes]] = {}
    for part, count in (("train", train_rows), ("val", valid_rows)):
        for number in range(count):
            digit, rng = str(number % 10), random.Random(f"{seed} {part} {number}")
            files[f"{part}/{digit}/{number:05}.png"] = partial(render_digit, digit, rng)
    write_files(folder, files, "digits")
    plan = f"{len(font_names())} fonts, {train_rows:,} pictures of digits for training and {valid_rows:,} held out"
    return DemoFiles(folder, plan, ())


DEMO = Demo(
    "pictures of digits in several fonts",
    {
        "image_generation": DemoTask(
            "draw digits that nobody has drawn before (self-attention GAN)",
            write_digits,
            "where the centre of the first digit looks, in the generator",
            minutes=2,
            samples=20,
        )
    },
)
