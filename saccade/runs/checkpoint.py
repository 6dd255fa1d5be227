"""Checkpoints: written aside, synced, hashed, renamed; verified before they are believed. No pickle."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from saccade import atomic_io
from saccade.atomic_io import dump, read_json, sync_folder, unsaved
from saccade.errors import ModelFileError, ResourceError
from saccade.tensor_files import read_header

FORMAT = 1
Tensors = dict[str, Tensor]
_NAME = re.compile(r"step-(\d{6,})")


@dataclass(frozen=True)
class Checkpoint:
    """Everything a run needs to go on as if nothing had happened."""

    step: int
    parts: dict[str, Tensors]
    """tensors by file: model, optimizer and, where weights are averaged, average"""
    state: dict[str, Any]


def save(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint so that it is whole on disk or not there at all."""
    target = at(folder, checkpoint.step)
    aside = folder / f"{target.name}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        for name, tensors in checkpoint.parts.items():
            save_file({key: value.detach().cpu().contiguous() for key, value in tensors.items()}, _file(aside, name))
        atomic_io.write(aside / "state.json", dump(checkpoint.state))
        files = {path.name: _fingerprint(path, sync=True) for path in sorted(aside.iterdir())}
        atomic_io.write(aside / "manifest.json", _seal({"format": FORMAT, "step": checkpoint.step, "files": files}))
        sync_folder(aside)
        if target.exists():  # a damaged one that a resumed run has passed again
            shutil.rmtree(target)
        aside.rename(target)
        sync_folder(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise unsaved(target, error) from error
    return target


def read(path: Path, parts: tuple[str, ...] = ("model", "optimizer")) -> Checkpoint:
    """A checkpoint, verified byte for byte; raises ModelFileError with the file that is wrong."""
    manifest = verify(path)
    state = read_json(path / "state.json")
    if not isinstance(state.get("best"), dict) or not isinstance(state.get("elapsed"), float | int):
        raise ModelFileError(f"{path / 'state.json'} must hold the best score and the time so far, but does not")
    try:
        files = {name: _file(path, name) for name in parts if _file(path, name).name in manifest["files"]}
        for file in files.values():
            read_header(file)
        tensors = {name: load_file(file) for name, file in files.items()}
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelFileError(f"{path} cannot be read: {error}") from error
    return Checkpoint(manifest["step"], tensors, state)


def verify(path: Path) -> dict[str, Any]:
    """The manifest of a checkpoint whose every file has the length and sha256 it names."""
    manifest = _unseal(path / "manifest.json")
    if manifest.get("format") != FORMAT:
        raise ModelFileError(f"{path}: format must be {FORMAT}, but is {manifest.get('format')}; update saccade")
    listed = manifest.get("files")
    if not isinstance(listed, dict) or not {"model.safetensors", "state.json"} <= listed.keys():
        raise ModelFileError(f"{path / 'manifest.json'} must list model.safetensors and state.json, but does not")
    for name, expected in manifest["files"].items():
        file = path / Path(name).name
        if not file.is_file():
            raise ModelFileError(f"{file} is missing")
        if file.stat().st_size != expected["bytes"]:
            raise ModelFileError(f"{file} must have {expected['bytes']} bytes, but has {file.stat().st_size}")
        found = _fingerprint(file)
        if found != expected:
            raise ModelFileError(f"{file} must have sha256 {expected['sha256'][:12]}…, but has {found['sha256'][:12]}…")
    return manifest


def steps(folder: Path) -> list[int]:
    """The steps that have a checkpoint, oldest first."""
    found = (_NAME.fullmatch(path.name) for path in folder.iterdir()) if folder.is_dir() else ()
    return sorted(int(match[1]) for match in found if match)


def at(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return folder / f"step-{step:06d}"


def newest(folder: Path, say: Callable[[str], None], parts: tuple[str, ...]) -> Checkpoint | None:
    """The newest checkpoint that is whole; says which ones are not; None if there never was one."""
    known = steps(folder)
    for step in reversed(known):
        try:
            return read(at(folder, step), parts)
        except ModelFileError as error:
            say(f"checkpoint of step {step} is damaged: {error}; falling back to the one before")
    if known:
        raise ModelFileError(f"all {len(known)} checkpoints in {folder} are damaged; train again, or restore a copy")
    return None


def prune(folder: Path, last: int, keep: int, best: int | None) -> None:
    """Leave the best checkpoint and the newest `keep` up to the `last` one; clear what a kill left half written.

    A later one is damaged, or the run would have gone on from it; it must not push out those that are whole.
    """
    for path in folder.glob("step-*.tmp"):
        shutil.rmtree(path, ignore_errors=True)
    whole = [step for step in steps(folder) if step <= last]
    for step in steps(folder):
        if step not in whole[-keep:] and step != best:
            shutil.rmtree(at(folder, step))


def check_space(folder: Path, tensors: int, copies: int) -> None:
    """Refuse before the first step if the disk cannot hold the checkpoints to come."""
    needed, free = tensors * copies, shutil.disk_usage(folder).free
    if free < needed:
        raise ResourceError(
            f"{folder} must have {needed / 1e6:.1f} MB free for {copies} checkpoints, but has {free / 1e6:.1f} MB; "
            "free some space or choose another folder with --runs"
        )


def _file(folder: Path, part: str) -> Path:
    return folder / f"{part}.safetensors"


def _seal(manifest: dict[str, Any]) -> bytes:
    """A manifest that names its own hash, so that a flipped bit in it shows too."""
    return dump({**manifest, "seal": hashlib.sha256(dump(manifest)).hexdigest()})


def _unseal(path: Path) -> dict[str, Any]:
    manifest = read_json(path)
    seal = manifest.pop("seal", None)
    if seal != hashlib.sha256(dump(manifest)).hexdigest() or path.read_bytes() != _seal(manifest):
        raise ModelFileError(f"{path} does not have the hash that it names")
    return manifest


def _fingerprint(path: Path, *, sync: bool = False) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if sync:
            os.fsync(file.fileno())
    return {"bytes": path.stat().st_size, "sha256": digest}
