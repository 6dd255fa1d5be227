"""Forms: inputs and options as pages send them, checked and bounded before a model sees them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

from saccade.errors import UsageError
from saccade.model import Model
from saccade.studio.sessions import is_upload

TEXT_BYTES = 1 << 20  # of all texts of a request
FILE_BYTES = 8 << 20  # of an uploaded file, in its base64 form a third more
TICKET = 64  # characters of the name of a request
TOKENS = 1 << 14  # of a text, for a model that reads more or any number
MOST = {"max_new_tokens": 1 << 12, "beam": 64, "samples": 100}  # of options that multiply the work


@dataclass(frozen=True)
class Form:
    """A request for a prediction."""

    model: str
    inputs: Mapping[str, Any]
    options: Mapping[str, Any]
    attention: str
    """the map that is shown while generating"""
    ticket: str
    """by which the page asks for the progress of this request; empty: it does not"""
    generate: bool
    """whether a model that continues a prompt does so; otherwise it reads the prompt"""
    checkpoint: str = ""
    """of a run: a step, best (also empty), last or mean"""


async def read_json(request: Request) -> dict[str, Any]:
    """Return the JSON object of a request."""
    try:
        body = json.loads(await request.body(), parse_constant=_not_json)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the request must be JSON, but is not ({error})") from error
    if not isinstance(body, dict):
        raise UsageError("the request must be a JSON object")
    return body


def _not_json(name: str) -> float:
    raise ValueError(f"JSON has no {name}")


async def read_form(request: Request) -> Form:
    """Return model, inputs and options of a request."""
    body = await read_json(request)
    model, inputs, options = body.get("model"), body.get("inputs", {}), body.get("options", {})
    if not isinstance(model, str) or not isinstance(inputs, dict) or not isinstance(options, dict):
        raise UsageError("a request must have a model, inputs and options")
    check_size(*(value for value in inputs.values() if not is_upload(value)), *options.values())
    name, generate, ticket = body.get("map", ""), body.get("generate", False), body.get("ticket", "")
    if not isinstance(generate, bool):
        raise UsageError("generate must be true or false")
    checkpoint = body.get("checkpoint", "")
    if not isinstance(checkpoint, str):
        raise UsageError("checkpoint must be a text")
    if not isinstance(ticket, str) or len(ticket) > TICKET:
        raise UsageError(f"ticket must be a text of at most {TICKET} characters")
    return Form(model, inputs, options, name if isinstance(name, str) else "", ticket, generate, checkpoint)


def check_size(*values: object) -> None:
    size = sum(len(value) for value in values if isinstance(value, str))
    if size > TEXT_BYTES:
        raise HTTPException(413, f"Send at most {TEXT_BYTES:,} characters of text, not {size:,}.")


def checked_form(model: Model, form: Form) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return inputs and options of a form, if they are such as the model can compute in a bounded time."""
    inputs, options = checked_inputs(model, form.inputs), parsed_options(model, form.options)
    for length in model.input_lengths(inputs, **options):
        limit = TOKENS if length.limit is None else min(length.limit, TOKENS)
        if length.tokens > limit:
            raise UsageError(f"{length.name} must have at most {limit:,} tokens, but has {length.tokens:,}; shorten it")
    return inputs, options


def checked_inputs(model: Model, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs without empty optional ones; a file must be uploaded: a page never names a path."""
    kinds = {field.name: field.kind for field in model.inputs}
    optional = {field.name for field in model.inputs if field.optional}
    for name, value in inputs.items():
        kind = kinds.get(name, "text")
        if kind in ("image", "audio") and not is_upload(value):
            raise UsageError(f"{name} must be an uploaded file, but is none; choose a file")
        literal = isinstance(value, dict) or str(value).lstrip().startswith("{")
        if kind in ("graph", "world") and not (literal or is_upload(value)):
            rule = "a JSON object with nodes and edges" if kind == "graph" else "a JSON object"
            raise UsageError(f"{name} must be {rule}")
        if kind == "text":  # also one that looks like an uploaded file
            check_size(value)
        elif is_upload(value) and len(value) > FILE_BYTES * 4 / 3 + 100:
            raise HTTPException(413, f"Send a file of at most {FILE_BYTES >> 20} MB.")
    return {name: value for name, value in inputs.items() if value != "" or name not in optional}


def parsed_options(model: Model, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options as values of their types; an empty field is the default."""
    try:
        texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
    except RecursionError as error:
        raise UsageError("an option must be a number or a text, but one is a list of lists") from error
    parsed = model.parse_options([f"{name}={text}" for name, text in texts.items() if text not in ("", "null")])
    for name, most in MOST.items():
        if parsed.get(name, 0) > most:
            message = f"{name} must be at most {most:,} in the studio, but is {parsed[name]:,}"
            raise UsageError(f"{message}; for more use `saccade predict`")
    return parsed
