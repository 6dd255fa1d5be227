"""Provenance: what a run was started with (settings, data, assets), recorded in data.json and checked ever after."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from saccade.atomic_io import dump, hash_file, read_sealed, write_sealed
from saccade.errors import ModelFileError
from saccade.runs import checkpoint
from saccade.runs.folder import Run

FILE = "data.json"


def record(run: Run, fingerprint: str) -> None:
    """Write the fingerprint of the data and the hashes of assets and settings, before the first step."""
    recorded = {"fingerprint": fingerprint, "assets": hash_assets(run), "settings": settings_hash(run.describe())}
    write_sealed(run.folder / FILE, recorded)


def read(run: Run) -> dict[str, Any] | None:
    """Return what was recorded; None before anything was trained."""
    path = run.folder / FILE
    if not path.exists() and not checkpoint.steps(run.checkpoints):
        return None
    try:
        return read_sealed(path)
    except ModelFileError as error:
        raise ModelFileError(f"{error}; restore it from a copy, or train a new run") from error


def check(run: Run) -> None:
    """Refuse settings, a vocabulary or other assets that are not those the run was started with."""
    recorded = read(run)
    if recorded is None:
        return
    if recorded.get("settings") != settings_hash(run.describe()):
        raise ModelFileError(
            f"{run.folder / 'run.json'} holds other settings than the run was started with; undo that change, or train "
            "a new run with them"
        )
    expected, actual = recorded.get("assets"), hash_assets(run)
    if expected != actual:
        recorded_hashes = expected if isinstance(expected, dict) else {}
        names = sorted(actual.keys() | recorded_hashes.keys())
        changed = [name for name in names if recorded_hashes.get(name) != actual.get(name)]
        raise ModelFileError(
            f"{run.assets}: {', '.join(changed) or 'a file'} has changed since the run was trained; restore it from a "
            "copy, or train a new run"
        )


def identity(folder: Path) -> str:
    """Return the hash of what was recorded for a run, which each of its checkpoints holds; empty: nothing was."""
    path = folder / FILE
    return hash_file(path) if path.exists() else ""


def check_identity(folder: Path, expected: str) -> None:
    """Refuse the record of another run than the one a checkpoint is from."""
    if identity(folder) != expected:
        raise ModelFileError(
            f"{folder / FILE} is missing or is not that of the run's checkpoints; restore it from a copy, or train a "
            "new run"
        )


def settings_hash(described: dict[str, Any]) -> str:
    """Return the hash of run.json without what may change: the device, and the path of the data (see fingerprint)."""
    train = {name: value for name, value in described["train"].items() if name != "device"}
    fixed = {name: value for name, value in described.items() if name != "data"}
    return hashlib.sha256(dump({**fixed, "train": train})).hexdigest()


def hash_assets(run: Run) -> dict[str, str]:
    """Return the sha256 of each asset of a run, by name."""
    try:
        paths = sorted(run.assets.iterdir())
    except OSError as error:
        raise ModelFileError(f"{run.assets} cannot be read: {error.strerror}; restore it from a copy") from error
    return {path.name: hash_file(path) for path in paths}
