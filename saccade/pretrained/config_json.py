"""config.json: the family of a folder and its typed fields; unsupported values are refused by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

from saccade.config import from_json
from saccade.errors import ModelFileError, UsageError, suggest
from saccade.pretrained.families import FAMILIES, Family
from saccade.pretrained.families.timm import FAMILY as TIMM
from saccade.pretrained.families.timm import is_timm
from saccade.pretrained.strict_json import one_line, read_object

# Largest accepted values, far above those of any published model: memory is allocated only after shapes were compared.
MAX_SIZES = {"vocab_size": 2_000_000, "hidden_size": 1 << 16, "dim": 1 << 16, "n_embd": 1 << 16}
MAX_LAYERS = 500
MAX_SIZE = 1 << 20


def read_config(folder: Path) -> tuple[Family, Any, dict[str, Any]]:
    """Return the family of a folder, the typed fields of its config.json, and all values of it."""
    path = folder / "config.json"
    values = read_object(path)
    name = values.get("model_type")
    if not is_timm(values) and (not isinstance(name, str) or name not in FAMILIES):
        hint = suggest(str(name)[:80], list(FAMILIES))
        raise ModelFileError(
            f"{path}: model_type must be one of {', '.join(FAMILIES)}, but is {str(name)[:80]!r}{hint}; "
            "choose a model of one of these families"
        )
    if values.get("auto_map"):
        raise ModelFileError(f"{path}: auto_map refers to custom code, which is never run; choose a model without it")
    family = TIMM if is_timm(values) else FAMILIES[str(name)]
    selected = select_fields(family.fields, values)
    if "vocab_size" in _names(family.fields) and "vocab_size" not in selected:
        raise ModelFileError(f"{path}: vocab_size is missing; download the model again")
    check_sizes(path, selected)
    if selected.get("num_hidden_layers") == 0:
        raise ModelFileError(f"{path}: num_hidden_layers must be at least 1, but is 0; choose a model with layers")
    _check_types(path, family.fields, selected)
    try:
        fields = from_json(family.fields, selected)
    except (UsageError, TypeError) as error:
        raise ModelFileError(f"{path}: {one_line(error)}; this variant of {family.name} is not supported") from error
    check_sizes(path, vars(fields))
    return family, fields, values


def select_fields(fields: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that a dataclass has fields for, nested dataclasses included.

    Null for a nested object means its defaults.
    """
    types = _nested_types(fields)
    selected = {name: value for name, value in values.items() if name in _names(fields)}
    for name in list(selected):
        if name not in types:
            continue
        if selected[name] is None:
            del selected[name]
        elif isinstance(selected[name], dict):
            selected[name] = select_fields(types[name], selected[name])
    return selected


def _nested_types(fields: type[Any]) -> dict[str, type[Any]]:
    """Return the dataclasses of the fields that are one, or one or null."""
    kinds = {name: (kind, *get_args(kind)) for name, kind in get_type_hints(fields).items()}
    nested = {name: next(filter(dataclasses.is_dataclass, parts), None) for name, parts in kinds.items()}
    return {name: kind for name, kind in nested.items() if isinstance(kind, type)}


def check_sizes(path: Path, values: Mapping[str, Any]) -> None:
    """Refuse sizes that no model has before anything is built from them."""
    for name, value in values.items():
        if isinstance(value, dict) or dataclasses.is_dataclass(value):
            check_sizes(path, value if isinstance(value, dict) else vars(value))
        if not isinstance(value, int) or isinstance(value, bool):
            continue
        limit = MAX_SIZES.get(name, MAX_LAYERS if "layers" in name or name == "n_layer" else MAX_SIZE)
        if not -1 <= value <= limit:
            raise ModelFileError(
                f"{path}: {name} must be from 0 to {limit:,}, but is {value:,}; such a size is not supported"
            )


def _names(fields: type[Any]) -> set[str]:
    return {field.name for field in dataclasses.fields(fields)}


def _check_types(path: Path, fields: type[Any], values: Mapping[str, Any]) -> None:
    """Refuse a string or a boolean where a number belongs, which lenient parsing would convert."""
    types = {field.name: str(field.type) for field in dataclasses.fields(fields)}
    nested = _nested_types(fields)
    for name, value in values.items():
        if name in nested and isinstance(value, dict):
            _check_types(path, nested[name], value)
        if isinstance(value, str | bool) and not any(kind in types[name] for kind in (type(value).__name__, "Literal")):
            raise ModelFileError(
                f"{path}: {name} must be {types[name].replace(' | ', ' or ')}, but is {str(value)[:80]!r}; "
                "such a value is not supported"
            )
