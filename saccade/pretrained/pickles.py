"""Pickles: convert an old pytorch_model.bin to safetensors once; no other module opens a pickle."""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from saccade.atomic_io import save_error, sync_folder
from saccade.errors import ModelFileError
from saccade.pretrained.links import check_links

PICKLE, SAFETENSORS = "pytorch_model.bin", "model.safetensors"
MAX_TENSORS = 100_000
MAX_EXPANSION = 4  # bytes of all tensors by bytes of the file, which stores shared tensors once


def convert(folder: Path, *, allow_pickle: bool, key: str = "") -> Path:
    """Write the tensors of a pytorch_model.bin to model.safetensors beside it; the pickle may build tensors only.

    key: that of the tensors, where they are a dictionary inside another one.
    """
    check_links(folder)
    path, target = folder / PICKLE, folder / SAFETENSORS
    if target.exists():
        raise ModelFileError(f"{target} must not exist yet, but does; use it, or delete it first")
    if not path.is_file():
        raise ModelFileError(f"{folder} must hold {PICKLE}, but does not; no other file can be converted")
    if not allow_pickle:
        raise ModelFileError(f"{path} is a pickle, which can run code; if you trust its source, add --allow-pickle")
    tensors = _read_tensors(path, key)
    temporary = folder / f"{SAFETENSORS}.tmp"
    try:
        save_file(tensors, temporary, {"format": "pt"})
        temporary.replace(target)
        sync_folder(folder)
    except (OSError, SafetensorError) as error:
        temporary.unlink(missing_ok=True)
        raise save_error(target, error) from error
    return target


def _check_compression(path: Path) -> None:
    """Refuse a zip file that expands when it is unpacked: weights are stored without compression."""
    size = path.stat().st_size
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return  # the older format, or broken: torch.load reports which
    if unpacked > size:
        raise ModelFileError(
            f"{path} must not expand when it is unpacked, but its {size:,} bytes become {unpacked:,}; "
            "download the model as safetensors"
        )


def _read_tensors(path: Path, key: str) -> dict[str, Tensor]:
    _check_compression(path)
    try:
        with warnings.catch_warnings(action="ignore"):  # about old formats, which are read or refused all the same
            content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a hostile pickle can make torch.load fail in any way
        # The message of torch.load is left out: it recommends weights_only=False.
        raise ModelFileError(
            f"{path} must hold tensors and nothing else, but does not ({type(error).__name__}); "
            "download the model as safetensors"
        ) from error
    content = content.get(key) if key and isinstance(content, dict) else content
    if not isinstance(content, dict) or not content or len(content) > MAX_TENSORS:
        raise ModelFileError(f"{path} must hold tensors by name, but does not; download the model as safetensors")
    size, total = path.stat().st_size, 0
    for name, tensor in content.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor) or tensor.layout != torch.strided:
            raise ModelFileError(
                f"{path}: {str(name)[:80]!r} must be the name of a dense tensor, but is not; "
                "download the model as safetensors"
            )
        expanded = tensor.numel() * tensor.element_size()
        total += expanded
        if expanded > size or total > MAX_EXPANSION * size:  # strides of 0 can turn one number into any size
            raise ModelFileError(
                f"{path}: '{name[:80]}' must not be larger than the file ({size:,} bytes), but has {expanded:,}; "
                "download the model as safetensors"
            )
    return {name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in content.items()}
