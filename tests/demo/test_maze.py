"""The maze demo: instructions agree with the walks, held-out combinations are never in training, frames."""

import csv
import json
import re
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from saccade.data.formats.instructions import parse_episode
from saccade.demo import maze
from saccade.demo._instructions import HELD_OUT, HELD_OUT_NAMES, HELD_OUT_RELATIONS, HELD_OUT_VERBS
from saccade.worlds import arm
from saccade.worlds.grid import HEADINGS, MOVES, walk


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return maze.write_instructions(tmp_path_factory.mktemp("maze"), train_rows=300, valid_rows=80)


def episodes(path):
    return [parse_episode(line) for line in path.read_text().splitlines()]


def place(world, name):
    """Row and column of a landmark."""
    (character,) = [character for character, known in world.legend.items() if known == name]
    ((place),) = [(r, row.index(character)) for r, row in enumerate(world.rows) if character in row]
    return place


def test_every_line_is_one_that_a_user_could_have_written(files):
    assert len(episodes(files.train)) == 300 and len(episodes(files.valid)) == 80
    lengths = [len(episode.actions) for episode in episodes(files.train)]
    assert 5 < np.mean(lengths) < 15 and min(lengths) < 4 and max(lengths) > 15


def test_the_walker_stops_where_the_instruction_says(files):
    """Read from the text and the map alone."""
    checked = Counter()
    for episode in [*episodes(files.train), *episodes(files.valid)]:
        end = walk(episode.world.open(), episode.world.start, episode.actions)[-1]
        last = re.search(r"stop (in front|north|east|south|west) of the (\w+ \w+)$", episode.instruction)
        if last is None:
            continue
        row, column = place(episode.world, last[2])
        if last[1] == "in front":
            assert tuple(np.add(end[:2], MOVES[end.heading])) == (row, column), "it faces the object"
        else:
            assert tuple(np.add((row, column), MOVES[HEADINGS.index(last[1])])) == episode.goal
        checked[last[1]] += 1
    assert len(checked) == 5 and min(checked.values()) > 10


def test_the_doors_of_an_instruction_are_walked_through_in_order_and_no_others(files):
    for episode in episodes(files.train):
        wanted = re.findall(r"through the (\w+ door)", episode.instruction)
        doors = {place(episode.world, name): name for name in episode.world.legend.values() if name.endswith("door")}
        cells = [pose[:2] for pose in walk(episode.world.open(), episode.world.start, episode.actions)]
        entered = [
            doors[cell] for before, cell in zip([None, *cells], cells, strict=False) if cell in doors and cell != before
        ]
        assert entered == wanted, episode.instruction


def test_held_out_combinations_are_never_in_training_but_all_their_words_are(files):
    train, valid = episodes(files.train), episodes(files.valid)
    for episode in train:
        assert not episode.held_out
        assert not {*HELD_OUT_NAMES} & {*episode.world.legend.values()}, "not even on a map"
        text = re.sub(r"(the) \w+ (?!door)(\w+)", r"\1 \2", episode.instruction)  # without the colours of objects
        assert not [name for name in (*HELD_OUT_RELATIONS, *HELD_OUT_VERBS) if name in text]
    assert all(episode.held_out and set(episode.held_out) <= set(HELD_OUT) for episode in valid)
    words = {word for episode in train for word in re.findall(r"\w+", episode.instruction)}
    assert {word for episode in valid for word in re.findall(r"\w+", episode.instruction)} <= words
    assert len({name for episode in valid for name in episode.held_out}) == len(HELD_OUT)


def test_the_plan_names_what_is_held_out_and_examples_have_maps(files):
    assert files.plan.startswith(
        "300 instructions for training and 80 for validation, each with one of 13 combinations"
    )
    assert all(name in files.plan for name in HELD_OUT)
    assert len(files.examples) == 3
    for example in files.examples:
        assert json.loads(example["map"].read_text()).keys() == {"map", "legend", "start", "goal"}


def test_the_same_seed_gives_the_same_bytes(files, tmp_path):
    maze.write_instructions(tmp_path / "again", train_rows=300, valid_rows=80)
    maze.write_instructions(tmp_path / "other", seed=2, train_rows=300, valid_rows=80)
    again, other = ((tmp_path / name / "train.jsonl").read_bytes() for name in ("again", "other"))
    assert again == files.train.read_bytes() != other


def test_frames_show_what_the_expert_saw(tmp_path):
    files = maze.write_frames(tmp_path, train_rows=4, valid_rows=2)
    with files.train.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["action"] for row in rows} <= set(arm.ACTIONS)
    for episode in {row["episode"] for row in rows}:
        steps = [row for row in rows if row["episode"] == episode]
        assert [int(row["step"]) for row in steps] == list(range(1, len(steps) + 1))
        assert [row["action"] == "grip" for row in steps].index(True) == len(steps) - 1
        assert len({row["split"] for row in steps}) == 1
    for row in rows[:10]:
        picture = np.asarray(Image.open(tmp_path / row["image"]))
        assert picture.shape == (48, 48, 3)
        assert (np.abs(picture.astype(int) - arm.COLOURS["red"]).sum(-1) < 30).sum() > 5
    assert files.plan.startswith(f"{len(rows)} frames of 4 episodes for training and 2 for validation")
    assert [arm.parse_scene(json.loads(example["scene"].read_text())) for example in files.examples]
