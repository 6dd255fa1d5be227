"""Trajectories in arrays: .npz files, and the HDF5 files of Minari datasets.

N steps, D numbers of an observation.
"""

from __future__ import annotations

import importlib
import zipfile
import zlib
from collections.abc import Mapping
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
    "ends": ("terminals", "dones", "done", "terminations", "terminated", "episode_ends"),
    "limits": ("timeouts", "truncations", "truncated"),
    "starts": ("episode_starts",),
}
DAMAGE = (OSError, ValueError, zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, RuntimeError)
SAVE = "write the arrays with numpy.savez(file, observations=..., actions=..., rewards=..., terminals=...)"


def names_in_npz(path: Path) -> bool:
    """Whether an .npz file has arrays of observations and actions."""
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
            groups = sorted((name for name in file if name.startswith("episode_")), key=lambda name: int(name[8:]))
            if not groups:
                listed = ", ".join(list(file)[:8]) or "none"
                raise _refuse(path, f"no group episode_0 (groups: {listed})", "the groups of a Minari dataset", SAVE)
            parts = [_read_group(path, name, file[name], h5py) for name in groups]
    except DAMAGE as error:
        raise _refuse(
            path, f"an HDF5 file that cannot be read ({error})", "a Minari dataset", "copy it again"
        ) from error
    joined = {role: np.concatenate([part[role] for part in parts]) for role in parts[0]}
    return _join(path, joined)


def _read_group(path: Path, name: str, group: Any, h5py: Any) -> dict[str, NDArray[Any]]:
    """Return the arrays of one episode; the observation after the last action is left out."""
    arrays: dict[str, NDArray[Any]] = {}
    for role in ("observations", "actions", "rewards"):
        value = group.get(role)
        if value is None and role != "rewards":
            raise _refuse(path, f"{name} has no {role}", "observations and actions in every episode", SAVE)
        if value is not None and not isinstance(value, h5py.Dataset):
            what = f"{role} of {name} are several arrays ({', '.join(list(value)[:5])})"
            raise _refuse(path, what, "one array of vectors", "flatten the observations and actions first")
        if value is not None:
            arrays[role] = np.asarray(value)
    count = len(arrays["actions"])
    if len(arrays["observations"]) not in (count, count + 1):
        what = f"{len(arrays['observations'])} observations and {count} actions in {name}"
        raise _refuse(path, what, "as many, or one observation more", SAVE)
    arrays["observations"] = arrays["observations"][:count]
    arrays["ends"] = np.arange(count) == count - 1
    return arrays


def _join(path: Path, arrays: Mapping[str, NDArray[Any]]) -> Episodes:
    """Return episodes from arrays that have a row for each step."""
    observations, actions = arrays["observations"], arrays["actions"]
    count = len(observations) if observations.ndim else 0
    if observations.ndim != 2 or not count or not observations.shape[1]:
        raise _refuse(path, f"observations of shape {observations.shape}", "(steps, numbers)", SAVE)
    for role, array in arrays.items():
        if array.ndim == 0 or len(array) != count:
            rows = len(array) if array.ndim else 1
            raise _refuse(path, f"{rows:,} {role} and {count:,} observations", "a row for each step", SAVE)
    for role in ("observations", "actions", "rewards"):
        if role not in arrays or (role == "actions" and actions.dtype.kind in "US"):
            continue
        array = arrays[role]
        if array.dtype.kind not in "biuf":
            raise _refuse(path, f"{role} of type {array.dtype}", "numbers", SAVE)
        bad = np.argwhere(~np.isfinite(array))
        if len(bad):
            at = tuple(int(index) for index in bad[0])
            raise _refuse(path, f"{role}{list(at)} is {array[at]}", "a finite number", "leave that episode out")
    if actions.dtype.kind not in "US":
        actions = actions.reshape(count, -1).astype(np.float64)
    new = np.zeros(count, dtype=bool)
    new[0] = True
    for role in ("ends", "limits"):
        if role in arrays:
            new[1:] |= arrays[role].reshape(count, -1)[:-1, 0].astype(bool)
    if "starts" in arrays:
        new |= arrays["starts"].reshape(count, -1)[:, 0].astype(bool)
    rewards = arrays.get("rewards")
    origins = RowOrigins((path,), np.zeros(count, np.int32), np.arange(count, dtype=np.int64))
    return Episodes(
        observations.astype(np.float32),
        actions,
        np.flatnonzero(new),
        None if rewards is None else rewards.reshape(count).astype(np.float64),
        origins,
        marked=any(role in arrays for role in ("ends", "limits", "starts")),
    )


def _refuse(path: Path, what: str, expected: str, step: str) -> BadRows:
    return BadRows([Problem(path, None, None, what, expected, step)])
