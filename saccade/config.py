"""Config: frozen dataclasses <-> JSON <-> dotted overrides (`model.dim=128`), with the help text under each field."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import textwrap
import threading
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from saccade.errors import UsageError, suggest

C = TypeVar("C")
_parsing = threading.Lock()
_parsed: dict[type[Any], dict[str, str]] = {}
PLAIN_RULES = {  # parts of pydantic's messages, and what they mean
    "valid integer": "whole number",
    "Unable to parse input string as an integer": "a whole number",
    "a valid boolean": "true or false",
    "valid ": "",
}
LARGEST = 1 << 62  # whole numbers beyond it do not fit 64 bits


@dataclasses.dataclass(frozen=True)
class Setting:
    """One field as it is documented: dotted name, type, default and help."""

    name: str
    type: str
    default: Any
    help: str


def to_json(config: Any) -> dict[str, Any]:
    """Return a config as plain JSON values."""
    values: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config)))
    return values


def from_json(cls: type[C], values: Mapping[str, Any], prefix: str = "") -> C:
    """Build and check a config; an unknown key or a wrong value raises with its dotted name, value and rule."""
    types = _types(cls)
    if not isinstance(values, Mapping):
        raise UsageError(f"{prefix.rstrip('.') or 'a config'} must be a group of settings, but is {values!r}")
    for key in values:
        if key not in types:
            raise UsageError(f"no setting '{prefix}{key}'{suggest(prefix + key, [prefix + name for name in types])}")
    fields: dict[str, Any] = {}
    for key, value in values.items():
        kind = types[key]
        if _is_group(kind):
            fields[key] = value if isinstance(value, kind) else from_json(kind, value, f"{prefix}{key}.")
        else:
            fields[key] = _check(kind, value, prefix + key)
    try:
        return cls(**fields)
    except ValueError as error:  # a rule between fields, raised by __post_init__
        raise UsageError(f"{prefix}{error}") from error


def override(config: C, overrides: Mapping[str, Any] | Iterable[str | Mapping[str, Any]], prefix: str = "") -> C:
    """Apply overrides to a config: `model.dim=128` texts, nested mappings {"model": {"dim": 128}}, or several of both.

    The last one wins. Texts start with `prefix`, the keys of mappings do not; error messages name it. Rules between
    fields are checked at the end, so that the order of the overrides does not matter.
    """
    values = to_values(config)
    for entry in [overrides] if isinstance(overrides, Mapping) else overrides:
        if isinstance(entry, Mapping):
            _put_all(config, values, entry, prefix)
            continue
        name, equals, text = entry.partition("=")
        if not equals or not name:
            raise UsageError(f"a setting must be written name=value, but is '{entry}'; for example model.dim=128")
        _put(config, values, name.removeprefix(prefix).split("."), _Text(text), name)
    return from_json(type(config), values, prefix)


def to_values(config: Any) -> dict[str, Any]:
    """Return the fields of a config as nested dicts."""
    return dataclasses.asdict(config)


def settings(cls: type[Any], prefix: str = "", default: Any = None) -> list[Setting]:
    """Return every field of a config, nested ones dotted, with the help text under it."""
    helps, entries = _helps(cls), []
    default = cls() if default is None else default
    for name, kind in _types(cls).items():
        value = getattr(default, name)
        if _is_group(kind):
            entries += settings(kind, f"{prefix}{name}.", value)
        else:
            entries.append(Setting(prefix + name, _show_type(kind), value, helps.get(name, "")))
    return entries


def _show_type(kind: Any) -> str:
    """Return a type as it is documented: the values of a Literal, the name of a class, null for None."""
    if get_origin(kind) is tuple:
        return f"list of {_show_type(get_args(kind)[0])}"
    if arguments := get_args(kind):
        return " | ".join(_show_type(part) if isinstance(part, type) else str(part) for part in arguments)
    return "null" if kind is type(None) else str(kind.__name__)


class _Text(str):
    """A value from the command line: text that may stand for a JSON value."""


def _put_all(config: Any, values: dict[str, Any], overrides: Mapping[str, Any], prefix: str) -> None:
    """Set every field of a nested mapping, whose keys may be dotted, in the values of a config."""
    for key, value in overrides.items():
        if not isinstance(key, str) or not key:
            raise UsageError(f"the name of a setting must be a text, but is {key!r}; for example 'model.dim'")
        _put(config, values, key.split("."), value, prefix + key)


def _put(config: Any, values: dict[str, Any], path: list[str], value: Any, name: str) -> None:
    """Set one field or group of fields, given by its dotted path, in the values of a config."""
    types = _types(type(config))
    if path[0] not in types:
        before = name[: len(name) - len(".".join(path))]
        names = [setting.name for setting in settings(type(config), before, config)]
        same_field = [other for other in names if other.endswith(f".{path[-1]}")]
        if len(same_field) > 1:
            raise UsageError(f"no setting '{name}'; did you mean one of {', '.join(same_field)}?")
        raise UsageError(f"no setting '{name}'{suggest(name, names)}")
    kind, current = types[path[0]], getattr(config, path[0])
    if _is_group(kind):
        if len(path) > 1:
            _put(current, values[path[0]], path[1:], value, name)
        elif isinstance(value, Mapping):
            _put_all(current, values[path[0]], value, f"{name}.")
        elif isinstance(value, kind):
            values[path[0]] = to_values(value)
        else:
            raise UsageError(f"'{name}' is a group of settings; name one of them, as in {name}.{_first(current)}=...")
    elif len(path) > 1 or isinstance(value, Mapping):
        raise UsageError(f"no setting '{name}': '{path[0]}' is not a group of settings")
    else:
        values[path[0]] = _check(kind, _read(kind, value) if isinstance(value, _Text) else value, name)


def _is_group(kind: Any) -> bool:
    """Whether a field holds a config of its own."""
    return dataclasses.is_dataclass(kind) and isinstance(kind, type)


def _read(kind: Any, text: str) -> Any:
    """Return text from the command line as the JSON value it stands for, where the field is not itself text."""
    if kind is str:
        return str(text)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # no JSON, or a number of thousands of digits
        return str(text)


def _check(kind: Any, value: Any, name: str) -> Any:
    """Return the value, checked against the type of its field by pydantic."""
    import pydantic

    if isinstance(value, int) and abs(value) > LARGEST:
        raise UsageError(f"{name} must be at most {LARGEST:,}, but is {value}")
    try:
        return _adapter(kind).validate_python(value)
    except pydantic.ValidationError as error:
        rule = error.errors()[0]["msg"].removeprefix("Input should be ")
        for addition in (", unable to", ", got", ", exceeded"):
            rule = rule.split(addition)[0]
        for phrase, plain in PLAIN_RULES.items():
            rule = rule.replace(phrase, plain)
        raise UsageError(f"{name} must be {rule}, but is {value!r:.200}") from error


@cache
def _adapter(kind: Any) -> Any:
    import pydantic

    return pydantic.TypeAdapter(kind, config=pydantic.ConfigDict(strict=False, allow_inf_nan=False))


def _types(cls: type[Any]) -> dict[str, Any]:
    """Return field names and their resolved types, in order."""
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _helps(cls: type[Any]) -> Mapping[str, str]:
    """Return the string under each field; the source is parsed once, and by one thread: `ast` fails with several."""
    with _parsing:
        if cls not in _parsed:
            _parsed[cls] = _parse_helps(cls)
        return _parsed[cls]


def _parse_helps(cls: type[Any]) -> dict[str, str]:
    """Return the string under each field, read from the source; a subclass adds to its parents."""
    helps: dict[str, str] = {}
    for parent in reversed(cls.__mro__):
        if not dataclasses.is_dataclass(parent):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(parent))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, text in zip(body.body, body.body[1:], strict=False):
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            if (
                isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            ):
                helps[field.target.id] = " ".join(text.value.value.split())
    return helps


def _first(config: Any) -> str:
    return dataclasses.fields(config)[0].name
