"""Config: frozen dataclasses <-> JSON <-> dotted words (`model.dim=128`), with the help text under each field."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import textwrap
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, TypeVar, get_type_hints

from saccade.errors import UsageError, suggest

C = TypeVar("C")
LARGEST = 1 << 62  # what a whole number may be: more does not fit the machine


@dataclasses.dataclass(frozen=True)
class Setting:
    """One field as a person sees it: dotted name, type, default and help."""

    name: str
    type: str
    default: Any
    help: str


def to_json(config: Any) -> dict[str, Any]:
    """A config as plain JSON values."""
    return json.loads(json.dumps(dataclasses.asdict(config)))  # type: ignore[no-any-return]


def from_json(cls: type[C], values: Mapping[str, Any], where: str = "") -> C:
    """Build and check a config; an unknown key or a wrong value raises with its dotted name, value and rule."""
    known = _types(cls)
    if not isinstance(values, Mapping):
        raise UsageError(f"{where.rstrip('.') or 'a config'} must be a group of settings, but is {values!r}")
    for key in values:
        if key not in known:
            raise UsageError(f"no setting '{where}{key}'{suggest(where + key, [where + name for name in known])}")
    parts: dict[str, Any] = {}
    for key, value in values.items():
        kind = known[key]
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            parts[key] = value if isinstance(value, kind) else from_json(kind, value, f"{where}{key}.")
        else:
            parts[key] = _check(kind, value, where + key)
    try:
        return cls(**parts)
    except ValueError as error:  # a rule between fields, raised by __post_init__
        raise UsageError(f"{where}{error}" if where else str(error)) from error


def override(config: C, words: Iterable[str], where: str = "") -> C:
    """Apply `model.dim=128` words, which all begin with `where`, to a config; the last one wins.

    Rules between fields are checked at the end, so that the order of the words does not matter.
    """
    values = dataclasses.asdict(config)  # type: ignore[call-overload]
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise UsageError(f"a setting must be written name=value, but is '{word}'; for example model.dim=128")
        _put(config, values, name.removeprefix(where).split("."), text, name)
    return from_json(type(config), values, where)


def settings(cls: type[Any], prefix: str = "", default: Any = None) -> list[Setting]:
    """Every field of a config, nested ones dotted, with the string that stands under it."""
    helps, found = _helps(cls), []
    default = cls() if default is None else default
    for name, kind in _types(cls).items():
        value = getattr(default, name)
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            found += settings(kind, f"{prefix}{name}.", value)
        else:
            shown = " | ".join(map(str, kind.__args__)) if hasattr(kind, "__args__") else kind.__name__
            found.append(Setting(prefix + name, shown, value, helps.get(name, "")))
    return found


def _put(config: Any, values: dict[str, Any], path: list[str], text: str, whole: str) -> None:
    """Set one field, found by its dotted path, from text in the values of a config."""
    known = _types(type(config))
    if path[0] not in known:
        before = whole[: len(whole) - len(".".join(path))]
        names = [setting.name for setting in settings(type(config), before, config)]
        raise UsageError(f"no setting '{whole}'{suggest(whole, names)}")
    here = getattr(config, path[0])
    if dataclasses.is_dataclass(here):
        if len(path) == 1:
            raise UsageError(f"'{whole}' is a group of settings; name one of them, as in {whole}.{_first(here)}=...")
        return _put(here, values[path[0]], path[1:], text, whole)
    if len(path) > 1:
        raise UsageError(f"no setting '{whole}': '{path[0]}' has no parts")
    values[path[0]] = _check(known[path[0]], _read(known[path[0]], text), whole)
    return None


def _read(kind: Any, text: str) -> Any:
    """Text from the command line as the JSON value it stands for, where the field is not itself text."""
    if kind is str:
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _check(kind: Any, value: Any, name: str) -> Any:
    """The value, checked against the field's type by pydantic."""
    import pydantic

    if isinstance(value, int) and abs(value) > LARGEST:
        raise UsageError(f"{name} must be at most {LARGEST:,}, but is {value}")
    try:
        return _adapter(kind).validate_python(value)
    except pydantic.ValidationError as error:
        rule = error.errors()[0]["msg"].removeprefix("Input should be ").split(", unable to")[0].split(", got")[0]
        for theirs, ours in (("valid integer", "whole number"), ("a valid boolean", "true or false"), ("valid ", "")):
            rule = rule.replace(theirs, ours)
        raise UsageError(f"{name} must be {rule}, but is {value!r}") from error


@cache
def _adapter(kind: Any) -> Any:
    import pydantic

    return pydantic.TypeAdapter(kind, config=pydantic.ConfigDict(strict=False, allow_inf_nan=False))


def _types(cls: type[Any]) -> dict[str, Any]:
    """Field names and their resolved types, in order."""
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _helps(cls: type[Any]) -> dict[str, str]:
    """The string under each field, read from the source; a subclass adds to its parents."""
    found: dict[str, str] = {}
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
                found[field.target.id] = " ".join(text.value.value.split())
    return found


def _first(config: Any) -> str:
    return dataclasses.fields(config)[0].name
