"""Trajectories: every layout gives the same episodes, and every broken file is named with its line, value and rule."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from saccade.cli import main
from saccade.data.episodes import action_space, encode_actions
from saccade.data.formats.trajectories import TrajectorySettings, is_trajectories, read_trajectories
from saccade.errors import DataError
from saccade.tasks import guess_task

OBSERVATIONS = [[0.5, 1.0], [0.25, -1.0], [0.0, 2.0], [1.5, 0.5], [2.0, 0.25]]
ACTIONS, REWARDS, EPISODES = [1, 0, 0, 1, 1], [1.0, 2.0, 1.0, 0.5, 0.25], [0, 0, 0, 1, 1]
ENDS = [False, False, True, False, True]


def write_csv(folder: Path) -> Path:
    steps = zip(EPISODES, OBSERVATIONS, ACTIONS, REWARDS, strict=True)
    rows = [f"{episode},{x},{y},{action},{reward}" for episode, (x, y), action, reward in steps]
    (folder / "steps.csv").write_text("\n".join(["episode,x,y,action,reward", *rows]) + "\n")
    return folder / "steps.csv"


def write_aligned(folder: Path) -> Path:
    for name, values in (("actions", ACTIONS), ("rewards", REWARDS), ("dones", [int(end) for end in ENDS])):
        (folder / f"{name}.csv").write_text("".join(f"{value}\n" for value in values))
    (folder / "observations.csv").write_text("".join(f"{x} {y}\n" for x, y in OBSERVATIONS))
    return folder


def write_steps(folder: Path) -> Path:
    keys = ("observation", "action", "reward", "done")
    rows = zip(OBSERVATIONS, ACTIONS, REWARDS, ENDS, strict=True)
    (folder / "steps.jsonl").write_text("".join(json.dumps(dict(zip(keys, row, strict=True))) + "\n" for row in rows))
    return folder / "steps.jsonl"


def write_lines(folder: Path) -> Path:
    lines = [
        {"observations": OBSERVATIONS[first:last], "actions": ACTIONS[first:last], "rewards": REWARDS[first:last]}
        for first, last in ((0, 3), (3, 5))
    ]
    (folder / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / "episodes.jsonl"


def write_npz(folder: Path) -> Path:
    arrays = {"observations": OBSERVATIONS, "actions": ACTIONS, "rewards": REWARDS, "terminals": ENDS}
    np.savez(folder / "steps.npz", **{name: np.array(value) for name, value in arrays.items()})
    return folder / "steps.npz"


def write_minari(folder: Path) -> Path:
    h5py = pytest.importorskip("h5py", reason="Minari datasets are HDF5")
    (folder / "data").mkdir()
    with h5py.File(folder / "data" / "main_data.hdf5", "w") as file:
        for number, (first, last) in enumerate(((0, 3), (3, 5))):
            group = file.create_group(f"episode_{number}")
            group["observations"] = np.array([*OBSERVATIONS[first:last], [9.0, 9.0]])  # the one after the last action
            group["actions"], group["rewards"] = np.array(ACTIONS[first:last]), np.array(REWARDS[first:last])
    return folder


@pytest.mark.parametrize("write", [write_csv, write_aligned, write_steps, write_lines, write_npz, write_minari])
def test_every_layout_gives_the_same_episodes(write: Any, tmp_path: Path) -> None:
    path = write(tmp_path)
    assert is_trajectories(path) and guess_task(path) == "behaviour_cloning"
    episodes = read_trajectories(path, TrajectorySettings())
    np.testing.assert_array_equal(episodes.observations, np.array(OBSERVATIONS, np.float32))
    np.testing.assert_array_equal(encode_actions(episodes, action_space(episodes, "auto")), ACTIONS)
    assert episodes.starts.tolist() == [0, 3]
    returns = episodes.returns()
    assert returns is not None and returns.tolist() == [4.0, 0.75]


TERMINATED, TRUNCATED = [0, 0, 1, 0, 0], [0, 0, 0, 0, 1]


def write_flags_csv(folder: Path) -> Path:
    steps = zip(OBSERVATIONS, ACTIONS, TERMINATED, TRUNCATED, strict=True)
    rows = [f"{x},{y},{action},{end},{limit}" for (x, y), action, end, limit in steps]
    (folder / "steps.csv").write_text("\n".join(["x,y,action,terminated,truncations", *rows]) + "\n")
    return folder / "steps.csv"


def write_flags_aligned(folder: Path) -> Path:
    write_aligned(folder)
    (folder / "dones.csv").unlink()
    for name, values in (("terminals", TERMINATED), ("timeouts", TRUNCATED)):
        (folder / f"{name}.csv").write_text("".join(f"{value}\n" for value in values))
    return folder


def write_flags_steps(folder: Path) -> Path:
    rows = zip(OBSERVATIONS, ACTIONS, TERMINATED, TRUNCATED, strict=True)
    keys = ("observation", "action", "terminated", "truncated")
    (folder / "steps.jsonl").write_text("".join(json.dumps(dict(zip(keys, row, strict=True))) + "\n" for row in rows))
    return folder / "steps.jsonl"


def write_flags_lines(folder: Path) -> Path:
    path = write_lines(folder)
    first, second = map(json.loads, path.read_text().splitlines())
    lines = {**first, "terminated": True}, {**second, "terminations": [0, 0]}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def write_flags_npz(folder: Path) -> Path:
    arrays = {"observations": OBSERVATIONS, "actions": ACTIONS, "terminals": TERMINATED, "timeouts": TRUNCATED}
    np.savez(folder / "steps.npz", **{name: np.array(value) for name, value in arrays.items()})
    return folder / "steps.npz"


def write_flags_minari(folder: Path) -> Path:
    h5py = pytest.importorskip("h5py", reason="Minari datasets are HDF5")
    write_minari(folder)
    with h5py.File(folder / "data" / "main_data.hdf5", "r+") as file:
        for number, (first, last) in enumerate(((0, 3), (3, 5))):
            file[f"episode_{number}"]["terminations"] = np.array(TERMINATED[first:last], bool)
            file[f"episode_{number}"]["truncations"] = np.array(TRUNCATED[first:last], bool)
    return folder


FLAGGED = [write_flags_csv, write_flags_aligned, write_flags_steps, write_flags_lines, write_flags_npz]


@pytest.mark.parametrize("write", [*FLAGGED, write_flags_minari])
def test_terminations_are_told_from_time_limits_in_every_layout(write: Any, tmp_path: Path) -> None:
    episodes = read_trajectories(write(tmp_path), TrajectorySettings())
    assert episodes.starts.tolist() == [0, 3] and episodes.terminated is not None
    assert episodes.terminated.tolist() == [bool(flag) for flag in TERMINATED]
    assert episodes.take(np.array([2, 3])).terminated.tolist() == [True, False]  # type: ignore[union-attr]


@pytest.mark.parametrize("write", [write_csv, write_aligned, write_steps, write_lines, write_minari])
def test_an_end_alone_does_not_say_whether_it_is_a_termination(write: Any, tmp_path: Path) -> None:
    assert read_trajectories(write(tmp_path), TrajectorySettings()).terminated is None


def test_labels_and_vectors_are_actions_too(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("episode,x,action\n0,1,left\n0,2,right\n")
    episodes = read_trajectories(tmp_path / "a.csv", TrajectorySettings())
    assert action_space(episodes, "auto").labels == ("left", "right")
    (tmp_path / "b.csv").write_text("episode,x,action_0,action_1\n0,1,0.5,1\n0,2,0.25,2\n")
    space = action_space(read_trajectories(tmp_path / "b.csv", TrajectorySettings()), "auto")
    assert (space.labels, space.dim) == ((), 2)


def test_a_window_never_crosses_the_start_of_an_episode(tmp_path: Path) -> None:
    episodes = read_trajectories(write_csv(tmp_path), TrajectorySettings())
    assert episodes.windows(2).tolist() == [0, 0, 1, 3, 3]
    assert episodes.windows(1).tolist() == [0, 1, 2, 3, 4]


HEAD = "episode,x,y,action\n"
BROKEN: dict[str, tuple[str, str, str]] = {
    "nan": ("s.csv", f"{HEAD}0,1,nan,1\n0,1,2,0\n", r"s\.csv:2: column 'y' is 'nan', expected a finite number"),
    "infinite": ("s.csv", f"{HEAD}0,1,2,1\n0,inf,2,0\n", r"s\.csv:3: column 'x' is 'inf', expected a finite number"),
    "text": ("s.csv", f"{HEAD}0,1,2,1\n0,up,2,0\n", r"s\.csv:3: column 'x' is 'up', expected a finite number"),
    "short row": ("s.csv", f"{HEAD}0,1,2,1\n0,1,0\n", r"s\.csv:3: 3 columns, expected 4"),
    "no action": ("s.csv", f"{HEAD}0,1,2,\n0,1,2,0\n", r"s\.csv:2: an empty action, expected a number or a label"),
    "no episode": ("s.csv", f"{HEAD},1,2,1\n0,1,2,0\n", r"s\.csv:2: an empty episode"),
    "split episode": (
        "s.csv",
        f"{HEAD}0,1,2,1\n1,1,2,0\n0,1,2,1\n",
        r"s\.csv:4: episode '0' continues after another one, expected all its steps together",
    ),
    "no columns": ("s.csv", "episode,action\n0,1\n0,0\n", r"s\.csv:1: no column of the observation"),
    "one step": ("s.csv", f"{HEAD}0,1,2,1\n", r"s\.csv: 1 step, expected at least two steps"),
    "one action": ("s.csv", f"{HEAD}0,1,2,1\n0,2,2,1\n", r"every action is '1', expected at least two different"),
    "bad end": ("s.csv", "done,x,action\n0,1,1\nmaybe,2,0\n", r"s\.csv:3: column 'done' is 'maybe', expected true or"),
    "bad reward": ("s.csv", "episode,x,action,reward\n0,1,1,?\n0,2,0,1\n", r"s\.csv:2: reward is '\?', expected a fin"),
    "json": ("s.jsonl", '{"observation": [1], "action": 0}\n{"observation"\n', r"s\.jsonl:2:\d+: invalid JSON"),
    "no key": ("s.jsonl", '{"observation": [1], "action": 0}\n{"observation": [1]}\n', r"s\.jsonl:2: no key 'action'"),
    "longer": (
        "s.jsonl",
        '{"observation": [1], "action": 0}\n{"observation": [1, 2], "action": 1}\n',
        r"s\.jsonl:2: an observation of 2 numbers, expected 1 as in the first step",
    ),
    "null": ("s.jsonl", '{"observation": [null], "action": 0}\n', r"s\.jsonl:1: number 1 of the observation is 'None'"),
    "uneven": (
        "s.jsonl",
        '{"observations": [[1], [2], [3]], "actions": [0]}\n',
        r"s\.jsonl:1: 3 observations and 1 actions, expected as many",
    ),
    "rewards": (
        "s.jsonl",
        '{"observations": [[1], [2]], "actions": [0, 1], "rewards": [1]}\n',
        r"s\.jsonl:1: 1 rewards and 2 actions, expected a reward for each action",
    ),
    "some terminations": (
        "s.jsonl",
        '{"observations": [[1], [2]], "actions": [0, 1], "terminations": [1]}\n',
        r"s\.jsonl:1: 1 terminations and 2 actions, expected a flag for each action, or one",
    ),
    "some rewards": (
        "s.jsonl",
        '{"observation": [1], "action": 0, "reward": 1}\n{"observation": [2], "action": 1}\n',
        r"s\.jsonl: 1 rewards for 2 steps, expected one for each step, or none",
    ),
}


def refused(path: Path, message: str) -> None:
    result = CliRunner().invoke(main, ["train", str(path), "--task", "behaviour_cloning", "--quiet"])
    assert result.exit_code == 3, result.output
    with pytest.raises(DataError, match=message):
        episodes = read_trajectories(path, TrajectorySettings())
        action_space(episodes, "auto")


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_table_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file, content, message = BROKEN[name]
    (tmp_path / file).write_text(content)
    refused(tmp_path / file, message)


ARRAYS: dict[str, tuple[dict[str, Any], str]] = {
    "no actions": ({"observations": [[1.0], [2.0]]}, r"no array 'actions' \(arrays: observations\)"),
    "lengths": ({"observations": [[1.0], [2.0]], "actions": [1]}, "1 actions and 2 observations, expected a row for"),
    "shape": ({"observations": [1.0, 2.0], "actions": [0, 1]}, r"observations of shape \(2,\), expected \(steps, num"),
    "nan": ({"observations": [[1.0], [float("nan")]], "actions": [0, 1]}, r"observations\[1, 0\] is nan, expected a"),
    "text": ({"observations": [["a"], ["b"]], "actions": [0, 1]}, "observations of type <U1, expected numbers"),
    "too large": (
        {"observations": [[1.0], [1e39]], "actions": [0, 1]},
        r"observations\[1, 0\] is 1e\+39, expected a fin",
    ),
    "several rewards": (
        {"observations": [[1.0], [2.0]], "actions": [0, 1], "rewards": [[1, 2], [3, 4]]},
        r"rewards of shape \(2, 2\), expected \(2,\)",
    ),
    "several labels": (
        {"observations": [[1.0], [2.0]], "actions": [["a", "b"], ["c", "d"]]},
        r"actions of shape \(2, 2\), expected \(2,\)",
    ),
    "bad bytes": (
        {"observations": [[1.0], [2.0]], "actions": [b"\xff", b"a"]},
        r"actions\[0\] is b'\\xff', expected a label in UTF-8",
    ),
    "empty label": (
        {"observations": [[1.0], [2.0]], "actions": ["a", " "]},
        r"actions\[1\] is ' ', expected a number or",
    ),
    "tensors": (
        {"observations": [[1.0], [2.0]], "actions": [[[0.0]], [[1.0]]]},
        r"actions of shape \(2, 1, 1\), expected \(steps,\) or \(steps, numbers\)",
    ),
    "bad flags": (
        {"observations": [[1.0], [2.0]], "actions": [0, 1], "terminals": ["no", "yes"]},
        r"terminals\[0\] is no, expected true or false, 1 or 0",
    ),
    "one step": ({"observations": [[1.0]], "actions": [0]}, r"s\.npz: 1 step, expected at least two steps"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_broken_arrays_are_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arrays, message = ARRAYS[name]
    np.savez(tmp_path / "s.npz", **{key: np.array(value) for key, value in arrays.items()})
    refused(tmp_path / "s.npz", message)


def test_labels_in_arrays_may_be_bytes_or_columns(tmp_path: Path) -> None:
    for labels in ([b"left", b"right"], [["left"], ["right"]]):
        np.savez(tmp_path / "s.npz", observations=np.ones((2, 1)), actions=np.array(labels))
        episodes = read_trajectories(tmp_path / "s.npz", TrajectorySettings())
        assert action_space(episodes, "auto").labels == ("left", "right")


MINARI: dict[str, tuple[dict[str, Any], str]] = {
    "an array instead of a group": ({"episode_2": [1.0]}, "episode_2 is an array, expected a group of arrays for each"),
    "no actions": ({"episode_1/actions": None}, "episode_1 has no actions, expected observations and actions in every"),
    "rewards in some": ({"episode_1/rewards": None}, "episode_1 has no rewards, but episode_0 has, expected the same"),
    "another width": (
        {"episode_1/observations": np.ones((3, 5))},
        r"observations of episode_1 are rows of shape \(5,\) and type float64, expected \(2,\) and float64 as in ep",
    ),
    "one value": (
        {"episode_0/actions": 1},
        "actions of episode_0 are one value, expected an array with a row for each",
    ),
    "fewer rewards": (
        {"episode_0/rewards": [1.0]},
        "1 rewards and 3 actions in episode_0, expected a row for each step",
    ),
    "an empty episode": (
        {"episode_0/actions": np.ones(0)},
        "4 observations and 0 actions in episode_0, expected at least one step",
    ),
    "several arrays": (
        {"episode_0/actions": None, "episode_0/actions/arm": [1]},
        r"actions of episode_0 are several arrays \(arm\), expected one array of vectors",
    ),
    "no episodes": (
        {"episode_0": None, "episode_1": None},
        r"no group episode_0 \(groups: none\), expected the groups",
    ),
    "a number too large": (
        {"episode_0/observations": np.full((4, 2), 1e39)},
        r"observations\[0, 0\] is 1e\+39, expected a finite number",
    ),
}


@pytest.mark.parametrize("name", MINARI)
def test_a_broken_minari_dataset_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    h5py = pytest.importorskip("h5py", reason="Minari datasets are HDF5")
    monkeypatch.chdir(tmp_path)
    changes, message = MINARI[name]
    with h5py.File(write_minari(tmp_path) / "data" / "main_data.hdf5", "r+") as file:
        for key, value in changes.items():
            if key in file:
                del file[key]
            if value is not None:
                file[key] = value
    refused(tmp_path, message)


def test_a_damaged_minari_dataset_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = write_minari(tmp_path) / "data" / "main_data.hdf5"
    path.write_bytes(path.read_bytes()[:100])
    refused(tmp_path, r"main_data\.hdf5: an HDF5 file that cannot be read")


def test_damaged_arrays_and_missing_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.npz").write_bytes(write_npz(tmp_path).read_bytes()[:200])
    (tmp_path / "steps.npz").write_bytes(b"PK\x03\x04 damaged")
    refused(tmp_path / "steps.npz", "an .npz file that cannot be read")
    write_aligned(tmp_path)
    (tmp_path / "actions.csv").write_text("1\n0\n")
    refused(tmp_path, r"actions\.csv:2: 2 rows, expected 5 as in observations\.csv")
    (tmp_path / "actions.csv").unlink()
    refused(tmp_path, r"no file actions\.csv, expected observations\.csv and actions\.csv")
