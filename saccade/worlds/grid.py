"""Grid world: walls, doors and objects on a map, and a walker with a position and a heading.

Shapes: B walkers, R rows and C columns of a map, W words of landmarks, V side of a view.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from saccade.worlds.rules import RuleError, shown

HEADINGS = ("north", "east", "south", "west")
DOWN, ACROSS = (-1, 0, 1, 0), (0, 1, 0, -1)  # of one step, by heading
MOVES = np.array((DOWN, ACROSS)).T  # (4, 2)
ACTIONS = ("forward", "left", "right", "stop")
FORWARD, LEFT, RIGHT, STOP = range(4)
WALL, FLOOR = "#", "."
OUTSIDE_WORD, WALL_WORD, FLOOR_WORD, DOOR_WORD = "outside", "wall", "floor", "door"
TERRAIN = (OUTSIDE_WORD, WALL_WORD, FLOOR_WORD, DOOR_WORD)
MAX_SIDE = 64  # cells

Poses = NDArray[np.int64]
"""(B, 3): row, column and heading of each walker"""


class Pose(NamedTuple):
    """Position and heading of a walker; headings are numbers of `HEADINGS`."""

    row: int
    column: int
    heading: int


@dataclass(frozen=True)
class GridWorld:
    """A map with the names of its landmarks, and where the walker starts."""

    rows: tuple[str, ...]
    legend: Mapping[str, str]
    """name of each character that is neither wall nor floor, such as "red lamp"; doors can be walked through"""
    start: Pose

    def words_of(self, character: str) -> tuple[str, ...]:
        """Return what a cell is, in words: terrain, or the words of a landmark."""
        if character in (WALL, FLOOR):
            return (WALL_WORD if character == WALL else FLOOR_WORD,)
        return tuple(self.legend[character].split())

    def open(self) -> NDArray[np.bool_]:
        """Return which cells can be entered (R, C): floor and doors."""
        passable = [FLOOR, *(character for character, name in self.legend.items() if is_door(name))]
        return np.isin(self.characters(), passable)

    def characters(self) -> NDArray[np.str_]:
        """Return the map as an array (R, C)."""
        return np.array([list(row) for row in self.rows])

    def to_json(self) -> dict[str, Any]:
        """Return the world as `parse_grid` reads it."""
        row, column, heading = self.start
        return {"map": list(self.rows), "legend": dict(self.legend), "start": [row, column, HEADINGS[heading]]}


def is_door(name: str) -> bool:
    """Whether a landmark is a door, by the last word of its name."""
    return name.split()[-1:] == [DOOR_WORD]


def parse_grid(value: Mapping[str, Any]) -> GridWorld:
    """Return the world of a JSON object; raises RuleError where it breaks a rule."""
    for key in ("map", "start"):
        if key not in value:
            listed = ", ".join(f"'{name}'" for name in list(value)[:8])
            raise RuleError(f"no '{key}' beside {listed}" if listed else f"no '{key}'", "'map', 'legend' and 'start'")
    rows = _parse_rows(value["map"])
    legend = _parse_legend(value.get("legend", {}))
    known = {WALL, FLOOR, *legend}
    for number, row in enumerate(rows):
        for column, character in enumerate(row):
            if character not in known:
                what = f"{character!r} in row {number}, column {column} of 'map'"
                raise RuleError(what, "'#' (wall), '.' (floor) or a character of 'legend'")
    row_number, column, heading = parse_position(value["start"], rows, "start", heading=True)
    world = GridWorld(rows, legend, Pose(row_number, column, heading))
    if not world.open()[row_number, column]:
        name = " ".join(world.words_of(rows[row_number][column]))
        raise RuleError(f"'start' is in a {name} (row {row_number}, column {column})", "a floor or a door")
    return world


def parse_position(value: Any, rows: Sequence[str], key: str, *, heading: bool = False) -> list[int]:
    """Return the row and column of a cell of a map, counted from 0, and with `heading` the number of a heading."""
    form = f"[row, column{', heading' if heading else ''}]"
    if not isinstance(value, list | tuple) or len(value) != (3 if heading else 2):
        raise RuleError(f"'{key}' is {shown(value)}", form)
    row, column = value[:2]
    if any(type(number) is not int for number in (row, column)):
        raise RuleError(f"'{key}' is {shown(value)}", f"{form} with whole numbers")
    if not (0 <= row < len(rows) and 0 <= column < len(rows[0])):
        last = f"row {len(rows) - 1}, column {len(rows[0]) - 1}"
        raise RuleError(f"'{key}' is row {row}, column {column}", f"a cell of the map, from row 0, column 0 to {last}")
    if not heading:
        return [row, column]
    if value[2] not in HEADINGS:
        raise RuleError(f"the heading of '{key}' is {shown(value[2])}", " or ".join(HEADINGS))
    return [row, column, HEADINGS.index(value[2])]


def _parse_rows(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value or not all(isinstance(row, str) and row for row in value):
        raise RuleError(f"'map' is {shown(value)}", "a list of rows of characters")
    longest = max(map(len, value))
    if len(value) > MAX_SIDE or longest > MAX_SIDE:
        raise RuleError(f"'map' has {len(value)} rows of up to {longest} columns", f"at most {MAX_SIDE} of each")
    for number, row in enumerate(value):
        if len(row) != len(value[0]):
            raise RuleError(f"row {number} of 'map' has {len(row)} columns", f"{len(value[0])}, as in row 0")
    return tuple(value)


def _parse_legend(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise RuleError(f"'legend' is {shown(value)}", 'names of characters, such as {"L": "red lamp"}')
    for character, name in value.items():
        if not isinstance(character, str) or len(character) != 1 or character in (WALL, FLOOR) or character.isspace():
            raise RuleError(f"'legend' has a name for {shown(character)}", "a single character other than '#' and '.'")
        if not isinstance(name, str) or not name.split():
            raise RuleError(f"'legend' calls {character!r} {shown(name)}", "a name, such as 'red lamp'")
        reserved = next((word for word in name.lower().split() if word in TERRAIN and word != DOOR_WORD), None)
        if reserved is not None:
            raise RuleError(f"'legend' calls {character!r} {name!r}", f"a name without the word '{reserved}'")
    return {character: " ".join(name.lower().split()) for character, name in value.items()}


class Terrain(NamedTuple):
    """A map as arrays."""

    open: NDArray[np.bool_]  # (R, C): cells that can be entered
    kinds: NDArray[np.uint16]  # (R, C): number of what a cell is
    words: NDArray[np.uint8]  # (K, W): which words describe each kind; the first one is outside the map


def terrain(world: GridWorld, vocabulary: Mapping[str, int]) -> Terrain:
    """Return the arrays of a world; `vocabulary` has the number of each word of landmarks and `TERRAIN`."""
    characters, kinds = np.unique(world.characters(), return_inverse=True)
    words = np.zeros((len(characters) + 1, len(vocabulary)), np.uint8)
    words[0, vocabulary[OUTSIDE_WORD]] = 1
    for row, character in enumerate(characters.tolist(), 1):
        words[row, [vocabulary[word] for word in world.words_of(character)]] = 1
    return Terrain(world.open(), (kinds + 1).astype(np.uint16).reshape(len(world.rows), -1), words)


def step(open_cells: NDArray[np.bool_], poses: Poses, actions: NDArray[np.int64]) -> Poses:
    """Return the poses (B, 3) after one action each; a walker that would leave open cells (B, R, C) stays."""
    heading = (poses[:, 2] + (actions == RIGHT) - (actions == LEFT)) % 4
    ahead = poses[:, :2] + MOVES[heading] * (actions == FORWARD)[:, None]
    inside = (ahead >= 0).all(1) & (ahead < open_cells.shape[1:]).all(1)
    clipped = ahead.clip(0, np.array(open_cells.shape[1:]) - 1)
    free = inside & open_cells[np.arange(len(poses)), clipped[:, 0], clipped[:, 1]]
    return np.column_stack((np.where(free[:, None], ahead, poses[:, :2]), heading))


def view_cells(poses: Poses, size: int) -> NDArray[np.int64]:
    """Return rows and columns (B, V V, 2) of the cells around each walker, the one ahead of it above."""
    reach = size // 2
    down, across = np.mgrid[-reach : reach + 1, -reach : reach + 1].reshape(2, -1)  # (V V,) each
    ahead, right = MOVES[poses[:, 2]], MOVES[(poses[:, 2] + 1) % 4]  # (B, 2)
    offsets = -down[None, :, None] * ahead[:, None] + across[None, :, None] * right[:, None]
    cells: NDArray[np.int64] = poses[:, None, :2] + offsets
    return cells


def observe(cells: Terrain, poses: Poses, size: int) -> NDArray[np.uint8]:
    """Return the words of the cells that walkers on one map see: (B, V V, W)."""
    at = view_cells(poses, size)
    inside = (at >= 0).all(-1) & (at < cells.kinds.shape).all(-1)
    clipped = at.clip(0, np.array(cells.kinds.shape) - 1)
    seen: NDArray[np.uint8] = cells.words[cells.kinds[clipped[..., 0], clipped[..., 1]] * inside]
    return seen


def move(open_cells: NDArray[np.bool_], pose: Pose, action: int) -> Pose:
    """Return the pose after one action, as `step` does for a batch of walkers."""
    row, column, heading = pose
    if action != FORWARD:
        return Pose(row, column, (heading + (action == RIGHT) - (action == LEFT)) % 4)
    row, column = row + DOWN[heading], column + ACROSS[heading]
    inside = 0 <= row < open_cells.shape[0] and 0 <= column < open_cells.shape[1]
    return Pose(row, column, heading) if inside and open_cells[row, column] else pose


def walk(open_cells: NDArray[np.bool_], start: Pose, actions: Iterable[int]) -> list[Pose]:
    """Return the pose before each action, and the last one."""
    poses = [start]
    for action in actions:
        poses.append(move(open_cells, poses[-1], action))
    return poses
