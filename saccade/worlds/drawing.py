"""Drawings of grid worlds: a map with its walker, or what the walker sees, as an image.

Shapes: H height, W width.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from saccade.worlds.grid import FLOOR, WALL, GridWorld, Pose, is_door, view_cells

CELL = 16  # pixels
PAPER, LINE, STONE, DARK, WALKER = (244, 243, 238), (222, 220, 212), (96, 100, 108), (40, 43, 48), (230, 92, 30)
COLOURS = {
    "red": (214, 40, 48),
    "blue": (38, 92, 204),
    "green": (40, 148, 72),
    "yellow": (240, 196, 32),
    "black": (24, 24, 28),
    "white": (255, 255, 255),
    "orange": (240, 130, 30),
    "purple": (128, 60, 170),
    "pink": (236, 120, 170),
    "brown": (124, 82, 48),
    "grey": (140, 142, 146),
    "gray": (140, 142, 146),
}
# A shape for each kind of object, 10 x 10; others get one of them by their name.
SHAPES = {
    "lamp": (
        "...####... ..######.. .########. .########. ....##.... ....##.... ....##.... ....##.... ..######.. ..######.."
    ),
    "chair": (
        "##........ ##........ ##........ ##........ #########. #########. ##.....##. ##.....##. ##.....##. ##.....##."
    ),
    "sofa": (
        ".......... .######### .######### .######### ########## ########## ########## ########## .##....##. .........."
    ),
    "easel": (
        "....##.... ########## ########## ########## ########## ########## ...####... ..##..##.. .##....##. ##......##"
    ),
    "clock": (
        "...####... .########. .####.###. #####.#### #####.#### #####...## ########## .########. .########. ...####..."
    ),
    "plant": (
        "..#....#.. .###..###. ..######.. ...####... ....##.... ....##.... .########. .########. ..######.. ..######.."
    ),
}

Image = NDArray[np.uint8]


def draw_map(world: GridWorld, pose: Pose, path: Sequence[Pose] = ()) -> Image:
    """Return the map from above (H, W, 3), with the walker as an arrow and the cells it has come through."""
    cells = [[_draw_cell(world, character) for character in row] for row in world.rows]
    image = np.concatenate([np.concatenate(row, 1) for row in cells])
    for row, column, _ in path:
        centre = slice(row * CELL + 6, row * CELL + 10), slice(column * CELL + 6, column * CELL + 10)
        image[centre] = WALKER
    at = slice(pose.row * CELL, (pose.row + 1) * CELL), slice(pose.column * CELL, (pose.column + 1) * CELL)
    image[at] = _draw_walker(image[at], pose.heading)
    return image


def draw_view(world: GridWorld, pose: Pose, size: int) -> Image:
    """Return what the walker sees (H, W, 3): `size` cells each way, the one ahead of it above."""
    rows, columns = len(world.rows), len(world.rows[0])
    cells = []
    for row, column in view_cells(np.array([pose]), size)[0].tolist():
        inside = 0 <= row < rows and 0 <= column < columns
        cells.append(_draw_cell(world, world.rows[row][column]) if inside else _filled(DARK))
    cells[len(cells) // 2] = _draw_walker(cells[len(cells) // 2], 0)
    return np.concatenate([np.concatenate(cells[first : first + size], 1) for first in range(0, len(cells), size)])


def _filled(colour: tuple[int, int, int]) -> Image:
    return np.full((CELL, CELL, 3), colour, np.uint8)


def _draw_cell(world: GridWorld, character: str) -> Image:
    if character == WALL:
        return _filled(STONE)
    cell = _filled(PAPER)
    cell[-1], cell[:, -1] = LINE, LINE
    if character == FLOOR:
        return cell
    name = world.legend[character]
    colour = _colour(name)
    if is_door(name):
        cell[:] = colour
        cell[2:-2, 2:-2] = (np.array(colour, float) * 0.55 + np.array(PAPER) * 0.45).astype(np.uint8)
        return cell
    shape = _shape(name.split()[-1])
    edge = np.zeros((12, 12), bool)
    for down, across in ((0, 1), (1, 0), (1, 2), (2, 1)):
        edge[down : down + 10, across : across + 10] |= shape
    inner = cell[2:14, 2:14]
    inner[edge] = DARK
    inner[1:11, 1:11][shape] = colour
    return cell


def _colour(name: str) -> tuple[int, int, int]:
    """Return the colour that a name says, or one that only depends on the name."""
    known = next((COLOURS[word] for word in name.split() if word in COLOURS), None)
    if known is not None:
        return known
    number = zlib.crc32(name.encode())
    return 60 + number % 150, 60 + number // 256 % 150, 60 + number // 65536 % 150


def _shape(kind: str) -> NDArray[np.bool_]:
    names = sorted(SHAPES)
    rows = SHAPES.get(kind, SHAPES[names[zlib.crc32(kind.encode()) % len(names)]]).split()
    return np.array([[character == "#" for character in row] for row in rows])


def _draw_walker(cell: Image, heading: int) -> Image:
    """Return a cell with the walker on it, an arrow that points where it is heading."""
    down, across = np.mgrid[0:CELL, 0:CELL] + 0.5
    arrow = (
        (np.abs(across - CELL / 2) < (down - 1.5) * 0.48)
        & (down < 14)
        & ~((np.abs(across - CELL / 2) < (down - 10) * 0.9) & (down > 10))
    )
    drawn = cell.copy()
    drawn[np.rot90(arrow, -heading)] = WALKER
    return drawn
