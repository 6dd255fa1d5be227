"""Pickles: old weight files made safe once; nothing else here ever opens one."""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from saccade.atomic_io import sync_folder, unsaved
from saccade.errors import ModelFileError

OLD, NEW = "pytorch_model.bin", "model.safetensors"
MOST_TENSORS = 100_000
SHARED = 4  # times that all tensors may be larger than the file, since tied ones stand in it once


def convert(folder: Path, *, allow_pickle: bool) -> Path:
    """Write the tensors of a pytorch_model.bin as model.safetensors beside it; the pickle may build tensors only."""
    path, target = folder / OLD, folder / NEW
    if target.exists():
        raise ModelFileError(f"{target} must not be there yet, but is; use it, or delete it first")
    if not path.is_file():
        raise ModelFileError(f"{folder} must hold {OLD}, but does not; only this one file can be converted")
    if not allow_pickle:
        raise ModelFileError(
            f"{path} is a pickle, which can run code; if you trust where it comes from, add --allow-pickle"
        )
    state = _tensors(path)
    aside = folder / f"{NEW}.tmp"
    try:
        save_file(state, aside, {"format": "pt"})
        aside.replace(target)
        sync_folder(folder)
    except OSError as error:
        raise unsaved(target, error) from error
    return target


def _check_unpacked(path: Path) -> None:
    """Refuse a zip that would grow when it is unpacked: weights are stored as they are."""
    size = path.stat().st_size
    try:
        with zipfile.ZipFile(path) as packed:
            room = sum(member.file_size for member in packed.infolist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return  # the older form, or broken: the reader of pickles says which
    if room > size:
        raise ModelFileError(
            f"{path} must not grow when it is unpacked, but its {size:,} bytes become {room:,}; "
            "get the model as safetensors"
        )


def _tensors(path: Path) -> dict[str, Tensor]:
    _check_unpacked(path)
    try:
        with warnings.catch_warnings(action="ignore"):  # of old forms, which are read or refused all the same
            found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a hostile pickle can make the reader fail in any way
        # What the library says is left out: it advises to open the file with less care.
        raise ModelFileError(
            f"{path} must hold tensors and nothing else, but does not ({type(error).__name__}); "
            "get the model as safetensors"
        ) from error
    if not isinstance(found, dict) or not found or len(found) > MOST_TENSORS:
        raise ModelFileError(f"{path} must hold tensors by name, but does not; get the model as safetensors")
    size, total = path.stat().st_size, 0
    for name, tensor in found.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor) or tensor.layout != torch.strided:
            raise ModelFileError(
                f"{path}: {str(name)[:80]!r} must be a name of a plain tensor, but is not; get the model as safetensors"
            )
        room = tensor.numel() * tensor.element_size()
        total += room
        if room > size or total > SHARED * size:  # a few numbers, spread out to fill all memory
            raise ModelFileError(
                f"{path}: '{name[:80]}' must not be larger than the file ({size:,} bytes), but has {room:,}; "
                "get the model as safetensors"
            )
    return {name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in found.items()}
