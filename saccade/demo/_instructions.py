"""Instructions for a walker in a house, from a grammar, with the actions that follow them.

An instruction has one to three clauses and ends where the walker stops: "go through the blue door, turn left and stop
in front of the red lamp". Every clause is about what is in sight, so that the walker never has to search.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import NDArray

from saccade.demo._rooms import COLOURS, OBJECTS, Cell, House, build_house
from saccade.worlds.grid import ACTIONS, MOVES, STOP, GridWorld, Pose, walk
from saccade.worlds.search import shortest_path

VERBS = ("go", "walk", "move")
NUMBERS = ("one step", "two steps", "three steps")
TURNS = {"turn left": [1], "turn right": [2], "turn around": [2, 2]}
RELATIONS = {"in front of": None, "north of": 0, "east of": 1, "south of": 2, "west of": 3}
NAMES = tuple(f"{colour} {thing}" for colour, thing in product(COLOURS, OBJECTS))

# Combinations that only validation has: each of their words is in training, together they are not.
HELD_OUT_NAMES = ("red lamp", "blue chair", "green sofa", "yellow easel", "black clock", "white plant")
HELD_OUT_RELATIONS = ("north of the chair", "east of the clock", "south of the plant", "west of the lamp")
HELD_OUT_VERBS = ("walk through the green door", "go to the sofa", "move through the black door")
HELD_OUT = (*HELD_OUT_NAMES, *HELD_OUT_RELATIONS, *HELD_OUT_VERBS)


Clause = Callable[[random.Random, "Route"], bool]
"""adds a clause to a route; False: there is none of this kind from here"""


@dataclass
class Route:
    """An instruction as it grows: clauses, actions, the pose after them, and what they combine."""

    house: House
    open: NDArray[np.bool_]
    pose: Pose
    clauses: list[str] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    combinations: set[str] = field(default_factory=set)

    def add(self, clause: str, actions: list[int], pose: Pose, *combinations: str) -> None:
        self.clauses.append(clause)
        self.actions += actions
        self.pose = pose
        self.combinations.update(combinations)

    def here(self) -> list[tuple[Cell, str]]:
        """Return the objects of the room that the walker is in."""
        room = self.house.room_of(self.pose[:2])
        return [(cell, name) for cell, name in self.house.objects.items() if self.house.room_of(cell) == room]


def write_episode(rng: random.Random, *, held_out: bool) -> dict[str, object]:
    """Return an episode as JSON: map, legend, start, instruction, actions and goal.

    `held_out`: with a combination of `HELD_OUT`, which it names; otherwise without any, not even on the map.
    """
    while True:
        names = NAMES if held_out else tuple(name for name in NAMES if name not in HELD_OUT_NAMES)
        episode = _try_episode(rng, build_house(rng, names))
        if episode is None:
            continue
        world, route = episode
        found = sorted(route.combinations & set(HELD_OUT))
        if bool(found) != held_out:
            continue
        *_, goal = walk(route.open, world.start, route.actions)
        text = " and ".join(filter(None, (", ".join(route.clauses[:-1]), route.clauses[-1])))
        record = {**world.to_json(), "instruction": text, "actions": [ACTIONS[action] for action in route.actions]}
        return {**record, "goal": [goal.row, goal.column], **({"held_out": found} if found else {})}


def _try_episode(rng: random.Random, house: House) -> tuple[GridWorld, Route] | None:
    """Return a world and a route through it, or None if a clause does not fit."""
    rows, legend = house.drawn()
    floor = [(row, column) for row, line in enumerate(rows) for column, cell in enumerate(line) if cell == "."]
    start = Pose(*rng.choice(floor), rng.randrange(4))
    world = GridWorld(rows, legend, start)
    route = Route(house, world.open(), start)
    for kind in _plan(rng):
        if not kind(rng, route):
            return None
    route.actions.append(STOP)
    return world, route


def _plan(rng: random.Random) -> Iterator[Clause]:
    """Yield the kinds of clauses of an instruction."""
    for _ in range(rng.choice((0, 1, 1, 2))):
        yield rng.choices((_through_door, _to_object, _turn, _steps), (5, 2, 2, 2))[0]
    yield rng.choices((_stop_at, _stop), (4, 1))[0]


def _through_door(rng: random.Random, route: Route) -> bool:
    room = route.house.room_of(route.pose[:2])
    doors = [door for door in route.house.doors if room in door.rooms]
    if not doors:
        return False
    door = rng.choice(doors)
    blocked = route.open.copy()
    for other in route.house.doors:
        blocked[other.cell] = other is door
    (beyond,) = set(door.rooms) - {room}
    actions = shortest_path(blocked, route.pose, lambda pose: _is_in(route.house, pose, beyond))
    if actions is None:
        return False
    verb = rng.choice(VERBS)
    route.add(f"{verb} through the {door.name}", actions, _end(route, actions), f"{verb} through the {door.name}")
    return True


def _is_in(house: House, pose: Pose, room: tuple[int, int]) -> bool:
    cell = pose[:2]
    return cell in house.cells_of(room)


def _to_object(rng: random.Random, route: Route) -> bool:
    if not route.here():
        return False
    cell, name = rng.choice(route.here())
    verb = rng.choice(VERBS)
    combinations = (name, f"{verb} to the {name.split()[1]}")
    return _approach(route, cell, f"{verb} to the {name}", *combinations)


def _stop_at(rng: random.Random, route: Route) -> bool:
    if not route.here():
        return False
    cell, name = rng.choice(route.here())
    relation = rng.choice(tuple(RELATIONS))
    clause, combinations = f"stop {relation} the {name}", (name, f"{relation} the {name.split()[1]}")
    side = RELATIONS[relation]
    if side is None:
        return _approach(route, cell, clause, *combinations)
    goal = (cell[0] + int(MOVES[side][0]), cell[1] + int(MOVES[side][1]))
    return _reach(route, [goal], clause, *combinations)


def _approach(route: Route, cell: Cell, clause: str, *combinations: str) -> bool:
    """Add the way to the nearest cell beside an object, facing it; refused where two are equally near."""
    facing = {(cell[0] - down, cell[1] - across, heading) for heading, (down, across) in enumerate(MOVES.tolist())}
    inside = _same_room(route)
    actions = shortest_path(inside, route.pose, lambda pose: tuple(pose) in facing)
    if actions is None:
        return False
    end = _end(route, actions)
    others = shortest_path(inside, route.pose, lambda pose: tuple(pose) in facing and pose[:2] != end[:2])
    if others is not None and len(others) == len(actions):
        return False
    route.add(clause, actions, end, *combinations)
    return True


def _reach(route: Route, goals: list[Cell], clause: str, *combinations: str) -> bool:
    """Add the way to one of some cells."""
    actions = shortest_path(_same_room(route), route.pose, lambda pose: pose[:2] in goals)
    if actions is None:
        return False
    route.add(clause, actions, _end(route, actions), *combinations)
    return True


def _turn(rng: random.Random, route: Route) -> bool:
    text = rng.choice(tuple(TURNS))
    route.add(text, TURNS[text], _end(route, TURNS[text]))
    return True


def _steps(rng: random.Random, route: Route) -> bool:
    count = rng.randint(1, len(NUMBERS))
    actions = [0] * count
    cells = {pose[:2] for pose in _poses(route, actions)}
    if len(cells) != count + 1 or not all(_same_room(route)[cell] for cell in cells):
        return False
    verb = rng.choice(VERBS)
    route.add(f"{verb} forward {NUMBERS[count - 1]}", actions, _end(route, actions))
    return True


def _stop(rng: random.Random, route: Route) -> bool:
    route.clauses.append("stop")
    return len(route.clauses) > 1


def _same_room(route: Route) -> NDArray[np.bool_]:
    """Return the free cells of the room that the walker is in."""
    inside = np.zeros_like(route.open)
    rows, columns = zip(*route.house.cells_of(route.house.room_of(route.pose[:2])), strict=True)
    inside[rows, columns] = route.open[rows, columns]
    return inside


def _poses(route: Route, actions: list[int]) -> list[Pose]:
    return walk(route.open, route.pose, actions)


def _end(route: Route, actions: list[int]) -> Pose:
    return _poses(route, actions)[-1]
