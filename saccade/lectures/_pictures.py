"""Small pictures and sounds for demonstrations, written as ordinary files."""

from __future__ import annotations

import io
import random
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from saccade.demo._files import table
from saccade.demo._morse import RATE, to_wave

SIDE = 12  # pixels
COLOURS = {"red": (220, 40, 40), "green": (40, 180, 60), "blue": (50, 70, 220), "yellow": (230, 210, 50)}
PLACES = {"left": 0, "right": 1}
PITCHES = {"a": 400.0, "b": 700.0, "c": 1100.0, "d": 1500.0}
Pixels = NDArray[np.uint8]


def square(colour: str, place: str, shade: int = 220, side: int = SIDE) -> Pixels:
    """Return a coloured square in the left or right half of a light picture (H, W, 3)."""
    pixels = np.full((side, side, 3), shade, np.uint8)
    left = PLACES[place] * side // 2 + 1
    pixels[side // 3 : 2 * side // 3, left : left + side // 3] = COLOURS[colour]
    return pixels


def both(left: str, right: str, shade: int = 220, side: int = SIDE) -> Pixels:
    """Return a coloured square in each half."""
    half = side // 2
    return np.concatenate(
        (square(left, "left", shade, side)[:, :half], square(right, "right", shade, side)[:, half:]), 1
    )


def line(text: str) -> Pixels:
    """Return dark letters on a light picture, 16 pixels high."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(12)
    picture = Image.new("RGB", (round(font.getlength(text)) + 6, 16), (235, 235, 235))
    ImageDraw.Draw(picture).text((3, 0), text, fill=(20, 20, 20), font=font)
    return np.array(picture)


def png(pixels: Pixels) -> bytes:
    """Return pixels as a PNG file."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def write_table(folder: Path, columns: Sequence[str], rows: Iterable[tuple[Pixels, Sequence[Sequence[str]]]]) -> Path:
    """Write pictures with one or more rows of texts each, and their table metadata.csv; return the folder."""
    lines = [["file_name", *columns]]
    for number, (pixels, texts) in enumerate(rows):
        name = f"{number:04}.png"
        (folder / name).write_bytes(png(pixels))
        lines += [[name, *text] for text in texts]
    (folder / "metadata.csv").write_bytes(table(lines))
    return folder


def scenes(copies: int) -> list[tuple[str, str, int]]:
    """Return colour, place and shade of the background of some squares."""
    return [(*scene, 200 + number % 50) for number, scene in enumerate(list(product(COLOURS, PLACES)) * copies)]


def write_classes(folder: Path, copies: int = 12) -> Path:
    """Write a folder of pictures for each colour; return the folder of these."""
    for number, (colour, place, shade) in enumerate(scenes(copies)):
        (folder / colour).mkdir(exist_ok=True)
        (folder / colour / f"{number:04}.png").write_bytes(png(square(colour, place, shade)))
    return folder


def tones(letters: str, seed: int = 0, seconds: float = 0.12) -> NDArray[np.float64]:
    """Return a tone of its own for each letter, one after another, in a little noise."""
    times = np.arange(round(seconds * RATE)) / RATE
    gap = np.zeros(round(0.04 * RATE))
    parts = [part for letter in letters for part in (np.sin(2 * np.pi * PITCHES[letter] * times), gap)]
    samples = np.concatenate(parts)
    return 0.5 * samples + 0.02 * np.random.default_rng(seed).standard_normal(len(samples))


def write_tones(folder: Path, count: int = 300) -> Path:
    """Write recordings of words of tones with a metadata.csv; return the folder."""
    draw, lines = random.Random(5), [["file_name", "text"]]
    for number in range(count):
        word = "".join(draw.choices(sorted(PITCHES), k=draw.randint(2, 5)))
        (folder / f"{number:03}.wav").write_bytes(to_wave(tones(word, number)))
        lines.append([f"{number:03}.wav", word])
    (folder / "metadata.csv").write_bytes(table(lines))
    return folder
