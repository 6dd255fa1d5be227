"""The OpenAPI 3.1 document, from the request models and from the fields and options that tasks declare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic.json_schema import models_json_schema

from saccade import __version__
from saccade.core.fields import Audio, Field, Graph, Image, Text, Vector, World
from saccade.serve import limits
from saccade.serve.models import ServedModel
from saccade.serve.requests import ChatBody, CompletionBody, EmbeddingsBody
from saccade.serve.tasks import has_attention

Schema = dict[str, Any]
PLAIN: Mapping[str, Schema] = {
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "str": {"type": "string"},
    "null": {"type": "null"},
}
ERROR: Schema = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


def document(models: Mapping[str, ServedModel]) -> Schema:
    """Return the document of a server with some models."""
    bodies = (CompletionBody, ChatBody, EmbeddingsBody)
    _, definitions = models_json_schema(
        [(body, "validation") for body in bodies], ref_template="#/components/schemas/{model}"
    )
    schemas = definitions["$defs"]
    texts = [name for name, model in models.items() if model.generator]
    chats = [name for name, model in models.items() if model.chats]
    vectors = [name for name, model in models.items() if model.encoder]
    for body, names in ((CompletionBody, texts), (ChatBody, chats), (EmbeddingsBody, vectors)):
        schemas[body.__name__]["properties"]["model"]["enum"] = names
    schemas |= {"Error": ERROR}
    paths: Schema = {**_fixed_paths()}
    if texts:
        paths["/v1/completions"] = {"post": _text_operation("CompletionBody", "Continue prompts")}
    if chats:
        paths["/v1/chat/completions"] = {"post": _text_operation("ChatBody", "Answer a conversation")}
    if vectors:
        operation = _operation("Represent texts as vectors", _object("object", "data", "model", "usage"))
        paths["/v1/embeddings"] = {"post": {**operation, "requestBody": _json_body(_ref("EmbeddingsBody"))}}
    for model in models.values():
        paths[model.path] = {"get": _operation(f"Describe {model.name}", _object("model")), "post": _task(model)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Saccade", "version": __version__, "description": "Models served by `saccade serve`."},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}, {}],
    }


def _fixed_paths() -> Schema:
    parameter = {"name": "model", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    listing = _object("object", "data")
    ready = {**_operation("Whether models are loaded", _object("status")), "security": []}
    ready["responses"]["503"] = {**ready["responses"]["200"], "description": "loading or draining"}
    text = {"description": "OK", "content": {"text/plain": {"schema": {"type": "string"}}}}
    return {
        "/health": {"get": {**_operation("Whether the server runs", _object("status")), "security": []}},
        "/ready": {"get": ready},
        "/metrics": {"get": {"summary": "Metrics for Prometheus", "responses": {"200": text, **_errors()}}},
        "/v1/models": {"get": _operation("List the models", listing)},
        "/v1/models/{model}": {"get": {**_operation("Describe a model", _object("id")), "parameters": [parameter]}},
        "/v1/tasks": {"get": _operation("List the inputs and options of all models", listing)},
    }


def _text_operation(body: str, summary: str) -> Schema:
    operation = _operation(summary, _object("id", "object", "created", "model", "choices", "usage"))
    operation["responses"]["200"]["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    return {**operation, "requestBody": _json_body(_ref(body))}


def _task(served: ServedModel) -> Schema:
    """Return the operation of a task; forms repeat a part for each example."""
    model = served.model
    inputs: Schema = {
        "type": "object",
        "additionalProperties": False,
        "required": [field.name for field in model.inputs if not field.optional],
        "properties": {field.name: field_schema(field) for field in model.inputs},
    }
    options = {setting.name: option_schema(setting) for setting in model.options if setting.name != "attention"}
    properties: Schema = {
        "inputs": {
            "oneOf": [inputs, {"type": "array", "items": inputs, "minItems": 1, "maxItems": limits.INPUTS}],
        },
        "options": {"type": "object", "additionalProperties": False, "properties": options},
    }
    if has_attention(model):
        properties["attention"] = {"type": "boolean", "default": False, "description": "return the attention maps"}
    schema = {"type": "object", "required": ["inputs"], "additionalProperties": False, "properties": properties}
    body = _json_body(schema)
    if any(isinstance(field, Image | Audio | Graph | World) for field in model.inputs):
        parts = {field.name: _part_schema(field) for field in model.inputs} | {"options": {"type": "string"}}
        body["content"]["multipart/form-data"] = {"schema": {**inputs, "properties": parts}}
    operation = _operation(model.task.summary, _object("model", "task", "predictions"))
    return {**operation, "requestBody": body, "x-saccade-task": served.task}


def field_schema(field: Field) -> Schema:
    """Return the schema of an input in JSON."""
    note = {"description": field.help} if field.help else {}
    kind: Schema = {"x-saccade-kind": field.kind, **note}
    if isinstance(field, Text):
        return {"type": "string", **({} if field.may_be_empty or field.optional else {"minLength": 1}), **kind}
    if isinstance(field, Image | Audio):
        return {"type": "string", "contentEncoding": "base64", "minLength": 1, **kind}
    if isinstance(field, Vector):
        row: Schema = {"type": "array", "items": {"type": "number"}, "minItems": 1}
        return {**({"type": "array", "items": row, "minItems": 1} if field.sequence else row), **kind}
    return {"type": "object", **kind}


def _part_schema(field: Field) -> Schema:
    if isinstance(field, Image | Audio):
        return {"type": "string", "format": "binary", "x-saccade-kind": field.kind}
    return field_schema(field)


def option_schema(setting: Any) -> Schema:
    """Return the schema of an option from the type that it is documented with."""
    types = setting.type.split(" | ")
    note: Schema = {"default": setting.default, **({"description": setting.help} if setting.help else {})}
    if setting.type.startswith("list of "):
        return {"type": "array", "items": dict(PLAIN.get(setting.type[len("list of ") :], {})), **note}
    if all(name in PLAIN for name in types):
        kinds = [PLAIN[name]["type"] for name in types]
        most = {"maximum": limits.OPTIONS[setting.name]} if setting.name in limits.OPTIONS else {}
        return {"type": kinds[0] if len(kinds) == 1 else kinds, **most, **note}
    return {"enum": [None if name == "null" else name for name in types], **note}


def _operation(summary: str, schema: Schema) -> Schema:
    content = {"application/json": {"schema": schema}}
    return {"summary": summary, "responses": {"200": {"description": "OK", "content": content}, **_errors()}}


def _errors() -> Schema:
    content = {"application/json": {"schema": _ref("Error")}}
    return {status: {"description": "an error", "content": content} for status in ("4XX", "5XX")}


def _object(*names: str) -> Schema:
    return {"type": "object", "required": list(names)}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _json_body(schema: Schema) -> Schema:
    return {"required": True, "content": {"application/json": {"schema": schema}}}
