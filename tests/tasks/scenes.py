"""Tiny pictures of one coloured shape on one side, with captions and questions, as ordinary files."""

from __future__ import annotations

import csv
from itertools import product
from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 16
COLOURS = {"red": (220, 30, 30), "green": (30, 180, 30), "blue": (40, 40, 230)}
SHAPES = ("square", "bar")
SIDES = ("left", "right")
Scene = tuple[str, str, str]


def draw(colour: str, shape: str, side: str, seed: int = 0) -> np.ndarray:
    """Return the pixels (H, W, 3) of a shape in the left or the right half of a grey picture."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(90, 110, (SIDE, SIDE, 3)).astype(np.uint8)
    top, left = int(rng.integers(2, 8)), int(rng.integers(0, 3)) + (0 if side == "left" else SIDE // 2)
    height, width = (5, 5) if shape == "square" else (2, 5)
    pixels[top : top + height, left : left + width] = COLOURS[colour]
    return pixels


def caption(scene: Scene) -> str:
    return f"A {scene[0]} {scene[1]} in the {scene[2]} half."


def questions(scene: Scene) -> list[tuple[str, str]]:
    colour, shape, side = scene
    other = SIDES[1 - SIDES.index(side)]
    return [
        (f"What colour is the {shape}?", colour),
        ("Which side is it on?", side),
        (f"Is it on the {other} side?", "no"),
        (f"Is it on the {side} side?", "yes"),
    ]


def write_pictures(folder: Path, copies: int = 8) -> list[tuple[str, Scene]]:
    """Write several pictures of every scene and return their names within the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    scenes = list(product(COLOURS, SHAPES, SIDES)) * copies
    named = [(f"{number:03}.png", scene) for number, scene in enumerate(scenes)]
    for number, (name, scene) in enumerate(named):
        Image.fromarray(draw(*scene, seed=number)).save(folder / name)
    return named


def write_captions(folder: Path) -> Path:
    """Write pictures with a caption each, and a second one of every third, and return their folder."""
    folder, rows = folder / "scenes", []
    for number, (name, scene) in enumerate(write_pictures(folder)):
        rows.append((name, caption(scene)))
        if number % 3 == 0:
            rows.append((name, f"Here is a {scene[0]} {scene[1]}."))
    return write_table(folder, ("file_name", "caption"), rows)


def write_questions(folder: Path) -> Path:
    """Write pictures with questions and answers and return their folder."""
    folder = folder / "scenes"
    pictures = write_pictures(folder)
    rows = [(name, *pair) for name, scene in pictures for pair in questions(scene)]
    return write_table(folder, ("file_name", "question", "answer"), rows)


def write_table(folder: Path, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> Path:
    with (folder / "metadata.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([columns, *rows])
    return folder


def write_classes(folder: Path) -> Path:
    """Write pictures in one folder for each shape on each side and return the folder of these."""
    return _write_classes(folder, "{side} {shape}")


def write_colours(folder: Path) -> Path:
    """Write pictures in one folder for each colour and return the folder of these."""
    return _write_classes(folder, "{colour}")


def _write_classes(folder: Path, name: str) -> Path:
    folder = folder / "classes"
    for number, (colour, shape, side) in enumerate(list(product(COLOURS, SHAPES, SIDES)) * 8):
        label = folder / name.format(colour=colour, shape=shape, side=side)
        label.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw(colour, shape, side, seed=number)).save(label / f"{number:03}.png")
    return folder
