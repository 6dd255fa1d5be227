"""Task endpoint: /v1/tasks/NAME, the inputs and options of any task as JSON or as a form with uploads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from saccade.core import Prediction
from saccade.errors import suggest
from saccade.look.serialize import prediction_to_json
from saccade.model import Model, ModelPrediction
from saccade.serve import limits, models, requests
from saccade.serve.bodies import FORM, Form, media_type, parse_form, parse_json, parse_object
from saccade.serve.errors import ApiError, JsonResponse, large_response
from saccade.serve.inputs import safe_inputs
from saccade.serve.models import ServedModel
from saccade.serve.requests import TaskBody
from saccade.serve.state import State
from saccade.serve.streaming import until_disconnect


@dataclass(frozen=True)
class Call:
    """Examples with their options, checked."""

    examples: list[dict[str, Any]]
    options: dict[str, Any]
    attention: bool
    tokens: int
    """of all texts among the inputs"""


async def describe(state: State, request: Request) -> Response:
    """Return the inputs and options of a model."""
    return JsonResponse(description(models.find(state.models, request.path_params["name"])))


def description(served: ServedModel) -> dict[str, Any]:
    """Return the declaration of a task."""
    model = served.model
    return {
        "model": served.name,
        "task": served.task,
        "summary": model.task.summary,
        "inputs": [field.to_json() for field in model.inputs],
        "options": [vars(setting) for setting in model.options if setting.name != "attention"],
        "attention": has_attention(model),
    }


def has_attention(model: Model) -> bool:
    return any(setting.name == "attention" for setting in model.options)


async def predict(state: State, request: Request) -> Response:
    """Return the predictions for one example or several."""
    served = models.find(state.models, request.path_params["name"])
    async with state.bodies.read(request, limits.TASK_BODY) as content:
        with served.worker.place():  # one that is still being sent takes no place
            if media_type(request) == FORM:
                body = _form_body(served.model, await parse_form(request, content))
            else:
                body = requests.check(TaskBody, await parse_object(request, content))
            call = await run_in_threadpool(checked, served.model, body)
            weights = limits.WEIGHTS // len(call.examples) if call.attention else None
            key = (json.dumps(call.options, sort_keys=True), weights)
            work = partial(_predictions, served.model, options=call.options, weights=weights)
            predictions = await until_disconnect(request, served.worker.run(work, call.examples, key))
    state.metrics.count("saccade_prompt_tokens_total", call.tokens, model=served.name)
    return await large_response(lambda: {"model": served.name, "task": served.task, "predictions": predictions})


def _predictions(
    model: Model, examples: Sequence[Mapping[str, Any]], *, options: Mapping[str, Any], weights: int | None
) -> Iterator[dict[str, Any]]:
    """Yield predictions as JSON; the inputs, which the client has, are not sent back.

    weights: maximum number of attention weights of one prediction, its share of the response; None: without attention.
    """
    for prediction in model.predict(examples, **options):
        record = prediction.to_json() if weights is None else _with_maps(prediction, weights)
        yield {name: value for name, value in record.items() if name != "inputs"}


def _with_maps(prediction: ModelPrediction, limit: int) -> dict[str, Any]:
    count = _weights(prediction)
    if count > limit:
        rule = f"attention must have at most {limits.WEIGHTS:,} weights in a response"
        share = f"{rule}, {limit:,} for each of its predictions, but one has {count:,}"
        raise ApiError(400, f"{share}; shorten the inputs or send fewer", param="attention", code="invalid_value")
    return prediction_to_json(prediction)


def _weights(prediction: Prediction) -> int:
    count = 0
    for attention in prediction.attention.values():
        heads, queries, keys = attention.shape
        count += heads * queries * keys
    return count + sum(map(_weights, prediction.alternatives))


def checked(model: Model, body: TaskBody) -> Call:
    """Return inputs and options such as the model can compute in a bounded time."""
    options = _options(model, body)
    examples = [safe_inputs(model.inputs, example) for example in _list(body.inputs)]
    total = 0
    for example in examples:
        for length in model.input_lengths(example, **options):
            limit = limits.TOKENS if length.limit is None else min(length.limit, limits.TOKENS)
            total += length.tokens
            if length.tokens > limit:
                message = f"{length.name} must have at most {limit:,} tokens, but has {length.tokens:,}; shorten it"
                raise ApiError(400, message, param=f"inputs.{length.name}", code="context_length_exceeded")
    return Call(examples, options, body.attention, total)


def _list(inputs: dict[str, Any] | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return inputs if isinstance(inputs, list) else [inputs]


def _options(model: Model, body: TaskBody) -> dict[str, Any]:
    """Return the options as values of their types."""
    names = [setting.name for setting in model.options if setting.name != "attention"]
    for name in body.options:
        if name not in names:
            message = f"no option '{name[:80]}'{suggest(name[:80], names)}"
            raise ApiError(400, message, param=f"options.{name[:80]}", code="unknown_parameter")
    if body.attention and not has_attention(model):
        message = "attention must be false for a model that records none, but is true"
        raise ApiError(400, message, param="attention", code="invalid_value")
    given = [f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in body.options.items()]
    options = model.parse_options(given)
    for name, most in limits.OPTIONS.items():
        value = options.get(name)
        if value is not None and value > most:
            message = f"{name} must be at most {most:,} on this server, but is {value:,}"
            raise ApiError(400, message, param=f"options.{name}", code="invalid_value")
    return {**options, "attention": True} if body.attention else options


def _form_body(model: Model, form: Form) -> TaskBody:
    """Return a form as a request: a part for each input, several of one name for several examples."""
    parts = dict(form.parts)
    options, attention = _single(parts, "options", "{}"), _single(parts, "attention", "false")
    if attention not in ("true", "false"):
        message = f"attention must be true or false, but is {attention[:80]!r}"
        raise ApiError(400, message, param="attention", code="invalid_value")
    count = max(map(len, parts.values()), default=1)
    for name, values in parts.items():
        if len(values) not in (1, count):
            rule = f"{name[:80]} must be given once or {count} times, once for each example, but is {len(values)} times"
            raise ApiError(400, rule, param=f"inputs.{name[:80]}", code="invalid_value")
    files = {field.name for field in model.inputs if field.kind != "text"}
    examples = [
        {name: _text(name, values[-1 if len(values) == 1 else at], name in files) for name, values in parts.items()}
        for at in range(count)
    ]
    body = {"inputs": examples, "options": parse_json(options.encode()), "attention": attention == "true"}
    return requests.check(TaskBody, body)


def _text(name: str, value: str | bytes, is_file: bool) -> str | bytes:
    """Return a part; a text may be uploaded as a file."""
    if is_file or isinstance(value, str):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        message = f"{name[:80]} must be a text in UTF-8, but is not"
        raise ApiError(400, message, param=f"inputs.{name[:80]}", code="invalid_value") from error


def _single(parts: dict[str, list[str | bytes]], name: str, default: str) -> str:
    """Take a part that is not an input."""
    values = parts.pop(name, [default])
    if len(values) != 1 or not isinstance(values[0], str):
        raise ApiError(400, f"{name} must be given once, as text", param=name, code="invalid_value")
    return values[0]
