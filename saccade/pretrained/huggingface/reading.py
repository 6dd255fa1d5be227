"""Reading: a folder of Hugging Face -> our model; nothing in it is run, nothing is believed before it is checked."""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from saccade.config import from_json
from saccade.errors import ModelFileError, UsageError, suggest
from saccade.pretrained.huggingface import bert, distilbert, gpt2, llama, marian, roberta
from saccade.pretrained.huggingface.family import Family
from saccade.pretrained.huggingface.parts import Get, Part
from saccade.pretrained.huggingface.strict import read_object, short
from saccade.tensor_files import read_header

FAMILIES = {
    family.name: family
    for family in (bert.FAMILY, roberta.FAMILY, distilbert.FAMILY, gpt2.FAMILY, llama.LLAMA, llama.QWEN2, marian.FAMILY)
}
SINGLE, SHARDED = "model.safetensors", "model.safetensors.index.json"
SHARD = re.compile(r"[A-Za-z0-9._-]{1,128}\.safetensors")
TYPES = ("F32", "F16", "BF16", "F64")
MOST_SHARDS = 1000
LARGEST = {"vocab_size": 2_000_000, "hidden_size": 1 << 16, "dim": 1 << 16, "n_embd": 1 << 16}  # of a config.json
DEEPEST = 500
WIDEST = 1 << 20


@dataclass(frozen=True)
class Foreign:
    """A model from elsewhere, as ours."""

    family: Family
    config: Any
    vocabulary: int
    model: nn.Module
    unused: tuple[str, ...]
    """tensors of the file that the model has no place for, such as the head of another task"""


class Source(Protocol):
    """Where tensors come from, by the names that Hugging Face gives them."""

    @property
    def names(self) -> Set[str]: ...

    def get(self, name: str) -> Tensor:
        """A tensor in float32."""

    def outline(self, name: str) -> Tensor:
        """A tensor of that shape without any memory."""


class Tensors:
    """The tensors of one file or of several; each is read when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.where: dict[str, Path] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.kinds: dict[str, str] = {}
        for path in _files(folder):
            for name, entry in _header(path).items():
                if name == "__metadata__":
                    continue
                if name in self.where:
                    raise ModelFileError(
                        f"{path}: the tensor {name[:80]!r} must be in one file, but {self.where[name].name} has it too;"
                        " get the model again"
                    )
                self.where[name], self.shapes[name] = path, _shape(path, name, entry)
                self.kinds[name] = str(entry["dtype"])

    @property
    def names(self) -> Set[str]:
        return self.where.keys()

    def get(self, name: str) -> Tensor:
        """A tensor in float32."""
        try:
            with safe_open(self.where[name], "pt") as file:
                tensor: Tensor = file.get_tensor(name)
        except (OSError, SafetensorError, ValueError, RuntimeError) as error:
            raise ModelFileError(f"{self.where[name]}: {name!r} cannot be read: {short(error)}") from error
        if tensor.shape != self.shapes[name]:  # the header says two things of it, and the library took the other one
            raise ModelFileError(f"{self.where[name]}: {name!r} must stand once in the header; get the model again")
        return tensor.float()

    def outline(self, name: str) -> Tensor:
        """A tensor of that shape without any memory."""
        if name not in self.shapes:
            raise ModelFileError(f"{self.folder}: the tensor '{name}' must be there, but is not; get the model again")
        if self.kinds[name] not in TYPES:
            raise ModelFileError(
                f"{self.where[name]}: {name!r} must be of type {', '.join(TYPES)}, but is {self.kinds[name][:80]!r}; "
                "get the model in one of them"
            )
        return torch.empty(self.shapes[name], device="meta")


def read_config(folder: Path) -> tuple[Family, Any, dict[str, Any]]:
    """The family of a folder, its config.json by our schema, and all of the file."""
    path = folder / "config.json"
    values = read_object(path)
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        known = suggest(str(kind)[:80], list(FAMILIES))
        raise ModelFileError(
            f"{path}: model_type must be a family that is known here, but is {str(kind)[:80]!r}{known}"
        )
    if values.get("auto_map"):
        raise ModelFileError(f"{path}: auto_map names code of its own, which is never run; use a model without it")
    family = FAMILIES[kind]
    known_fields = {field.name for field in fields(family.schema)}
    chosen = {name: value for name, value in values.items() if name in known_fields}
    if "vocab_size" not in chosen:
        raise ModelFileError(f"{path}: vocab_size must be there, but is not; get the model again")
    check_sizes(path, chosen)
    _check_types(path, family.schema, chosen)
    try:
        schema = from_json(family.schema, _nested(chosen))
    except (UsageError, TypeError) as error:
        raise ModelFileError(f"{path}: {short(error)}; this kind of {kind} is not known here") from error
    check_sizes(path, vars(schema))
    return family, schema, values


def read(folder: Path) -> Foreign:
    """The model of a folder with its weights."""
    family, schema, _ = read_config(folder)
    return assemble(folder / "config.json", family, schema, Tensors(folder))


def assemble(said: Path, family: Family, schema: Any, tensors: Source) -> Foreign:
    """A model of what the file `said` says and some tensors; shapes are compared before memory is taken for them."""
    bare = not any(name.startswith(family.prefix) for name in tensors.names)
    try:
        config = family.shape(schema, frozenset())
        if config.depth > len(tensors.names):
            raise ValueError(f"each of {config.depth:,} layers must have tensors, but there are {len(tensors.names):,}")
        parts = family.parts(config, bare=bare)
        names = frozenset(part.ours for part in parts if all(name in tensors.names for name in part.theirs))
        config = family.shape(schema, names)
        with torch.device("meta"):
            outline = family.build(config, schema.vocab_size, names)
    except (ValueError, RuntimeError) as error:
        raise ModelFileError(f"{said}: {short(error)}; get the model again") from error
    wanted = dict(outline.named_parameters())
    used = [part for part in parts if part.ours in wanted]
    missing = wanted.keys() - {part.ours for part in used}
    if missing:
        raise ModelFileError(f"{said}: nothing is known of where '{min(missing)}' comes from; use another model")
    for part in used:
        _compare(said, part, tensors.outline, wanted[part.ours])
    model = family.build(config, schema.vocab_size, names)
    targets = dict(model.named_parameters())
    with torch.no_grad():
        for part in used:
            targets[part.ours].copy_(part.bring(tensors.get))
    taken = {name for part in used for name in part.theirs}
    rest = sorted(name for name in tensors.names - taken if not name.endswith(family.unused or ("\0",)))
    return Foreign(family, config, schema.vocab_size, model.eval(), tuple(rest))


def _files(folder: Path) -> list[Path]:
    """The tensor files of a folder; names from an index may only be plain names."""
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    index = folder / SHARDED
    if not index.is_file():
        pickles = sorted(path.name for ending in ("bin", "pt", "pth") for path in folder.glob(f"*.{ending}"))
        hint = "get the whole model"
        if pickles:
            hint = f"{pickles[0]!r:.80} is a pickle, which can run code: see `saccade models convert --help`"
        raise ModelFileError(f"{folder} must hold {SINGLE} or {SHARDED}, but does not; {hint}")
    listed = read_object(index).get("weight_map")
    if not isinstance(listed, dict) or not listed:
        raise ModelFileError(f"{index}: weight_map must say in which file each tensor is, but does not; get it again")
    names = set(map(str, listed.values()))
    bad = sorted(name for name in names if not SHARD.fullmatch(name))
    if bad:
        raise ModelFileError(
            f"{index}: a file must be a plain name ending on .safetensors, but is {bad[0][:80]!r}; get the model again"
        )
    if len(names) > MOST_SHARDS:
        raise ModelFileError(f"{index} must name at most {MOST_SHARDS:,} files, but names {len(names):,}; get it again")
    absent = sorted(name for name in names if not (folder / name).is_file())
    if absent:
        raise ModelFileError(f"{index} names {absent[0]}, which is missing; get the model again")
    return [folder / name for name in sorted(names)]


def _shape(path: Path, name: str, entry: Any) -> tuple[int, ...]:
    """The shape that a header says."""
    found = entry.get("shape") if isinstance(entry, dict) else None
    whole = isinstance(found, list) and all(isinstance(size, int) and 0 <= size < 1 << 40 for size in found)
    if not whole or len(found or ()) > 8:
        raise ModelFileError(
            f"{path}: the shape of {name[:80]!r} must be a few whole numbers, but is {str(found)[:80]}"
        )
    assert isinstance(found, list)
    return tuple(found)


def _check_types(path: Path, schema: type[Any], values: dict[str, Any]) -> None:
    """Refuse a text or a truth where a number belongs, which a friendly reader would take for one."""
    kinds = {field.name: str(field.type) for field in fields(schema)}
    for name, value in values.items():
        if isinstance(value, str | bool) and not any(word in kinds[name] for word in (type(value).__name__, "Literal")):
            raise ModelFileError(
                f"{path}: {name} must be {kinds[name].replace(' | ', ' or ')}, but is {str(value)[:80]!r}; "
                "get the model again"
            )


def _header(path: Path) -> dict[str, Any]:
    """What is in a file, after the library has held every offset against it: no memory is taken for mere claims."""
    try:
        found = read_header(path)
        with safe_open(path, "pt"):
            return found
    except ModelFileError as error:
        raise ModelFileError(f"{error}; get the model again") from error
    except (OSError, SafetensorError, ValueError, RuntimeError) as error:
        raise ModelFileError(
            f"{path} must be a whole safetensors file, but is not ({short(error)}); get it again"
        ) from error


def check_sizes(path: Path, values: dict[str, Any]) -> None:
    """Refuse sizes that no model has before anything is made of them."""
    for name, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool):
            continue
        most = LARGEST.get(name, DEEPEST if "layers" in name or name == "n_layer" else WIDEST)
        if not -1 <= value <= most:
            raise ModelFileError(f"{path}: {name} must be from 0 to {most:,}, but is {value:,}; get the model again")


def _nested(values: dict[str, Any]) -> dict[str, Any]:
    """Groups of settings with the keys we know; a group that is not there has its defaults."""
    found = dict(values)
    rotation = found.pop("rope_parameters", None)
    if isinstance(rotation, dict):
        known = {field.name for field in fields(llama.Rotation)}
        found["rope_parameters"] = {key: value for key, value in rotation.items() if key in known}
    return found


def _compare(said: Path, part: Part, outline: Get, wanted: Tensor) -> None:
    """Refuse tensors that do not make up the one that is wanted."""
    try:
        found = part.bring(outline)
    except (RuntimeError, IndexError) as error:
        raise ModelFileError(
            f"{said}: '{part.theirs[0]}' must be of another shape for this model ({short(error)}); get the model again"
        ) from error
    for name, rows in zip(part.theirs, part.rows, strict=False):
        if outline(name).shape[0] != rows:
            raise ModelFileError(
                f"{said}: {name!r} must have {rows:,} rows, but has {outline(name).shape[0]:,}; get the model again"
            )
    if found.shape != wanted.shape:
        raise ModelFileError(
            f"{said}: '{part.ours}' must have the shape {tuple(wanted.shape)}, but has {tuple(found.shape)}; "
            "get the model again"
        )
