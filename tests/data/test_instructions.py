"""Instructions for a walker: good files are read, and every broken line is named with its value and the rule."""

import gzip
import json

import numpy as np
import pytest
from click.testing import CliRunner

from saccade.cli import main
from saccade.data.formats.instructions import InstructionSettings, read_episode_files, read_episodes
from saccade.data.tables.problems import BadRows
from saccade.errors import DataError
from saccade.tasks import guess_task

GOOD = {
    "map": ["#####", "#.L.#", "#...#", "#####"],
    "legend": {"L": "red lamp"},
    "start": [2, 1, "north"],
    "instruction": "go forward, then stop",
    "actions": ["forward", "stop"],
    "goal": [1, 1],
}
BROKEN = {
    "not JSON": ('{"map": [', "invalid JSON (Expecting value) at column 10, expected a JSON object"),
    "a list": ("[1, 2]", "[1, 2], expected a JSON object"),
    "a number": ("17", "17, expected a JSON object"),
    "no goal": ({"goal": ...}, "no 'goal', expected a complete episode"),
    "no instruction": ({"instruction": ...}, "no 'instruction', expected a complete episode"),
    "a key": ({"gaol": 1}, "a key 'gaol', expected only map, legend, start, instruction, actions, goal, held_out"),
    "an empty instruction": ({"instruction": " "}, "'instruction' is ' ', expected a text"),
    "an instruction that is a number": ({"instruction": 5}, "'instruction' is 5, expected a text"),
    "rows of other lengths": ({"map": ["##", "#"]}, "row 1 of 'map' has 1 columns, expected 2, as in row 0"),
    "an unknown character": ({"legend": {}}, "'L' in row 1, column 2 of 'map', expected '#' (wall), '.' (floor) or a"),
    "a start in a wall": ({"start": [0, 0, "north"]}, "'start' is in a wall (row 0, column 0), expected a floor or a"),
    "a wrong heading": ({"start": [2, 1, "N"]}, "the heading of 'start' is 'N', expected north or east or south or"),
    "no actions": ({"actions": []}, "'actions' has 0 actions, expected a list of 1 to 1,000"),
    "actions in a text": ({"actions": "forward stop"}, "'actions' is 'forward stop', expected a list of 1 to 1,000"),
    "an unknown action": (
        {"actions": ["jump", "stop"]},
        "action 1 is 'jump', expected forward or left or right or stop",
    ),
    "no stop": ({"actions": ["forward"]}, "the last action is 'forward', expected 'stop'"),
    "a stop too early": ({"actions": ["stop", "stop"]}, "action 1 of 2 is 'stop', expected it at the end only"),
    "a walk into a wall": (
        {"actions": ["left", "forward", "stop"]},
        "action 2 walks from row 2, column 1 into what cannot be entered, expected a floor or a door ahead",
    ),
    "another goal": ({"goal": [2, 3]}, "the actions end at [1, 1], expected the goal [2, 3]"),
    "a goal outside": ({"goal": [9, 9]}, "'goal' is row 9, column 9, expected a cell of the map, from row 0, column 0"),
    "held_out": ({"held_out": "red lamp"}, "'held_out' is 'red lamp', expected a list of names"),
}


def line(change):
    if isinstance(change, str):
        return change
    return json.dumps({key: value for key, value in {**GOOD, **change}.items() if value is not ...})


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_line_is_named_with_file_line_value_and_rule(name, tmp_path):
    change, message = BROKEN[name]
    path = tmp_path / "walks.jsonl"
    path.write_text(f"{line({})}\n\n{line(change)}\n{line({})}\n")
    with pytest.raises(BadRows) as error:
        read_episode_files(path)
    assert str(error.value).startswith(f"{path}:3: {message}")


def test_all_broken_lines_are_named_together_by_the_command(tmp_path):
    path = tmp_path / "walks.jsonl"
    path.write_text("".join(line(change) + "\n" for change, _ in BROKEN.values()))
    result = CliRunner().invoke(main, ["train", str(path), "--task", "instruction_following", "--runs", str(tmp_path)])
    assert result.exit_code == 3
    for number, (_, message) in enumerate(BROKEN.values(), 1):
        if number <= 20:
            assert f"{path}:{number}: {message}" in result.stderr
    assert "... and 1 more" in result.stderr


def test_a_good_file_is_read_in_gzip_too(tmp_path):
    path = tmp_path / "walks.jsonl.gz"
    path.write_bytes(gzip.compress((line({}) + "\n" + line({"held_out": ["red lamp"]})).encode()))
    episodes = read_episode_files(path)
    assert [episode.held_out for episode in episodes.items] == [(), ("red lamp",)]
    assert episodes.items[0].actions == (0, 3) and episodes.items[0].goal == (1, 1)
    assert episodes.landmarks() == ["lamp", "red"] and episodes.origins.describe(1) == "walks.jsonl.gz:2"
    assert guess_task(path) == "instruction_following"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("hello there\nwalk\n", ":1: invalid JSON (Expecting value) at column 1, expected a JSON object"),
        ("\n\n", ": no episodes, expected at least one"),
        ("", ":1: an empty file, expected text, csv, tsv or jsonl"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path, content, message):
    path = tmp_path / "walks.jsonl"
    path.write_text(content)
    with pytest.raises(DataError) as error:
        read_episode_files(path)
    assert str(error.value).startswith(f"{path}{message}")


def test_a_table_is_refused_with_what_to_write(tmp_path):
    path = tmp_path / "walks.csv"
    path.write_text("map,actions\n#,stop\n")
    with pytest.raises(BadRows) as error:
        read_episode_files(path)
    assert str(error.value).startswith(f'{path}:1: csv, expected JSON lines; write one episode a line: {{"map": [...]')


def test_a_map_is_never_in_both_parts(tmp_path):
    path = tmp_path / "walks.jsonl"
    other = {"map": ["#####", "#.L.#", "#..##", "#####"]}
    rows = [line({**(other if number % 3 else {}), "instruction": f"go {number}"}) for number in range(30)]
    path.write_text("\n".join(rows))
    train, valid = read_episodes(path, InstructionSettings(valid_fraction=0.5))
    maps = [{item.world.rows for item in part.items} for part in (train, valid)]
    assert not maps[0] & maps[1] and len(train) + len(valid) == 30 and len(valid) in (10, 20)


def test_validation_data_of_their_own_may_share_maps_which_are_counted(tmp_path):
    other = {"map": ["#####", "#...#", "#.L.#", "#####"], "start": [1, 1, "south"], "goal": [2, 1]}
    for name, changes in (("train", [{}, {}]), ("valid", [{}, other, other])):
        (tmp_path / f"{name}.jsonl").write_text("".join(line(change) + "\n" for change in changes))
    train, valid = read_episodes(tmp_path / "train.jsonl", InstructionSettings(valid=str(tmp_path / "valid.jsonl")))
    assert train.map_notes(valid) == ["1 of 3 validation episodes are on maps of the training data"]
    assert train.map_notes(valid.take(np.array([1, 2]))) == []
