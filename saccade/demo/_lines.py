"""Lines of text: generated words and numbers, and their pictures."""

import io
import random
import re
from datetime import date, timedelta
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from saccade.errors import UsageError

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont

HEIGHT = 32  # pixels of a line
SIZES = (15, 21)  # of a font, in pixels
SLANT = 0.2  # at most, pixels across per pixel down
BLUR = 0.6  # at most, pixels
NOISE = 8.0  # at most, standard deviation in grey levels
CONTRAST = 100  # at least, grey levels between text and background

CLUSTERS = ("br", "ch", "cl", "cr", "dr", "fl", "fr", "gl", "gr", "pl", "pr", "qu", "sl", "sp", "st", "th", "tr")
ONSETS = (*"bcdfghjklmnprstvwyz", *CLUSTERS)
VOWELS = "aeiou"
CODAS = ("", "", "", *"lmnrx", "nd", "ng", "rk", "st")
VOWEL_FIRST = 0.15  # of the words
# Beginnings of what nobody wants to read in a demo.
AVOIDED = re.compile("cu|di[ck]|dild|fag|fu[ck]|gay|hom|kok|kum|naz|nig|pis|rap|sex|slu|tit")
# Letters whose capitals have the same form: a word of these alone could be in either case.
SAME_CAPITALS = frozenset("cosvwxz")
KINDS = {"word": 50, "words": 15, "number": 13, "price": 8, "date": 9, "time": 5}  # how often
MAX_LETTERS = {"word": 12, "words": 7}  # of a word

# Looked for where the system keeps its fonts; the font that Pillow contains is always used.
FONTS = (
    *("DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSerif.ttf", "DejaVuSansMono.ttf"),
    *("LiberationSans-Regular.ttf", "LiberationSerif-Regular.ttf", "LiberationSerif-Italic.ttf"),
    *("Arial.ttf", "Georgia.ttf", "Times New Roman.ttf", "Courier New.ttf", "Verdana.ttf"),
)


def sample_text(rng: random.Random) -> str:
    """Return a line of text that can be read in one way only, in any font."""
    (kind,) = rng.choices(list(KINDS), list(KINDS.values()))
    if kind == "number":
        return rng.choice(("{:d}", "{:,d}", "{:d}%")).format(rng.randint(0, 10 ** rng.randint(1, 5)))
    if kind == "price":
        return f"${rng.randint(0, 10 ** rng.randint(1, 4)):,d}.{rng.randint(0, 99):02}"
    if kind == "date":
        day = date(1950, 1, 1) + timedelta(rng.randrange(36_525))
        return rng.choice((f"{day:%Y-%m-%d}", f"{day:%d/%m/%Y}", f"{day:%d.%m.%y}"))
    if kind == "time":
        return f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}"
    count = 1 if kind == "word" else 2
    case = rng.choice((str.lower, str.lower, str.lower, str.capitalize, str.upper))
    return case(" ".join(_word(rng, MAX_LETTERS[kind]) for _ in range(count)))


def _word(rng: random.Random, max_length: int) -> str:
    """Return a word of two or three syllables, which is not the same in capitals.

    I is followed by a consonant at the start of a word, and l by a vowel, so that they cannot be confused.
    """
    while True:
        syllables = range(rng.randint(2, 3))
        word = "".join(rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS) for _ in syllables)
        if rng.random() < VOWEL_FIRST:
            word = rng.choice(VOWELS) + word
        if len(word) <= max_length and not SAME_CAPITALS.issuperset(word) and not AVOIDED.search(word):
            return word


@cache
def font_names() -> tuple[str, ...]:
    """Return the fonts that are available; the first, '', is the one that Pillow contains."""
    names = [""]
    for name in FONTS:
        try:
            load_font(name, SIZES[0])
        except OSError:  # this system does not have it
            continue
        names.append(name)
    return tuple(names)


@cache
def load_font(name: str, size: int) -> "FreeTypeFont":
    """Return a font of a size in pixels; '' is the one that Pillow contains."""
    try:
        from PIL import ImageFont

        basic = ImageFont.Layout.BASIC  # the same with and without Raqm
        font = ImageFont.truetype(name, size, layout_engine=basic) if name else ImageFont.load_default(size)
    except ImportError as error:
        raise UsageError("the demo needs Pillow with FreeType; pip install 'saccade[demo]'") from error
    assert isinstance(font, ImageFont.FreeTypeFont)
    return font


def render_line(text: str, rng: random.Random) -> bytes:
    """Return a picture of a text as PNG, in grey: a random font, slant, contrast, gradient, blur and noise."""
    font = load_font(rng.choice(font_names()), rng.randint(*SIZES))
    ink = _ink(text, font, rng.uniform(-SLANT, SLANT), rng)
    from PIL import Image, ImageFilter

    ground, grey = _greys(rng)
    height, width = ink.shape
    slope = (np.arange(width) + 0.5) / width - 0.5
    background = ground + rng.uniform(-20, 20) * slope[None, :]  # (1, W)
    pixels = background + (grey - background) * ink
    picture = Image.fromarray(pixels.round().clip(0, 255).astype(np.uint8))
    blurred = np.asarray(picture.filter(ImageFilter.GaussianBlur(rng.uniform(0, BLUR))), dtype=np.float64)
    noise = np.random.default_rng(rng.getrandbits(64)).standard_normal((height, width)) * rng.uniform(0, NOISE)
    buffer = io.BytesIO()
    Image.fromarray((blurred + noise).round().clip(0, 255).astype(np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def _ink(text: str, font: "FreeTypeFont", slant: float, rng: random.Random) -> np.ndarray:
    """Return how much of each pixel a slanted text covers, from 0 to 1, as an array (H, W)."""
    from PIL import Image, ImageDraw

    left, top, right, bottom = font.getbbox(text)
    shift = abs(slant) * HEIGHT
    margins = [rng.randint(2, 6), rng.randint(2, 6)]
    width = round(right - left + shift) + sum(margins)
    free = max(0, HEIGHT - round(bottom - top) - 2)  # rows above and below the text
    mask = Image.new("L", (width, HEIGHT))
    across = margins[0] - left + (shift if slant > 0 else 0)
    ImageDraw.Draw(mask).text((across, 1 + rng.randint(0, free) - top), text, fill=255, font=font)
    # A pixel of row y is taken from slant * y further right: the top stays, the bottom moves to the left.
    sheared = mask.transform(mask.size, Image.Transform.AFFINE, (1, slant, 0, 0, 1, 0), Image.Resampling.BICUBIC)
    return np.asarray(sheared, dtype=np.float64) / 255


def _greys(rng: random.Random) -> tuple[int, int]:
    """Return the grey levels of background and text, mostly dark on light."""
    light = rng.randint(150, 245)
    dark = rng.randint(10, light - CONTRAST)
    return (light, dark) if rng.random() < 0.75 else (dark, light)
