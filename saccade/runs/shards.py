"""Shards: tensors of several processes in a safetensors file each, through torch's distributed checkpoint."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from saccade.errors import ModelFileError

HEADER = 8  # bytes before the header of a safetensors file, which hold its size


def write_shards(folder: Path, parts: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Write the shards that this process has of the tensors of each part; all processes call this together."""
    for part, tensors in parts.items():
        writer = HuggingFaceStorageWriter(os.fspath(folder / part), save_distributed=True)
        planner = DefaultSavePlanner(dedup_save_to_lowest_rank=True)
        try:
            # Sorted: a resumed optimizer has its states in another order, which the metadata would show.
            save(dict(sorted(tensors.items())), storage_writer=writer, planner=planner)
        except CheckpointException as error:  # of any process
            causes = [wrapped[0] for wrapped in error.failures.values()]
            raise next((cause for cause in causes if isinstance(cause, OSError)), causes[0]) from error
        if dist.get_rank() == 0:  # all processes have written theirs
            for path in (folder / part).iterdir():
                _sort_metadata(path)


def _sort_metadata(path: Path) -> None:
    """Sort the metadata of a safetensors file: written in a random order, equal checkpoints would differ."""
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(HEADER), "little")
        header = json.loads(file.read(size))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        content = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode().ljust(size)
        assert len(content) == size, f"{path}: the header must have {size} bytes, but has {len(content)}"
        file.seek(HEADER)
        file.write(content)


def read_shards(folder: Path, files: Sequence[Path]) -> dict[str, Tensor]:
    """Return the whole tensors of a part, whatever the number of processes that wrote or read it."""
    present = sorted(path for path in folder.iterdir())
    if present != sorted(files):
        names = ", ".join(path.name for path in present)
        raise ModelFileError(f"{folder} must hold the {len(files)} shards of the manifest alone, but holds {names}")
    reader = HuggingFaceStorageReader(os.fspath(folder))
    tensors: dict[str, Tensor] = {}
    try:
        for name, stored in reader.read_metadata().state_dict_metadata.items():
            assert isinstance(stored, TensorStorageMetadata)
            size, held = stored.size.numel(), sum(chunk.sizes.numel() for chunk in stored.chunks)
            if held != size:  # nothing may be left uninitialized
                raise ModelFileError(f"{folder}: the shards of {name} must hold {size:,} numbers, but hold {held:,}")
            tensors[name] = torch.empty(stored.size, dtype=stored.properties.dtype)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # each process reads for itself
            load(tensors, storage_reader=reader, no_dist=True)
    except (KeyError, TypeError, ValueError, AssertionError, RuntimeError, CheckpointException) as error:
        raise ModelFileError(f"{folder} cannot be read: {error!r:.200}") from error
    return tensors
