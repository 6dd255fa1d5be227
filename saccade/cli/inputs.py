"""Inputs of a model from arguments and files, matched with its fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from saccade.cli.group import read_lines
from saccade.core import Field, bind, bind_line
from saccade.errors import DataError, UsageError


def parse_arguments(fields: Sequence[Field], arguments: Sequence[str]) -> dict[str, Any]:
    """Return one example from the arguments of a command.

    With one field an argument is always its value, whatever it contains. With several, `name=value` with the exact
    name of a field sets that field, and the other arguments fill the remaining fields in order.
    """
    if len(fields) == 1:
        return bind(fields, arguments)
    names = {field.name for field in fields}
    named: dict[str, str] = {}
    positional = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals or name not in names:
            positional.append(argument)
        elif name in named:
            raise UsageError(f"{name} was given twice; this model takes {', '.join(field.name for field in fields)}")
        else:
            named[name] = value
    free = [field.name for field in fields if field.name not in named]
    if len(positional) > len(free):
        bind(fields, [*positional, *named])  # raises, with the number of inputs
    return bind(fields, (), {**named, **dict(zip(free, positional, strict=False))})


def read_examples(fields: Sequence[Field], file: Any) -> list[dict[str, Any]]:
    """Return one example per line of a file; several fields are separated by tabs, or a line is a JSON object."""
    examples = [_example(fields, line, position) for position, line in read_lines(file)]
    if not examples:
        raise DataError(f"{getattr(file, 'name', '<stdin>')} is empty, expected one example per line")
    return examples


def _example(fields: Sequence[Field], line: str, position: str) -> dict[str, Any]:
    try:
        return bind_line(fields, line)
    except UsageError as error:
        raise DataError(f"{position}: {error}") from error
