"""Rooms: maps of rooms with coloured doors between them and coloured objects in them."""

import random
from collections.abc import Collection
from dataclasses import dataclass

from saccade.worlds.grid import FLOOR, WALL

COLOURS = ("red", "blue", "green", "yellow", "black", "white")
OBJECTS = ("lamp", "chair", "sofa", "easel", "clock", "plant")
SIDE = 4  # cells of a room, each way: all of it is in sight from everywhere in it
PITCH = SIDE + 1
LAYOUTS = ((1, 2), (2, 2), (2, 2), (2, 3))  # rooms down and across
CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

Cell = tuple[int, int]
Room = tuple[int, int]


@dataclass(frozen=True)
class Door:
    """A door between two rooms."""

    name: str
    cell: Cell
    rooms: tuple[Room, Room]


@dataclass(frozen=True)
class House:
    """Rooms with doors and objects; every name is there once."""

    layout: tuple[int, int]
    doors: tuple[Door, ...]
    objects: dict[Cell, str]

    def room_of(self, cell: Cell) -> Room:
        """Return the room of a cell that is not a wall or a door."""
        return cell[0] // PITCH, cell[1] // PITCH

    def cells_of(self, room: Room) -> list[Cell]:
        """Return the cells of a room."""
        top, left = room[0] * PITCH + 1, room[1] * PITCH + 1
        return [(row, column) for row in range(top, top + SIDE) for column in range(left, left + SIDE)]

    def drawn(self) -> tuple[tuple[str, ...], dict[str, str]]:
        """Return the rows of the map and its legend."""
        named = {**{door.cell: door.name for door in self.doors}, **self.objects}
        legend = {name: CHARACTERS[number] for number, name in enumerate(named.values())}
        down, across = self.layout
        rows = []
        for row in range(down * PITCH + 1):
            cells = [(row, column) for column in range(across * PITCH + 1)]
            rows.append("".join(legend[named[cell]] if cell in named else _terrain(cell) for cell in cells))
        return tuple(rows), {character: name for name, character in legend.items()}


def _terrain(cell: Cell) -> str:
    return WALL if cell[0] % PITCH == 0 or cell[1] % PITCH == 0 else FLOOR


def build_house(rng: random.Random, names: Collection[str]) -> House:
    """Return rooms with doors in different colours and with objects of different names, at most one of each name."""
    down, across = rng.choice(LAYOUTS)
    rooms = [(row, column) for row in range(down) for column in range(across)]
    walls = [(room, (room[0] + 1, room[1])) for room in rooms if room[0] + 1 < down]
    walls += [(room, (room[0], room[1] + 1)) for room in rooms if room[1] + 1 < across]
    rng.shuffle(walls)
    colours = rng.sample(COLOURS, min(len(walls), len(COLOURS)))
    doors = tuple(
        Door(f"{colour} door", _door_cell(rng, *pair), pair) for colour, pair in zip(colours, walls, strict=False)
    )
    chosen = rng.sample(sorted(names), 2 * len(rooms))
    objects: dict[Cell, str] = {}
    empty = House((down, across), doors, {})
    kept_free = {(door.cell[0] + row, door.cell[1] + column) for door in doors for row, column in _AROUND}
    for number, name in enumerate(chosen):
        free = [cell for cell in empty.cells_of(rooms[number % len(rooms)]) if cell not in kept_free]
        others = [cell for cell in free if all(abs(cell[0] - at[0]) + abs(cell[1] - at[1]) > 1 for at in objects)]
        if others:
            objects[rng.choice(others)] = name
    return House((down, across), doors, objects)


_AROUND = ((-1, 0), (1, 0), (0, -1), (0, 1))


def _door_cell(rng: random.Random, room: Room, other: Room) -> Cell:
    """Return where the door between a room and the one below or right of it is."""
    along = rng.randint(1, SIDE)
    if other[0] > room[0]:
        return other[0] * PITCH, room[1] * PITCH + along
    return room[0] * PITCH + along, other[1] * PITCH
