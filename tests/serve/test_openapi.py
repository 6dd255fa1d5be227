"""The OpenAPI document, and requests that schemathesis generates from it."""

import pytest

from saccade.core.fields import Audio, Graph, Image, Text, Vector
from saccade.serve.openapi import field_schema
from tests.serve.generated import send_generated

EXAMPLES = 6  # of each operation, valid and invalid


@pytest.fixture(scope="module")
def document(live):
    return live.client.get("/openapi.json").json()


def test_every_model_has_its_task(document):
    assert document["openapi"] == "3.1.0"
    schema = document["paths"]["/v1/tasks/translation"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    properties = schema["properties"]
    assert properties["inputs"]["oneOf"][0]["required"] == ["source"]
    assert properties["options"]["properties"]["beam"]["type"] == "integer"
    assert (
        "multipart/form-data" in document["paths"]["/v1/tasks/image_classification"]["post"]["requestBody"]["content"]
    )


def test_the_models_of_each_endpoint_are_listed(document):
    schemas = document["components"]["schemas"]
    assert schemas["CompletionBody"]["properties"]["model"]["enum"] == ["prose", "chat", "translation"]
    assert schemas["ChatBody"]["properties"]["model"]["enum"] == ["chat"]
    assert schemas["EmbeddingsBody"]["properties"]["model"]["enum"] == ["sentence_vectors"]
    assert schemas["CompletionBody"]["properties"]["temperature"]["anyOf"][0] == {
        "maximum": 2,
        "minimum": 0,
        "type": "number",
    }
    assert schemas["CompletionBody"]["additionalProperties"] is False


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (Text("a"), {"type": "string", "minLength": 1}),
        (Text("a", may_be_empty=True), {"type": "string"}),
        (Image("a"), {"type": "string", "contentEncoding": "base64", "minLength": 1}),
        (Audio("a"), {"type": "string", "contentEncoding": "base64", "minLength": 1}),
        (Graph("a"), {"type": "object"}),
        (Vector("a"), {"type": "array", "items": {"type": "number"}, "minItems": 1}),
    ],
)
def test_the_schema_of_a_field(field, expected):
    assert field_schema(field) == {**expected, "x-saccade-kind": field.kind}


def test_generated_requests_are_answered_as_declared(live, document):
    assert send_generated(live.address, live.headers, document, EXAMPLES) > 10 * EXAMPLES
