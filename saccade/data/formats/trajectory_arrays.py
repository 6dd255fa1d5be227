"""Trajectories in arrays: .npz files, and the HDF5 files of Minari datasets.

N steps, D numbers of an observation.
"""

from __future__ import annotations

import importlib
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.data.episodes import Episodes
from saccade.data.origins import RowOrigins
from saccade.data.tables.problems import BadRows, Problem
from saccade.errors import UsageError

NAMES = {
    "observations": ("observations", "obs", "states", "observation", "state"),
    "actions": ("actions", "acts", "action"),
    "rewards": ("rewards", "reward"),
    "terminals": ("terminals", "terminal", "terminations", "terminated"),
    "timeouts": ("timeouts", "timeout", "truncations", "truncated"),
    "dones": ("dones", "done", "episode_ends"),
    "episode_starts": ("episode_starts",),
}
FLAGS = ("terminals", "timeouts", "dones", "episode_starts")
MINARI = {"observations": "observations", "actions": "actions", "rewards": "rewards", "terminals": "terminations"}
LARGEST = 1e30  # of a number; larger ones do not fit in float32
DAMAGE = (OSError, ValueError, zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, RuntimeError)
SAVE = "write the arrays with numpy.savez(file, observations=..., actions=..., rewards=..., terminals=...)"


def names_in_npz(path: Path) -> bool:
    """Whether an .npz file has arrays of observations and actions."""
    if not path.is_file():  # a pipe
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.removesuffix(".npy").lower() for name in archive.namelist()}
    except (OSError, zipfile.BadZipFile):
        return False
    return all(names & set(NAMES[role]) for role in ("observations", "actions"))


def read_npz(path: Path) -> Episodes:
    """Return the episodes of an .npz file."""
    arrays: dict[str, NDArray[Any]] = {}
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            for role, names in NAMES.items():
                name = next((name for name in archive.files if name.lower() in names), None)
                if name is not None:
                    arrays[role] = archive[name]
            present = ", ".join(archive.files) or "none"
    except DAMAGE as error:
        what = f"an .npz file that cannot be read ({error})"
        raise _refuse(path, what, "arrays of numbers", SAVE) from error
    for role in ("observations", "actions"):
        if role not in arrays:
            raise _refuse(path, f"no array '{role}' (arrays: {present})", "observations and actions", SAVE)
    return _join(path, arrays)


def find_hdf5(folder: Path) -> Path | None:
    """Return the HDF5 file of a Minari dataset: main_data.hdf5 in the folder or its folder `data`."""
    paths = (folder / "main_data.hdf5", folder / "data" / "main_data.hdf5")
    return next((path for path in paths if path.is_file()), None)


def read_hdf5(path: Path) -> Episodes:
    """Return the episodes of a Minari dataset: groups episode_0, episode_1, ... of arrays."""
    try:
        h5py = importlib.import_module("h5py")
    except ModuleNotFoundError as error:
        raise UsageError(f"{path.name} needs h5py; install it with: pip install h5py") from error
    try:
        with h5py.File(path, "r") as file:
            names = [name for name in map(str, file) if name.startswith("episode_") and name[8:].isdecimal()]
            if not names:
                listed = ", ".join(map(str, list(file)[:8])) or "none"
                raise _refuse(path, f"no group episode_0 (groups: {listed})", "the groups of a Minari dataset", SAVE)
            names.sort(key=lambda name: int(name[8:]))
            parts = [_read_group(path, name, file[name], h5py) for name in names]
    except DAMAGE as error:
        raise _refuse(
            path, f"an HDF5 file that cannot be read ({error})", "a Minari dataset", "copy it again"
        ) from error
    return _join(path, _concatenate(path, names, parts))


def _read_group(path: Path, name: str, group: Any, h5py: Any) -> dict[str, NDArray[Any]]:
    """Return the arrays of one episode; the observation after the last action is left out."""
    if not isinstance(group, h5py.Group):
        raise _refuse(path, f"{name} is an array", "a group of arrays for each episode", SAVE)
    arrays: dict[str, NDArray[Any]] = {}
    for role, key in MINARI.items():
        value = group.get(key)
        if value is None and role in ("observations", "actions"):
            raise _refuse(path, f"{name} has no {key}", "observations and actions in every episode", SAVE)
        if value is not None and not isinstance(value, h5py.Dataset):
            what = f"{key} of {name} are several arrays ({', '.join(list(value)[:5])})"
            raise _refuse(path, what, "one array of vectors", "flatten the observations and actions first")
        if value is not None:
            arrays[role] = np.asarray(value)
            if not arrays[role].ndim:
                raise _refuse(path, f"{key} of {name} are one value", "an array with a row for each step", SAVE)
    count = len(arrays["actions"])
    if not count or len(arrays["observations"]) not in (count, count + 1):
        what = f"{len(arrays['observations'])} observations and {count} actions in {name}"
        raise _refuse(path, what, "at least one step, and as many of each or one observation more", SAVE)
    arrays["observations"] = arrays["observations"][:count]
    for role, array in arrays.items():
        if len(array) != count:
            raise _refuse(path, f"{len(array)} {role} and {count} actions in {name}", "a row for each step", SAVE)
    arrays["dones"] = np.arange(count) == count - 1
    return arrays


def _concatenate(
    path: Path, names: Sequence[str], parts: Sequence[Mapping[str, NDArray[Any]]]
) -> dict[str, NDArray[Any]]:
    """Return the arrays of all episodes one after another; all must have the same arrays of the same width."""
    first = parts[0]
    for name, part in zip(names, parts, strict=True):
        for role in {**first, **part}:
            if role not in first or role not in part:
                without, given = (name, names[0]) if role in first else (names[0], name)
                raise _refuse(path, f"{without} has no {role}, but {given} has", "the same arrays in all", SAVE)
            width, expected = part[role].shape[1:], first[role].shape[1:]
            if width != expected or part[role].dtype.kind != first[role].dtype.kind:
                what = f"{role} of {name} are rows of shape {width} and type {part[role].dtype}"
                raise _refuse(path, what, f"{expected} and {first[role].dtype} as in {names[0]}", SAVE)
    return {role: np.concatenate([part[role] for part in parts]) for role in first}


def _join(path: Path, arrays: Mapping[str, NDArray[Any]]) -> Episodes:
    """Return episodes from arrays that have a row for each step."""
    observations = arrays["observations"]
    count = len(observations) if observations.ndim else 0
    if observations.ndim != 2 or not observations.size:
        raise _refuse(path, f"observations of shape {observations.shape}", "(steps, numbers)", SAVE)
    if count < 2:
        raise _refuse(path, "1 step", "at least two steps", "name a file with recorded episodes")
    for role, array in arrays.items():
        if array.ndim == 0 or len(array) != count:
            rows = len(array) if array.ndim else 1
            raise _refuse(path, f"{rows:,} {role} and {count:,} observations", "a row for each step", SAVE)
    _check_numbers(path, "observations", observations)
    rewards = arrays.get("rewards")
    if rewards is not None:
        _check_numbers(path, "rewards", rewards)
        rewards = _column(path, "rewards", rewards).astype(np.float64)
    flags = {role: _read_flags(path, role, arrays[role]) for role in FLAGS if role in arrays}
    new = np.zeros(count, dtype=bool)
    new[0] = True
    for role, values in flags.items():
        if role == "episode_starts":
            new |= values
        else:
            new[1:] |= values[:-1]
    return Episodes(
        observations.astype(np.float32),
        _read_actions(path, arrays["actions"]),
        np.flatnonzero(new),
        rewards,
        RowOrigins((path,), np.zeros(count, np.int32), np.arange(count, dtype=np.int64)),
        marked=bool(flags),
        terminated=flags.get("terminals"),
    )


def _read_actions(path: Path, actions: NDArray[Any]) -> NDArray[Any]:
    """Return numbers (N, A), or labels (N,) as text."""
    if actions.dtype.kind not in "USO":
        _check_numbers(path, "actions", actions)
        if actions.ndim > 2 or not actions.size:
            raise _refuse(path, f"actions of shape {actions.shape}", "(steps,) or (steps, numbers)", SAVE)
        return actions.reshape(len(actions), -1).astype(np.float64)
    labels = []
    for row, label in enumerate(_column(path, "actions", actions).tolist()):
        try:
            labels.append(label.decode() if isinstance(label, bytes) else label)
        except UnicodeDecodeError as error:
            raise _refuse(path, f"actions[{row}] is {label!r}", "a label in UTF-8", SAVE) from error
        if not isinstance(labels[-1], str) or not labels[-1].strip():
            raise _refuse(path, f"actions[{row}] is {label!r}", "a number or a label", SAVE)
    return np.array(labels)


def _check_numbers(path: Path, role: str, array: NDArray[Any]) -> None:
    """Refuse what are no finite numbers that float32 can hold."""
    if array.dtype.kind not in "biuf":
        raise _refuse(path, f"{role} of type {array.dtype}", "numbers", SAVE)
    bad = np.argwhere(~(np.abs(array.astype(np.float64)) < LARGEST))
    if len(bad):
        at = tuple(int(index) for index in bad[0])
        raise _refuse(path, f"{role}{list(at)} is {array[at]}", "a finite number", "leave that episode out")


def _read_flags(path: Path, role: str, array: NDArray[Any]) -> NDArray[np.bool_]:
    """Return an array of true and false (N,)."""
    values = _column(path, role, array)
    wrong = [n for n, value in enumerate(values.tolist()) if value not in (0, 1)]
    if wrong:
        raise _refuse(path, f"{role}[{wrong[0]}] is {values[wrong[0]]}", "true or false, 1 or 0", SAVE)
    return values.astype(bool)


def _column(path: Path, role: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return an array (N,) or (N, 1) as (N,)."""
    if array.size != len(array):
        raise _refuse(path, f"{role} of shape {array.shape}", f"({len(array)},)", SAVE)
    return array.reshape(len(array))


def _refuse(path: Path, what: str, expected: str, step: str) -> BadRows:
    return BadRows([Problem(path, None, None, what, expected, step)])
