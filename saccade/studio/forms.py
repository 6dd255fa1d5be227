"""Forms: inputs and options as pages send them, checked before a model sees them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

from saccade.errors import UsageError
from saccade.model import Model

TEXT_BYTES = 1 << 20  # of all texts of a request
FILE_BYTES = 8 << 20  # of an uploaded file, in its base64 form a third more


@dataclass(frozen=True)
class Form:
    """A request for a prediction."""

    model: str
    inputs: Mapping[str, Any]
    options: Mapping[str, Any]
    attention: str
    """the map that is shown while generating"""


async def read_json(request: Request) -> dict[str, Any]:
    """Return the JSON object of a request."""
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the request must be JSON, but is not ({error})") from error
    if not isinstance(body, dict):
        raise UsageError("the request must be a JSON object")
    return body


async def read_form(request: Request) -> Form:
    """Return model, inputs and options of a request."""
    body = await read_json(request)
    model, inputs, options = body.get("model"), body.get("inputs", {}), body.get("options", {})
    if not isinstance(model, str) or not isinstance(inputs, dict) or not isinstance(options, dict):
        raise UsageError("a request must have a model, inputs and options")
    texts = sum(len(value) for value in inputs.values() if isinstance(value, str) and not value.startswith("data:"))
    if texts > TEXT_BYTES:
        raise HTTPException(413, f"Send at most {TEXT_BYTES:,} characters of text.")
    name = body.get("map", "")
    return Form(model, inputs, options, name if isinstance(name, str) else "")


def checked_inputs(model: Model, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs without empty optional ones; a file must be uploaded: a page never names a path."""
    kinds = {field.name: field.kind for field in model.inputs}
    optional = {field.name for field in model.inputs if field.optional}
    for name, value in inputs.items():
        kind = kinds.get(name, "text")
        uploaded = isinstance(value, str) and value.startswith("data:")
        if kind in ("image", "audio") and not uploaded:
            raise UsageError(f"{name} must be an uploaded file, but is none; choose a file")
        if kind == "graph" and not (uploaded or isinstance(value, dict) or str(value).lstrip().startswith("{")):
            raise UsageError(f"{name} must be a JSON object with nodes and edges")
        if uploaded and len(value) > FILE_BYTES * 4 / 3 + 100:
            raise HTTPException(413, f"Send a file of at most {FILE_BYTES >> 20} MB.")
    return {name: value for name, value in inputs.items() if value != "" or name not in optional}


def parsed_options(model: Model, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options as values of their types; an empty field is the default."""
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
    return model.parse_options([f"{name}={text}" for name, text in texts.items() if text != ""])
