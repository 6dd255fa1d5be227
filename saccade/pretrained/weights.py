"""Weights: tensors of a checkpoint -> our network; nothing is executed, and shapes are compared before allocation."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from saccade.errors import ModelFileError
from saccade.pretrained.families import Family, Names
from saccade.pretrained.families.mapping import GetTensor, WeightMapping
from saccade.pretrained.strict_json import one_line, read_object
from saccade.tensor_files import is_finite, read_header

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARD_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}\.safetensors")
DTYPES = ("F32", "F16", "BF16", "F64")
MAX_SHARDS = 1000
MISFIT = "this variant is not supported, or config.json is that of another model"
OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}  # of the first checkpoints


@dataclass(frozen=True)
class LoadedNetwork:
    """A network of ours with the weights of a checkpoint."""

    network: nn.Module
    config: Any
    task: str
    unused: tuple[str, ...]
    """tensors of the checkpoint that the network has no parameter for, such as the head of another task"""


class TensorSource(Protocol):
    """Tensors by their names in transformers."""

    @property
    def names(self) -> Set[str]: ...

    def get(self, name: str) -> Tensor:
        """Return a tensor in float32."""

    def meta(self, name: str) -> Tensor:
        """Return a tensor of the same shape on the meta device."""


class SafetensorsFiles:
    """The tensors of one or several safetensors files; each is read on demand."""

    def __init__(self, folder: Path, renames: Sequence[tuple[str, str]] = (), *, file: str = "") -> None:
        """Open the files of a folder, or one of them; `renames` are parts of names that are read as others."""
        self.folder = folder
        self.files: dict[str, Path] = {}
        self.stored_names: dict[str, str] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, str] = {}
        for path in [folder / file] if file else _weight_files(folder):
            for stored_name, entry in _header(path).items():
                if stored_name == "__metadata__":
                    continue
                name = _current_name(stored_name, renames)
                if name in self.files:
                    raise ModelFileError(
                        f"{path}: the tensor {name[:80]!r} must be in one file, but {self.files[name].name} has it too;"
                        " download the model again"
                    )
                self.files[name], self.shapes[name] = path, _shape(path, name, entry)
                self.stored_names[name] = stored_name
                self.dtypes[name] = str(entry["dtype"])

    @property
    def names(self) -> Set[str]:
        return self.files.keys()

    def get(self, name: str) -> Tensor:
        """Return a tensor in float32."""
        try:
            with safe_open(self.files[name], "pt") as file:
                tensor: Tensor = file.get_tensor(self.stored_names[name])
        except (OSError, SafetensorError, ValueError, RuntimeError) as error:
            raise ModelFileError(f"{self.files[name]}: {name!r} cannot be read: {one_line(error)}") from error
        if tensor.shape != self.shapes[name]:  # the header has two entries for it, and the library took the other one
            raise ModelFileError(
                f"{self.files[name]}: {name!r} must occur once in the header; download the model again"
            )
        return tensor.float()

    def meta(self, name: str) -> Tensor:
        """Return a tensor of the same shape on the meta device."""
        if name not in self.shapes:
            raise ModelFileError(
                f"{self.folder}: the tensor '{name}' is missing; this variant is not supported, or a file is incomplete"
            )
        if self.dtypes[name] not in DTYPES:
            raise ModelFileError(
                f"{self.files[name]}: {name!r} must be of type {', '.join(DTYPES)}, but is {self.dtypes[name][:80]!r}; "
                "download the model in one of them"
            )
        return torch.empty(self.shapes[name], device="meta")


def load_network(origin: Path, family: Family, fields: Any, source: TensorSource) -> LoadedNetwork:
    """Build the network that the fields of the file `origin` describe and load its weights."""
    bare = not any(name.startswith(family.prefix) for name in source.names)
    try:
        config = family.read_config(fields, frozenset())
        if config.depth > len(source.names):
            raise ModelFileError(
                f"{origin}: each of {config.depth:,} layers must have tensors, but there are {len(source.names):,}; "
                "download the model again"
            )
        mappings = family.mappings(config, bare=bare)
        names = frozenset(mapping.name for mapping in mappings if source.names >= set(mapping.hf_names))
        config = family.read_config(fields, names)
        with torch.device("meta"):
            meta_network = family.build(config, fields, names)
    except (ValueError, RuntimeError) as error:
        raise ModelFileError(f"{origin}: {one_line(error)}; this variant of {family.name} is not supported") from error
    used = _used(origin, mappings, meta_network, source)
    network = family.build(config, fields, names)
    parameters = dict(network.named_parameters())
    where = origin.parent if origin.name == "config.json" else origin

    def get_finite(name: str) -> Tensor:
        tensor = source.get(name)
        if not is_finite(tensor):
            raise ModelFileError(
                f"{where}: the tensor {name!r} must be finite, but has NaN or infinite values; the model is "
                "damaged: download it again, or train it again"
            )
        return tensor

    with torch.no_grad():
        for mapping in used:
            parameters[mapping.name].copy_(mapping.load(get_finite))
    if family.copies and config.tie_embeddings:
        _check_copies(origin, family, source)
    unused = source.names - {name for mapping in used for name in mapping.hf_names}
    expected = (*family.ignored, *(copy for copy, _ in family.copies))
    reported = sorted(name for name in unused if not name.endswith(expected))
    return LoadedNetwork(network.eval(), config, family.task(Names(parameters)), tuple(reported))


def _check_copies(origin: Path, family: Family, source: TensorSource) -> None:
    """Refuse tied embeddings where the file has another matrix: it is unclear which of them was trained."""
    for copy, original in family.copies:
        if {copy, original} <= source.names and not torch.equal(source.get(copy), source.get(original)):
            raise ModelFileError(
                f"{origin}: tie_word_embeddings is true, so '{copy}' must equal '{original}', but differs; "
                "set tie_word_embeddings to what the model was trained with"
            )


def _used(
    origin: Path, mappings: Sequence[WeightMapping], meta_network: nn.Module, source: TensorSource
) -> list[WeightMapping]:
    """Return the mappings of the parameters of a network on the meta device, after comparing all shapes."""
    parameters = dict(meta_network.named_parameters())
    used = [mapping for mapping in mappings if mapping.name in parameters]
    unmapped = parameters.keys() - {mapping.name for mapping in used}
    if unmapped:
        raise ModelFileError(f"{origin}: no tensor is mapped to '{min(unmapped)}'; choose another model")
    for mapping in used:
        _compare_shapes(origin, mapping, source.meta, parameters[mapping.name])
    return used


def _compare_shapes(origin: Path, mapping: WeightMapping, meta: GetTensor, parameter: Tensor) -> None:
    """Refuse tensors that do not compose a parameter of this shape."""
    try:
        composed = mapping.load(meta)
    except (RuntimeError, IndexError) as error:
        raise ModelFileError(
            f"{origin}: '{mapping.hf_names[0]}' must have another shape for this network ({one_line(error)}); {MISFIT}"
        ) from error
    for name, rows in zip(mapping.hf_names, mapping.rows, strict=False):
        if meta(name).shape[0] != rows:
            raise ModelFileError(
                f"{origin}: {name!r} must have {rows:,} rows, but has {meta(name).shape[0]:,}; {MISFIT}"
            )
    if composed.shape != parameter.shape:
        raise ModelFileError(
            f"{origin}: '{mapping.name}' must have the shape {tuple(parameter.shape)}, but has "
            f"{tuple(composed.shape)}; {MISFIT}"
        )


def _current_name(name: str, renames: Sequence[tuple[str, str]]) -> str:
    """Return the name by which the mappings know a tensor of an old, or another, checkpoint."""
    for old, current in (*OLD_NAMES.items(), *renames):
        name = name.replace(old, current)
    return name


def _weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a folder; an index may only list plain file names."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    index = folder / INDEX
    if not index.is_file():
        pickles = sorted(path.name for suffix in ("bin", "pt", "pth") for path in folder.glob(f"*.{suffix}"))
        hint = "download the complete model"
        if pickles:
            hint = f"{pickles[0]!r:.80} is a pickle, which can run code: see `saccade models convert --help`"
        raise ModelFileError(f"{folder} must hold {WEIGHTS} or {INDEX}, but does not; {hint}")
    weight_map = read_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelFileError(
            f"{index}: weight_map must map tensors to files, but is {str(weight_map)[:80]!r}; download it again"
        )
    names = set(map(str, weight_map.values()))
    invalid = sorted(name for name in names if not SHARD_NAME.fullmatch(name))
    if invalid:
        raise ModelFileError(
            f"{index}: a file must be a plain name ending in .safetensors, but is {invalid[0][:80]!r}; "
            "download the model again"
        )
    if len(names) > MAX_SHARDS:
        raise ModelFileError(
            f"{index} must list at most {MAX_SHARDS:,} files, but lists {len(names):,}; download it again"
        )
    missing = sorted(name for name in names if not (folder / name).is_file())
    if missing:
        raise ModelFileError(f"{index} lists {missing[0]}, which is missing; download the model again")
    return [folder / name for name in sorted(names)]


def _shape(path: Path, name: str, entry: Any) -> tuple[int, ...]:
    """Return the shape in a header entry."""
    shape = entry.get("shape") if isinstance(entry, dict) else None
    valid = isinstance(shape, list) and all(isinstance(size, int) and 0 <= size < 1 << 40 for size in shape)
    if not isinstance(shape, list) or not valid or len(shape) > 8:
        raise ModelFileError(f"{path}: the shape of {name[:80]!r} must be at most 8 integers, but is {str(shape)[:80]}")
    return tuple(shape)


def _header(path: Path) -> dict[str, Any]:
    """Return the header of a file after the library has validated every offset; no tensor is allocated."""
    try:
        header = read_header(path)
        with safe_open(path, "pt"):
            return header
    except ModelFileError as error:
        raise ModelFileError(f"{error}; download the model again") from error
    except (OSError, SafetensorError, ValueError, RuntimeError) as error:
        raise ModelFileError(
            f"{path} must be a complete safetensors file, but is not ({one_line(error)}); download it again"
        ) from error
