"""The grid world: walls stop a walker, a view turns with it, and a map that breaks a rule is refused."""

import numpy as np
import pytest

from saccade.worlds.drawing import CELL, WALKER, draw_map, draw_view
from saccade.worlds.grid import (
    ACTIONS,
    HEADINGS,
    TERRAIN,
    Pose,
    move,
    observe,
    parse_grid,
    step,
    terrain,
    view_cells,
    walk,
)
from saccade.worlds.rules import RuleError
from saccade.worlds.search import shortest_path

MAP = {
    "map": ["#######", "#..L..#", "#.....D", "#..C..#", "#######"],
    "legend": {"L": "red lamp", "D": "blue door", "C": "Red  Chair"},
    "start": [2, 1, "east"],
}


def test_a_world_survives_json():
    world = parse_grid(MAP)
    assert world.start == Pose(2, 1, 1)
    assert world.legend == {"L": "red lamp", "D": "blue door", "C": "red chair"}
    assert parse_grid(world.to_json()) == world


def test_walls_and_objects_stop_a_walker_and_doors_do_not():
    world = parse_grid(MAP)
    end = walk(world.open(), world.start, [0] * 9)[-1]
    assert end == (2, 6, 1), "through the door to the edge of the map, and no farther"
    assert move(world.open(), Pose(2, 3, 0), 0) == (2, 3, 0), "a lamp is ahead"
    assert not world.open()[0, 0] and world.open()[2, 6] and not world.open()[1, 3]


@pytest.mark.parametrize("seed", range(5))
def test_a_batch_of_walkers_moves_as_each_alone(seed):
    rng = np.random.default_rng(seed)
    open_cells = rng.random((40, 6, 9)) < 0.7
    poses = np.column_stack((rng.integers(6, size=40), rng.integers(9, size=40), rng.integers(4, size=40)))
    for _ in range(20):
        actions = rng.integers(len(ACTIONS), size=40)
        after = step(open_cells, poses, actions)
        alone = [
            move(cells, Pose(*pose), int(act))
            for cells, pose, act in zip(open_cells, poses.tolist(), actions, strict=True)
        ]
        assert after.tolist() == [list(pose) for pose in alone]
        poses = after


def test_what_is_ahead_is_above_in_every_view():
    world = parse_grid(MAP)
    vocabulary = {word: number for number, word in enumerate((*TERRAIN, "red", "lamp", "blue", "chair"))}
    cells = terrain(world, vocabulary)
    for heading, name in ((0, {"red", "lamp"}), (2, {"red", "chair"}), (1, {"floor"}), (3, {"floor"})):
        seen = observe(cells, np.array([[2, 3, heading]]), 3)[0].reshape(3, 3, -1)
        assert {word for word, number in vocabulary.items() if seen[0, 1, number]} == name, HEADINGS[heading]
    far = observe(cells, np.array([[2, 6, 1]]), 5)[0].reshape(5, 5, -1)
    assert far[0, :, vocabulary["outside"]].all(), "two cells beyond the edge"
    assert far[2, 2, vocabulary["door"]] == far[2, 2, vocabulary["blue"]] == 1


def test_a_view_has_every_cell_once_and_its_own_in_the_middle():
    for heading in range(4):
        cells = view_cells(np.array([[4, 5, heading]]), 5)[0]
        assert sorted(map(tuple, cells.tolist())) == [(row, column) for row in range(2, 7) for column in range(3, 8)]
        assert cells[12].tolist() == [4, 5]


def test_shortest_paths_are_those_of_an_independent_search():
    networkx = pytest.importorskip("networkx")
    rng = np.random.default_rng(3)
    for _ in range(20):
        open_cells = rng.random((6, 6)) < 0.75
        graph = networkx.DiGraph()
        poses = [Pose(row, column, heading) for row in range(6) for column in range(6) for heading in range(4)]
        for pose in poses:
            graph.add_edges_from((pose, move(open_cells, pose, action)) for action in range(3))
        start, goal = poses[int(rng.integers(len(poses)))], poses[int(rng.integers(len(poses)))]
        path = shortest_path(open_cells, start, lambda pose, goal=goal: pose == goal)
        if path is None:
            assert not networkx.has_path(graph, start, goal)
        else:
            assert walk(open_cells, start, path)[-1] == goal
            assert len(path) == networkx.shortest_path_length(graph, start, goal)


def test_of_equal_paths_the_one_that_goes_forward_first_is_taken():
    open_cells = np.ones((4, 4), bool)
    path = shortest_path(open_cells, Pose(3, 0, 0), lambda pose: pose[:2] == (1, 2))
    assert [ACTIONS[action] for action in path] == ["forward", "forward", "right", "forward", "forward"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"map": None}, "'map' is None, expected a list of rows of characters"),
        ({"map": []}, "'map' is [], expected a list of rows of characters"),
        ({"map": ["###", "##"]}, "row 1 of 'map' has 2 columns, expected 3, as in row 0"),
        ({"map": ["." * 65]}, "'map' has 1 rows of up to 65 columns, expected at most 64 of each"),
        ({"map": ["..X."]}, "'X' in row 0, column 2 of 'map', expected '#' (wall), '.' (floor) or a character of"),
        ({"legend": ["L"]}, "'legend' is ['L'], expected names of characters, such as {\"L\": \"red lamp\"}"),
        ({"legend": {"##": "x"}}, "'legend' has a name for '##', expected a single character other than '#' and '.'"),
        ({"legend": {".": "x"}}, "'legend' has a name for '.', expected a single character other than '#' and '.'"),
        ({"legend": {"L": " "}}, "'legend' calls 'L' ' ', expected a name, such as 'red lamp'"),
        ({"legend": {"L": "the Wall"}}, "'legend' calls 'L' 'the Wall', expected a name without the word 'wall'"),
        ({"start": [1, 1]}, "'start' is [1, 1], expected [row, column, heading]"),
        ({"start": [1.0, 1, "east"]}, "'start' is [1.0, 1, 'east'], expected [row, column, heading] with whole"),
        ({"start": [True, 1, "east"]}, "'start' is [True, 1, 'east'], expected [row, column, heading] with whole"),
        ({"start": [5, 1, "east"]}, "'start' is row 5, column 1, expected a cell of the map, from row 0, column 0 to"),
        ({"start": [2, 1, "up"]}, "the heading of 'start' is 'up', expected north or east or south or west"),
        ({"start": [0, 1, "east"]}, "'start' is in a wall (row 0, column 1), expected a floor or a door"),
        ({"start": [1, 3, "east"]}, "'start' is in a red lamp (row 1, column 3), expected a floor or a door"),
    ],
)  # fmt: skip
def test_a_map_that_breaks_a_rule_is_refused_with_its_values(change, message):
    with pytest.raises(RuleError) as error:
        parse_grid({**MAP, **change})
    assert str(error.value).startswith(message)


def test_a_map_without_a_start_is_refused():
    with pytest.raises(RuleError) as error:
        parse_grid({"map": ["."]})
    assert str(error.value) == "no 'start' beside 'map', expected 'map', 'legend' and 'start'"


def test_a_drawing_shows_the_walker_where_it_is_and_turns_with_it():
    world = parse_grid(MAP)
    image = draw_map(world, world.start)
    assert image.shape == (5 * CELL, 7 * CELL, 3)
    rows, columns = np.nonzero((image == WALKER).all(-1))
    assert (rows // CELL == 2).all() and (columns // CELL == 1).all()
    assert columns.mean() % CELL < CELL / 2, "the broad end of the arrow is behind: it points east"
    for heading in range(4):
        seen = draw_view(world, Pose(2, 3, heading), 3)
        rows, columns = np.nonzero((seen == WALKER).all(-1))
        assert (rows // CELL == 1).all() and (columns // CELL == 1).all() and rows.mean() % CELL > CELL / 2
    other = draw_map(parse_grid({**MAP, "legend": {**MAP["legend"], "L": "blue lamp"}}), world.start)
    changed = np.argwhere((image != other).any(-1)) // CELL
    assert {tuple(cell) for cell in changed.tolist()} == {(1, 3)}
