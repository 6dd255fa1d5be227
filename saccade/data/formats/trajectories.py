"""Trajectories: finds and reads recorded episodes in csv, jsonl, npz and Minari's HDF5 files.

Layouts: one table with a column of episodes or ends; observations.csv and actions.csv beside each other, with
rewards.csv and dones.csv if they were recorded; JSON lines of steps or of episodes; arrays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from saccade.data.episodes import Episodes
from saccade.data.formats.trajectory_arrays import find_hdf5, names_in_npz, read_hdf5, read_npz
from saccade.data.formats.trajectory_steps import TERMINATED, Steps
from saccade.data.settings import ValidationSplit
from saccade.data.tables.encodings import explain
from saccade.data.tables.problems import BadRows, Problem
from saccade.data.tables.rows import Lines, json_objects, rows
from saccade.data.tables.sniffing import DataFile, sniff
from saccade.errors import DataError

TABLES = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz")
EPISODE = {"episode", "episode_id", "episode_index", "traj", "trajectory", "trajectory_id", "traj_id"}
ACTION = {"action", "actions", "act", "acts"}
REWARD = {"reward", "rewards"}
LIMIT = {"truncated", "truncation", "truncations", "timeout", "timeouts"}
END = {"done", "dones", "episode_end", "episode_ends", "last", *TERMINATED, *LIMIT}
OBSERVATION = {"observation", "observations", "obs", "state", "states"}
IGNORED = {"step", "steps", "time", "timestep", "t", "index", "info", "infos", ""}
PICTURE = {"image", "image_path", "file_name", "filename", "frame", "picture", "path"}
NUMBERED = re.compile(r"(action|act|a|u)[_.\[ -]?\d+\]?")
NUMBERED_OBSERVATION = re.compile(r"(observation|obs|state|s|x|o)[_.\[ -]?\d+\]?")
SPLIT = re.compile(r"[,;\t ]+")


@dataclass(frozen=True)
class TrajectorySettings(ValidationSplit):
    """How recorded episodes are read."""

    actions: Literal["auto", "discrete", "continuous"] = "auto"
    """auto: labels and single whole numbers are discrete actions, other numbers continuous ones"""
    encoding: str = ""
    """encoding of the files, if not UTF-8"""


def is_trajectories(path: Path, encoding: str | None = None) -> bool:
    """Whether a path holds recorded episodes, by names, columns and keys."""
    if path.is_dir():
        return _aligned(path, "observations") is not None or find_hdf5(path) is not None
    suffix = path.suffix.lower()
    if suffix in (".hdf5", ".h5"):
        return True
    if suffix == ".npz":
        return names_in_npz(path)
    name = path.name.lower()
    if not path.is_file() or not name.endswith((*TABLES, ".jsonl", ".jsonl.gz")):
        return False
    if name.split(".")[0] in ("observations", "actions") and _aligned(path.parent, "observations"):
        return True
    try:
        file = sniff(path, encoding=encoding, header=None if ".jsonl" in name else True)
    except DataError:
        return False
    columns = {column.strip().lower() for column in file.columns}
    if columns & PICTURE:  # frames with actions
        return False
    acts = bool(columns & ACTION) or any(NUMBERED.fullmatch(column) for column in columns)
    observed = bool(columns & OBSERVATION) or any(NUMBERED_OBSERVATION.fullmatch(column) for column in columns)
    return acts and (bool(columns & (EPISODE | END)) or observed)


def read_trajectories(path: Path, settings: TrajectorySettings) -> Episodes:
    """Return the recorded episodes of a path."""
    encoding = settings.encoding or None
    if not path.exists():
        raise DataError(f"{path}: no such file or folder; name recorded episodes")
    if path.is_dir() and (hdf5 := find_hdf5(path)) is not None:
        return read_hdf5(hdf5)
    if path.is_dir() or _is_aligned_file(path):
        return _read_aligned(path if path.is_dir() else path.parent, encoding)
    if path.suffix.lower() in (".hdf5", ".h5"):
        return read_hdf5(path)
    if path.suffix.lower() == ".npz":
        return read_npz(path)
    file = sniff(path, encoding=encoding, header=None if ".jsonl" in path.name.lower() else True)
    steps = Steps()
    if file.format == "jsonl":
        _read_jsonl(file, steps)
    elif file.format == "text":
        what, expected = "plain text", "a table of steps with columns episode and action, jsonl, npz or HDF5"
        raise BadRows([Problem(path, 1, None, what, expected, "see docs/imitation.md for the layouts")])
    else:
        _read_table(file, steps)
    return steps.join(path)


def _is_aligned_file(path: Path) -> bool:
    named = path.name.lower().split(".")[0] in ("observations", "actions")
    return named and path.name.lower().endswith(TABLES) and _aligned(path.parent, "actions") is not None


def _aligned(folder: Path, name: str) -> Path | None:
    """Return the table of that name in a folder."""
    paths = (folder / f"{name}{suffix}" for suffix in TABLES)
    return next((path for path in paths if path.is_file()), None)


def _read_aligned(folder: Path, encoding: str | None) -> Episodes:
    """Read observations and actions, and rewards and ends if they are there: the same number of rows in each."""
    steps = Steps()
    paths = {name: _aligned(folder, name) for name in ("observations", "actions", "rewards")}
    ends = {name: path for name in sorted(END) if (path := _aligned(folder, name)) is not None}
    observations, actions = paths["observations"], paths["actions"]
    if observations is None or actions is None:
        missing = "actions" if actions is None else "observations"
        what, expected = f"no file {missing}.csv", "observations.csv and actions.csv beside each other"
        raise BadRows([Problem(folder, None, None, what, expected, "add it, or name a table that has all columns")])
    tables = {
        path: list(_number_rows(path, encoding))
        for path in (observations, actions, paths["rewards"], *ends.values())
        if path
    }
    count = len(tables[observations])
    for path, table in tables.items():
        if len(table) != count:
            expected = f"{count:,} as in {observations.name}"
            raise BadRows(
                [Problem(path, len(table), None, f"{len(table):,} rows", expected, "write a row for each step")]
            )
    for (line, seen), (action_line, acted) in zip(tables[observations], tables[actions], strict=True):
        values = [steps.number(observations, line, value, f"number {n + 1}") for n, value in enumerate(seen)]
        steps.add(observations, line, values, tuple(acted))
        if any(not value for value in acted):
            steps.refuse(actions, action_line, "an empty action", "a number or a label")
    if (rewards := paths["rewards"]) is not None:
        steps.rewards = [steps.number(rewards, line, cells[0], "reward") for line, cells in tables[rewards]]
    flags = {
        name: [steps.flag(path, line, cells[0], "end") for line, cells in tables[path]] for name, path in ends.items()
    }
    for row in zip(*flags.values(), strict=True):
        steps.add_end(dict(zip(flags, row, strict=True)))
    return steps.join(folder)


def _number_rows(path: Path, encoding: str | None) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each line of a table of numbers without a header, or after one; commas, tabs or spaces."""
    try:
        file = sniff(path, encoding=encoding)
    except OSError as error:
        raise explain(path, error) from error
    lines = Lines(file)
    for line in lines:
        cells = [cell.strip().strip('"') for cell in SPLIT.split(line.strip())] if line.strip() else []
        if not cells:
            continue
        if lines.number == 1 and _is_header(path, cells[0].lower()):
            continue
        yield lines.number, cells


def _is_header(path: Path, cell: str) -> bool:
    """Whether the first cell of a table is a name; in a table of actions it may be a label."""
    if not cell[:1].isalpha() or cell in ("nan", "inf"):
        return False
    return not path.name.startswith("actions") or cell in ACTION or NUMBERED.fullmatch(cell) is not None


def _read_table(file: DataFile, steps: Steps) -> None:
    """Read a table with one step a row."""
    names = [name.strip().lower() for name in file.columns]
    acted = [n for n, name in enumerate(names) if name in ACTION or NUMBERED.fullmatch(name)]
    episode = next((n for n, name in enumerate(names) if name in EPISODE), None)
    reward = next((n for n, name in enumerate(names) if name in REWARD), None)
    ends = [n for n, name in enumerate(names) if name in END]
    other = {*acted, *ends, episode, reward}
    seen = [n for n, name in enumerate(names) if n not in other and name not in IGNORED]
    if not acted or not seen:
        missing = "action" if not acted else "observation"
        what = f"no column of the {missing} (columns: {', '.join(file.columns) or 'none'})"
        step = (
            "name the columns episode, action (or action_0, action_1, ...) and one for each number of the observation"
        )
        raise BadRows([Problem(file.path, 1, None, what, "columns of observations and actions", step)])
    for row in rows(file, problems=steps.problems):
        cells = [value.strip() for value in row.values]
        values = [steps.number(file.path, row.line, cells[n], f"column '{file.columns[n]}'") for n in seen]
        action = tuple(cells[n] for n in acted)
        if any(not value for value in action):
            steps.refuse(file.path, row.line, "an empty action", "a number or a label")
        steps.add(file.path, row.line, values, action)
        if reward is not None:
            steps.rewards.append(steps.number(file.path, row.line, cells[reward], "reward"))
        if episode is not None:
            if not cells[episode]:
                steps.refuse(file.path, row.line, "an empty episode", "the number or name of the episode")
            steps.episodes.append(cells[episode])
        if ends:
            flags = {n: steps.flag(file.path, row.line, cells[n], f"column '{file.columns[n]}'") for n in ends}
            steps.add_end({names[n]: flag for n, flag in flags.items()})


def _read_jsonl(file: DataFile, steps: Steps) -> None:
    """Read JSON lines, each a step or an episode."""
    for number, (line, row) in enumerate(json_objects(file, steps.problems)):
        keys = {key.lower(): value for key, value in row.items()}
        seen, acted = (_first(keys, names) for names in (OBSERVATION, ACTION))
        if seen is None or acted is None:
            missing = "observation" if seen is None else "action"
            steps.refuse(file.path, line, f"no key '{missing}' (keys: {', '.join(row) or 'none'})", "it in every line")
            continue
        rewards, episode = _first(keys, REWARD), _first(keys, EPISODE)
        if isinstance(seen, list) and seen and all(isinstance(step, list) for step in seen):
            ended = _first(keys, TERMINATED)
            _add_episode(file.path, line, steps, (seen, acted, rewards, ended, str(number)))
            continue
        ends = {key: value for key, value in keys.items() if key in END}
        steps.add(file.path, line, _vector(file.path, line, steps, seen), _action(acted))
        if rewards is not None:
            steps.rewards.append(steps.number(file.path, line, rewards, "reward"))
        if episode is not None:
            steps.episodes.append(str(episode))
        if ends:
            steps.add_end({key: steps.flag(file.path, line, value, "end") for key, value in ends.items()})
    _check_complete(file.path, steps)


def _add_episode(path: Path, line: int, steps: Steps, episode: tuple[Any, Any, Any, Any, str]) -> None:
    """Add an episode that is one line; it may have one observation more than actions, the one after the last.

    Whether the environment terminated it is one flag, or a flag for each step.
    """
    seen, acted, rewards, ended, name = episode
    if not isinstance(acted, list) or len(seen) not in (len(acted), len(acted) + 1):
        count = len(acted) if isinstance(acted, list) else 1
        steps.refuse(path, line, f"{len(seen)} observations and {count} actions", "as many actions as observations")
        return
    if rewards is not None and (not isinstance(rewards, list) or len(rewards) != len(acted)):
        count = len(rewards) if isinstance(rewards, list) else 1
        steps.refuse(path, line, f"{count} rewards and {len(acted)} actions", "a reward for each action")
        return
    ends = ended if isinstance(ended, list) else [False] * (len(acted) - 1) + [ended]
    if ended is not None and len(ends) != len(acted):
        steps.refuse(path, line, f"{len(ends)} terminations and {len(acted)} actions", "a flag for each action, or one")
        return
    for number, action in enumerate(acted):
        steps.add(path, line, _vector(path, line, steps, seen[number]), _action(action))
        steps.episodes.append(name)
        if rewards is not None:
            steps.rewards.append(steps.number(path, line, rewards[number], "reward"))
        if ended is not None:
            steps.terminated.append(steps.flag(path, line, ends[number], "a termination"))


def _vector(path: Path, line: int, steps: Steps, value: Any) -> list[float]:
    values = value if isinstance(value, list) else [value]
    return [steps.number(path, line, number, f"number {n + 1} of the observation") for n, number in enumerate(values)]


def _action(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list) else (value,)


def _first(keys: dict[str, Any], names: set[str]) -> Any:
    return next((value for key, value in keys.items() if key in names), None)


def _check_complete(path: Path, steps: Steps) -> None:
    """Refuse rewards, episodes or ends that only some of the steps have."""
    steps.problems.check()
    for name in ("rewards", "episodes", "ends", "terminated"):
        values = getattr(steps, name)
        if values and len(values) != len(steps.observations):
            what = f"{len(values):,} {name} for {len(steps.observations):,} steps"
            raise BadRows([Problem(path, None, None, what, "one for each step, or none", "add those that are missing")])
