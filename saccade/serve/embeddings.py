"""Embeddings endpoint: /v1/embeddings, vectors of texts from a model with an encoder."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from saccade.look import features
from saccade.serve import limits, models, requests
from saccade.serve.bodies import parse_object
from saccade.serve.errors import ApiError, large_response
from saccade.serve.requests import EmbeddingsBody
from saccade.serve.state import State
from saccade.serve.streaming import until_disconnect


async def embeddings(state: State, request: Request) -> Response:
    """Return the vectors of some texts."""
    async with state.bodies.read(request, limits.TEXT_BODY) as content:
        body = requests.check(EmbeddingsBody, await parse_object(request, content))
    served = models.find(state.models, body.model)
    if served.encoder is None:
        message = f"'{served.name}' gives no vectors; it is a model for {served.task}: use {served.path}"
        raise ApiError(400, message, param="model", code="unsupported_model")
    texts, encoder = _texts(body), served.encoder
    with served.worker.place():
        work = served.worker.run(lambda items: _vectors(encoder, items), texts, "vectors")
        vectors = await until_disconnect(request, work)
    size = len(vectors[0][1])
    if body.dimensions not in (None, size):
        message = f"dimensions must be {size}, the size of the model's vectors, but is {body.dimensions}"
        raise ApiError(400, message, param="dimensions", code="unsupported_parameter")
    state.metrics.count("saccade_prompt_tokens_total", sum(count for count, _ in vectors), model=served.name)
    return await large_response(lambda: _to_json(served.name, vectors, body.encoding_format))


def _to_json(model: str, vectors: Sequence[tuple[int, list[float]]], format: str | None) -> dict[str, Any]:
    data = [
        {"object": "embedding", "index": index, "embedding": _encoded(vector, format)}
        for index, (_, vector) in enumerate(vectors)
    ]
    tokens = sum(count for count, _ in vectors)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": model, "usage": usage}


def _texts(body: EmbeddingsBody) -> list[str]:
    texts: list[Any] = [body.input] if isinstance(body.input, str) else body.input
    if not all(isinstance(text, str) for text in texts):
        message = "input must be a text or a list of texts, but has tokens; send the texts"
        raise ApiError(400, message, param="input", code="unsupported_parameter")
    if len(texts) > limits.INPUTS:
        message = f"input must have at most {limits.INPUTS} texts, but has {len(texts):,}; send several requests"
        raise ApiError(400, message, param="input", code="invalid_value")
    empty = next((at for at, text in enumerate(texts) if not text.strip()), None)
    if empty is not None:
        message = f"input must hold text, but text {empty} is {texts[empty][:20]!r}; write something in it"
        raise ApiError(400, message, param="input", code="invalid_value")
    return texts


def _vectors(encoder: Any, texts: Sequence[str]) -> Iterator[tuple[int, list[float]]]:
    """Yield the number of tokens and the vector of each text; one that would be truncated is refused."""
    for entry in features.vectors(encoder, texts):
        if entry.notes:
            raise ApiError(400, f"{entry.notes[0]}; shorten it", param="input", code="context_length_exceeded")
        yield len(entry.tokens), entry.values.float().tolist()


def _encoded(vector: Sequence[float], format: str | None) -> list[float] | str:
    """Return a vector as numbers, or as base64 of float32, little-endian."""
    if format != "base64":
        return list(vector)
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
