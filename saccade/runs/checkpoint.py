"""Checkpoints: written to a temporary folder, synced, hashed, renamed; verified before they are used. No pickle."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from saccade import atomic_io
from saccade.atomic_io import dump, open_file, read_sealed, save_error, seal, sync_folder
from saccade.errors import ModelFileError, ResourceError
from saccade.runs.journal import JOURNALS, check_written
from saccade.runs.state import FILE as STATE
from saccade.runs.state import State, read_state
from saccade.tensor_files import read_header

FORMAT = 3
Tensors = dict[str, Tensor]
PARTS = ("model", "optimizer", "average", "state")
INTACT = "the checkpoints before it are intact. Free some space, then continue with `saccade resume`"
_NAME = re.compile(r"step-(\d{6,18})")
_SHARD = re.compile(rf"({'|'.join(PARTS)})/shard-\d{{5}}-model-00001-of-00001\.safetensors")  # as torch names them


@dataclass(frozen=True)
class Checkpoint:
    """Everything a run needs to continue as if it had never stopped."""

    step: int
    parts: dict[str, Tensors]
    """tensors by file: model, optimizer, average (of the weights, if any), state (of a source or task with one)"""
    state: State


def write_parts(folder: Path, parts: Mapping[str, Tensors]) -> None:
    """Write a file of tensors for each part."""
    for name, tensors in parts.items():
        save_file({key: value.detach().cpu().contiguous() for key, value in tensors.items()}, _file(folder, name))


def save(
    folder: Path, checkpoint: Checkpoint, write: Callable[[Path, Mapping[str, Tensors]], None] = write_parts
) -> Path:
    """Write a checkpoint so that all of it is on disk or none of it; `write` writes the tensors to a folder."""
    target = at(folder, checkpoint.step)
    temporary = folder / f"{target.name}.tmp"
    try:
        folder.mkdir(exist_ok=True)  # not its parents: a run folder that was deleted stays deleted
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        write(temporary, checkpoint.parts)
        atomic_io.write(temporary / STATE, dump(checkpoint.state.to_json()))
        paths = sorted(temporary.rglob("*"))
        files = {str(p.relative_to(temporary)): _fingerprint(p, sync=True) for p in paths if p.is_file()}
        for part in (path for path in paths if path.is_dir()):
            sync_folder(part)
        atomic_io.write(temporary / "manifest.json", seal({"format": FORMAT, "step": checkpoint.step, "files": files}))
        sync_folder(temporary)
        _delete(target)  # a damaged one that a resumed run has reached again
        temporary.rename(target)
        sync_folder(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise save_error(target, error, INTACT) from error
    return target


def read(path: Path, parts: Sequence[str] | None = None) -> Checkpoint:
    """Return a checkpoint with all its parts, or those of the given names that it has.

    What is read is verified byte by byte; raises ModelFileError with the file that is wrong.
    """
    manifest = verify(path, parts)
    state = read_state(path, manifest["step"])
    try:
        files = _part_files(path, manifest, parts)
        for file in (file for part in files.values() for file in part):
            read_header(file)
        tensors = {name: _read_part(path, name, part) for name, part in files.items()}
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelFileError(f"{path} cannot be read: {error}") from error
    return Checkpoint(manifest["step"], tensors, state)


def _read_part(path: Path, name: str, files: list[Path]) -> dict[str, Tensor]:
    if files == [_file(path, name)]:
        return load_file(files[0])
    from saccade.runs.shards import read_shards  # torch's distributed checkpoint takes half a second to import

    return read_shards(path / name, files)


def verify(path: Path, parts: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the manifest after checking length and sha256 of every file, or of the given parts and the state."""
    manifest = read_manifest(path)
    part_files = _part_files(path, manifest, parts).values()
    needed = {STATE, *(str(file.relative_to(path)) for files in part_files for file in files)}
    for name, expected in manifest["files"].items():
        if parts is not None and name not in needed:
            continue
        file = path / name
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
    file = path / "manifest.json"
    manifest = read_sealed(file)
    if manifest.get("format") != FORMAT:
        step = "open it with the version of saccade that wrote it, or train a new run"
        raise ModelFileError(f"{path}: format must be {FORMAT}, but is {manifest.get('format')}; {step}")
    name = _NAME.fullmatch(path.name)
    if name is None or manifest.get("step") != int(name[1]):
        raise ModelFileError(f"{file} must be of the step {path.name} is named for, but is of {manifest.get('step')}")
    files = manifest.get("files")
    if not isinstance(files, dict) or STATE not in files or not _part_files(path, manifest, ("model",)):
        raise ModelFileError(f"{file} must list model.safetensors and {STATE}, but does not")
    allowed = {STATE, *(f"{part}.safetensors" for part in PARTS)}
    for listed, entry in files.items():
        if listed not in allowed and not _SHARD.fullmatch(listed):
            raise ModelFileError(
                f"{file} must list no other files than {', '.join(sorted(allowed))}, but lists {listed}"
            )
        kinds = {key: type(value) for key, value in entry.items()} if isinstance(entry, dict) else {}
        if kinds != {"bytes": int, "sha256": str}:
            raise ModelFileError(f"{file} must hold `bytes` and `sha256` of {listed}, but does not")
    return manifest


def steps(folder: Path) -> list[int]:
    """Return the steps that have a checkpoint, oldest first."""
    matches = (_NAME.fullmatch(path.name) for path in folder.iterdir()) if folder.is_dir() else ()
    return sorted(int(match[1]) for match in matches if match)


def at(folder: Path, step: int) -> Path:
    """Return the folder of the checkpoint of a step."""
    return folder / f"step-{step:06d}"


def newest(folder: Path, log: Callable[[str], None], reader: Callable[[Path], Checkpoint] = read) -> Checkpoint | None:
    """Return the newest checkpoint that can be used; log why others cannot. None: there never was one.

    `reader` returns all of a checkpoint, or what is needed of it.
    """
    existing, first = steps(folder), ""
    for step in reversed(existing):
        try:
            return reader(at(folder, step))
        except ModelFileError as error:
            first = first or str(error)
            log(f"checkpoint of step {step} cannot be used: {error}; falling back to the one before")
    if existing:
        raise ModelFileError(
            f"none of the {len(existing)} checkpoints in {folder} can be used: {first}; restore a copy, or train again"
        )
    return None


def read_weights(path: Path) -> Checkpoint:
    """Return a checkpoint with nothing but the weights to evaluate and predict with: the average, if there is one."""
    averaged = _part_files(path, read_manifest(path), ("average",))
    return read(path, ("average" if averaged else "model",))


def read_consistent(path: Path) -> Checkpoint:
    """Return a checkpoint of a run whose journals still begin with what they held when it was saved."""
    saved = read(path)
    for name in JOURNALS:
        if name not in saved.state.journals:
            raise ModelFileError(f"{path / STATE} must hold how much of {name} was written, but does not")
        check_written(path.parent.parent / name, saved.state.journals[name])
    return saved


def prune(folder: Path, kept: Collection[int]) -> None:
    """Delete all checkpoints but those of some steps, and what a kill left half written or half deleted."""
    for path in folder.glob("step-*.tmp"):
        shutil.rmtree(path, ignore_errors=True)
    for step in steps(folder):
        if step not in kept:
            _delete(at(folder, step))


def _delete(path: Path) -> None:
    """Delete a checkpoint in one step: a kill leaves all of it, or a name that is cleared up later."""
    if not path.exists():
        return
    doomed = path.with_name(f"{path.name}-old.tmp")
    shutil.rmtree(doomed, ignore_errors=True)
    path.rename(doomed)
    shutil.rmtree(doomed)


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


def _part_files(path: Path, manifest: dict[str, Any], parts: Sequence[str] | None) -> dict[str, list[Path]]:
    """Return the file of each part that the manifest lists, or its shards, of all parts or those of the given names."""
    wanted = [part for part in PARTS if parts is None or part in parts]
    names = {part: [name for name in manifest["files"] if _part(name) == part] for part in wanted}
    return {part: [path / name for name in sorted(files)] for part, files in names.items() if files}


def _part(name: str) -> str:
    """Return the part that a file of a checkpoint belongs to; empty: none."""
    shard = _SHARD.fullmatch(name)
    return shard[1] if shard else name.removesuffix(".safetensors")


def _fingerprint(path: Path, *, sync: bool = False) -> dict[str, Any]:
    with open_file(path) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if sync:
            os.fsync(file.fileno())
    return {"bytes": path.stat().st_size, "sha256": digest}
