"""Checkpoints: written to a temporary folder, synced, hashed, renamed; verified before they are used. No pickle."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from saccade import atomic_io
from saccade.atomic_io import dump, read_json, save_error, sync_folder
from saccade.errors import ModelFileError, ResourceError
from saccade.tensor_files import read_header

FORMAT = 2
Tensors = dict[str, Tensor]
_NAME = re.compile(r"step-(\d{6,})")


@dataclass(frozen=True)
class Checkpoint:
    """Everything a run needs to continue as if it had never stopped."""

    step: int
    parts: dict[str, Tensors]
    """tensors by file: model, optimizer, average (of the weights, if any), state (of a source or task with one)"""
    state: dict[str, Any]


def save(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint so that all of it is on disk or none of it."""
    target = at(folder, checkpoint.step)
    temporary = folder / f"{target.name}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        for name, tensors in checkpoint.parts.items():
            save_file(
                {key: value.detach().cpu().contiguous() for key, value in tensors.items()}, _file(temporary, name)
            )
        atomic_io.write(temporary / "state.json", dump(checkpoint.state))
        files = {path.name: _fingerprint(path, sync=True) for path in sorted(temporary.iterdir())}
        atomic_io.write(temporary / "manifest.json", _seal({"format": FORMAT, "step": checkpoint.step, "files": files}))
        sync_folder(temporary)
        if target.exists():  # a damaged one that a resumed run has reached again
            shutil.rmtree(target)
        temporary.rename(target)
        sync_folder(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise save_error(target, error) from error
    return target


def read(path: Path, parts: Sequence[str] | None = None) -> Checkpoint:
    """Return a checkpoint with all its parts, or those of the given names that it has.

    What is read is verified byte by byte; raises ModelFileError with the file that is wrong.
    """
    manifest = verify(path, parts)
    state = read_json(path / "state.json")
    if not isinstance(state.get("best"), dict) or not isinstance(state.get("elapsed"), float | int):
        raise ModelFileError(f"{path / 'state.json'} must hold `best` and `elapsed`, but does not")
    try:
        files = _part_files(path, manifest, parts)
        for file in files.values():
            read_header(file)
        tensors = {name: load_file(file) for name, file in files.items()}
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelFileError(f"{path} cannot be read: {error}") from error
    return Checkpoint(manifest["step"], tensors, state)


def verify(path: Path, parts: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the manifest after checking length and sha256 of every file, or of the given parts and the state."""
    manifest = read_manifest(path)
    needed = {"state.json", *(file.name for file in _part_files(path, manifest, parts).values())}
    for name, expected in manifest["files"].items():
        if parts is not None and name not in needed:
            continue
        file = path / Path(name).name
        if not file.is_file():
            raise ModelFileError(f"{file} is missing")
        if file.stat().st_size != expected["bytes"]:
            raise ModelFileError(f"{file} must have {expected['bytes']} bytes, but has {file.stat().st_size}")
        actual = _fingerprint(file)
        if actual != expected:
            digests = [f"{digest[:12]}…" for digest in (expected["sha256"], actual["sha256"])]
            raise ModelFileError(f"{file} must have sha256 {digests[0]}, but has {digests[1]}")
    return manifest


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of a checkpoint, whose own hash was checked."""
    manifest = _unseal(path / "manifest.json")
    if manifest.get("format") != FORMAT:
        raise ModelFileError(f"{path}: format must be {FORMAT}, but is {manifest.get('format')}; update saccade")
    files = manifest.get("files")
    if not isinstance(files, dict) or not {"model.safetensors", "state.json"} <= files.keys():
        raise ModelFileError(f"{path / 'manifest.json'} must list model.safetensors and state.json, but does not")
    return manifest


def steps(folder: Path) -> list[int]:
    """Return the steps that have a checkpoint, oldest first."""
    matches = (_NAME.fullmatch(path.name) for path in folder.iterdir()) if folder.is_dir() else ()
    return sorted(int(match[1]) for match in matches if match)


def at(folder: Path, step: int) -> Path:
    """Return the folder of the checkpoint of a step."""
    return folder / f"step-{step:06d}"


def newest(folder: Path, log: Callable[[str], None], reader: Callable[[Path], Checkpoint] = read) -> Checkpoint | None:
    """Return the newest checkpoint that is intact; log which ones are damaged. None: there never was one.

    `reader` returns all of a checkpoint, or what is needed of it.
    """
    existing = steps(folder)
    for step in reversed(existing):
        try:
            return reader(at(folder, step))
        except ModelFileError as error:
            log(f"checkpoint of step {step} is damaged: {error}; falling back to the one before")
    if existing:
        raise ModelFileError(f"all {len(existing)} checkpoints in {folder} are damaged; train again, or restore a copy")
    return None


def read_weights(path: Path) -> Checkpoint:
    """Return a checkpoint with nothing but the weights to evaluate and predict with: the average, if there is one."""
    averaged = "average.safetensors" in read_manifest(path)["files"]
    return read(path, ("average" if averaged else "model",))


def prune(folder: Path, last: int, keep: int, best: int | None) -> None:
    """Delete all but the best checkpoint and the newest `keep` up to the `last` one, and what a kill left half written.

    A later one is damaged, or the run would have resumed from it; it must not displace intact ones.
    """
    for path in folder.glob("step-*.tmp"):
        shutil.rmtree(path, ignore_errors=True)
    intact = [step for step in steps(folder) if step <= last]
    for step in steps(folder):
        if step not in intact[-keep:] and step != best:
            shutil.rmtree(at(folder, step))


def check_space(folder: Path, size: int, copies: int) -> None:
    """Refuse to start if the disk cannot hold the checkpoints to come, of `size` bytes each."""
    needed, free = size * copies, shutil.disk_usage(folder).free
    if free < needed:
        raise ResourceError(
            f"{folder} must have {needed / 1e6:.1f} MB free for {copies} checkpoints, but has {free / 1e6:.1f} MB; "
            "free some space or choose another folder with --runs"
        )


def _file(folder: Path, part: str) -> Path:
    return folder / f"{part}.safetensors"


def _part_files(path: Path, manifest: dict[str, Any], parts: Sequence[str] | None) -> dict[str, Path]:
    """Return the file of each part that the manifest lists, of all parts or those of the given names."""
    names = [Path(name) for name in manifest["files"]]
    listed = [name.stem for name in names if name.suffix == ".safetensors" and name.name == str(name)]
    return {part: _file(path, part) for part in listed if parts is None or part in parts}


def _seal(manifest: dict[str, Any]) -> bytes:
    """Return a manifest that contains its own hash, so that damage to it is detected too."""
    return dump({**manifest, "seal": hashlib.sha256(dump(manifest)).hexdigest()})


def _unseal(path: Path) -> dict[str, Any]:
    manifest = read_json(path)
    seal = manifest.pop("seal", None)
    if seal != hashlib.sha256(dump(manifest)).hexdigest() or path.read_bytes() != _seal(manifest):
        raise ModelFileError(f"{path} does not match the hash that it contains")
    return manifest


def _fingerprint(path: Path, *, sync: bool = False) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if sync:
            os.fsync(file.fileno())
    return {"bytes": path.stat().st_size, "sha256": digest}
