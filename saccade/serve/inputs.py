"""Inputs over the network: files come as uploads, data URLs or base64; a text never names a file of the server.

Fields also read paths, for the command line. Here every text for a field that reads files is decoded first, so that no
field is ever given a text that it could open.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from saccade.core.fields import DATA_URL, Audio, Field, Graph, Image, Text, Vector, World
from saccade.errors import UsageError, suggest
from saccade.serve.bodies import parse_json
from saccade.serve.errors import ApiError

PARAM = "inputs"


def safe_inputs(fields: Sequence[Field], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of one example, decoded; optional inputs that are null or empty are left out."""
    by_name = {field.name: field for field in fields}
    unknown = next((name for name in values if name not in by_name), None)
    if unknown is not None:
        message = f"no input '{unknown[:80]}'{suggest(unknown[:80], list(by_name))}"
        raise ApiError(400, message, param=f"{PARAM}.{unknown[:80]}", code="unknown_parameter")
    missing = next((field.name for field in fields if not field.optional and values.get(field.name) is None), None)
    if missing is not None:
        rule = f"{missing} must be given, but is not; this model takes {', '.join(by_name)}"
        raise ApiError(400, rule, param=f"{PARAM}.{missing}", code="missing_parameter")
    given = {name: value for name, value in values.items() if not _is_absent(by_name[name], value)}
    return {name: safe_value(by_name[name], value) for name, value in given.items()}


def safe_value(field: Field, value: Any) -> Any:
    """Return the value of one field, read; texts of fields for files are decoded and never opened."""
    try:
        return field.read(_decoded(field, value))
    except UsageError as error:
        raise ApiError(400, str(error), param=f"{PARAM}.{field.name}", code="invalid_value") from error


def _is_absent(field: Field, value: Any) -> bool:
    return field.optional and (value is None or value == "")


def _decoded(field: Field, value: Any) -> Any:
    """Return a value that is not a path, whatever the field."""
    if isinstance(field, Text):
        return value
    if isinstance(field, Image | Audio):
        if isinstance(value, str):
            return _file(field, value)
        if isinstance(value, bytes) or (isinstance(field, Audio) and _is_sound(value)):
            return value
        raise _refused(field, value, f"{_FILE} or a list [samples, rate]" if isinstance(field, Audio) else _FILE)
    if isinstance(field, Graph | World):
        if isinstance(value, str) and not value.lstrip().startswith("{"):
            value = _file(field, value)
        if isinstance(value, str | bytes):
            value = parse_json(value if isinstance(value, bytes) else value.encode())
        if not isinstance(value, dict):
            raise _refused(field, value, "a JSON object")
        return value
    if isinstance(field, Vector):
        value = parse_json(value.encode()) if isinstance(value, str) else value
        if not isinstance(value, list):
            raise _refused(field, value, "a list of numbers")
        return value
    if isinstance(value, str | bytes):  # a field that this server does not know, and that may read paths
        raise _refused(field, value, "a number, a list or an object")
    return value


def _is_sound(value: Any) -> bool:
    """Whether a value is a list of samples with their rate."""
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], list) and type(value[1]) is int


_FILE = "an uploaded file, a data URL or base64"


def _file(field: Field, text: str) -> bytes:
    """Return the bytes of a data URL or of base64."""
    url = DATA_URL.match(text)
    if url is not None:
        content = field.read(text) if isinstance(field, Image | Audio) else Image(field.name).read(text)
        assert isinstance(content, bytes)
        return content
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise _refused(field, text, _FILE) from None


def _refused(field: Field, value: Any, rule: str) -> UsageError:
    shown = (
        repr(value)[:80] if isinstance(value, str | int | float | bool | None) else f"of type {type(value).__name__}"
    )
    return UsageError(f"{field.name} must be {rule}, but is {shown}; the server opens no files or addresses")
