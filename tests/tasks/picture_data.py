"""Generated pictures with captions and texts for the tests of tasks, in a folder with a metadata.csv each."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

COLOURS = {"red": (220, 40, 40), "green": (40, 180, 60), "blue": (50, 70, 220), "yellow": (230, 210, 50)}
PLACES = {"left": 0, "right": 1}
SIDE = 16


def scene(colour: str, place: str, shade: int = 230) -> Image.Image:
    """A coloured square in one half of a light picture."""
    picture = Image.new("RGB", (SIDE, SIDE), (shade,) * 3)
    left = 2 + PLACES[place] * SIDE // 2
    ImageDraw.Draw(picture).rectangle((left, 4, left + 4, 11), fill=COLOURS[colour])
    return picture


def line(text: str, height: int = 16) -> Image.Image:
    """Dark text on a light picture."""
    font = ImageFont.load_default(12)
    picture = Image.new("RGB", (round(font.getlength(text)) + 6, height), (235, 235, 235))
    ImageDraw.Draw(picture).text((3, 0), text, fill=(20, 20, 20), font=font)
    return picture


def write_rows(folder: Path, rows: Iterable[tuple[Image.Image, list[str]]], role: str) -> Path:
    """Write pictures with one or more texts each; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "metadata.csv").open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(["file_name", role])
        for number, (picture, texts) in enumerate(rows):
            name = f"{number:03}.png"
            picture.save(folder / name)
            table.writerows([name, text] for text in texts)
    return folder


def write_captions(folder: Path, count: int = 80, captions: int = 2) -> Path:
    """Write scenes with several captions each."""
    draw = random.Random(3)
    rows = []
    for number in range(count):
        colour, place = draw.choice(list(COLOURS)), draw.choice(list(PLACES))
        forms = [f"A {colour} square on the {place}", f"on the {place} there is something {colour}"]
        rows.append((scene(colour, place, 200 + number % 50), forms[:captions]))
    return write_rows(folder / "scenes", rows, "caption")


def write_lines(folder: Path, count: int = 100, letters: str = "abcde") -> Path:
    """Write pictures of short words."""
    draw = random.Random(4)
    words = ["".join(draw.choices(letters, k=draw.randint(1, 4))) for _ in range(count)]
    return write_rows(folder / "lines", [(line(word), [word]) for word in words], "text")
