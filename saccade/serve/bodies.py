"""Bodies: the bytes of a request, bounded in size and time, as strict JSON or as the parts of a form."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from saccade.serve import limits
from saccade.serve.errors import ApiError, busy

TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{},]', re.DOTALL)  # an open string ends with the body: linear time
DEEPER = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}
BEFORE_VALUE = (b"[", b"{", b",")
SURROGATE = re.compile("[\ud800-\udfff]")
LARGE = 1 << 16  # bytes of JSON that are parsed in a thread, and of a form that are parsed at once
JSON, FORM = "application/json", "multipart/form-data"


class Bodies:
    """Reads bodies; all that are held at once have bounded memory."""

    def __init__(self) -> None:
        self.held = 0

    @asynccontextmanager
    async def read(self, request: Request, limit: int) -> AsyncIterator[bytes]:
        """Give the body of a request, which is counted until the request is done with it."""
        _check_headers(request, limit)
        content, counted = bytearray(), 0
        try:
            try:
                async with asyncio.timeout(limits.BODY_SECONDS):
                    async for part in request.stream():
                        content += part
                        if len(content) > limit:
                            raise too_large(limit, f"more than {limit:,}")
                        counted += len(part)
                        self.held += len(part)
                        if self.held > limits.ALL_BODIES:
                            raise busy("the memory for requests is full; try again in 1 s")
            except TimeoutError as error:
                message = f"the body must arrive within {limits.BODY_SECONDS:g} s, but did not; send it faster"
                raise ApiError(408, message, code="timeout") from error
            yield bytes(content)
        finally:
            self.held -= counted


def _check_headers(request: Request, limit: int) -> None:
    encoding, length = request.headers.get("content-encoding", "identity"), request.headers.get("content-length", "0")
    if encoding.lower() not in ("identity", ""):
        raise ApiError(415, f"content-encoding must be identity, but is {encoding[:40]!r}; send the body as it is")
    if not length.isascii() or not length.isdecimal():
        raise ApiError(400, f"content-length must be a whole number, but is {length[:40]!r}")
    if len(length) > 15 or int(length) > limit:
        raise too_large(limit, f"{length[:20]}")


def too_large(limit: int, size: str) -> ApiError:
    """Return the refusal of a body."""
    return ApiError(413, f"a body must have at most {limit:,} bytes, but has {size}; send less", code="body_too_large")


def media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def parse_object(request: Request, body: bytes) -> dict[str, Any]:
    """Return the JSON object of a body."""
    if media_type(request) != JSON:
        shown = request.headers.get("content-type", "")[:80]
        raise ApiError(415, f"content-type must be {JSON}, but is {shown!r}", code="unsupported_media_type")
    value = await run_in_threadpool(parse_json, body) if len(body) > LARGE else parse_json(body)
    if not isinstance(value, dict):
        raise _not_json(f"it must be an object, but is {type(value).__name__}")
    return value


def parse_json(body: bytes) -> Any:
    """Return strict JSON: UTF-8, finite numbers of 64 bits, no repeated keys, no lone surrogates, bounded size."""
    depth, values = 0, 1  # a value follows every bracket that opens and every comma
    for match in TOKEN.finditer(body):
        depth += DEEPER.get(match[0], 0)
        values += match[0] in BEFORE_VALUE
        if depth > limits.DEPTH:
            raise _not_json(f"it may be nested {limits.DEPTH} deep, but is deeper")
        if values > limits.VALUES:
            raise _not_json(f"it may have {limits.VALUES:,} values, but has more; send less")
    try:
        text = body.decode()
        value = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_constant, parse_float=_finite, parse_int=_whole
        )
    except (ValueError, RecursionError) as error:
        raise _not_json(str(error)[:200]) from error
    if "\\u" in text:
        surrogate = next(filter(None, map(SURROGATE.search, _strings(value))), None)
        if surrogate is not None:
            raise _not_json(f"a text has the lone surrogate U+{ord(surrogate[0]):04X}; remove it")
    return value


def _not_json(reason: str) -> ApiError:
    return ApiError(400, f"the body must be valid JSON: {reason}", code="invalid_json")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"the key {name[:80]!r} is there twice")
            seen.add(name)
    return entries


def _constant(name: str) -> float:
    raise ValueError(f"JSON has no {name}")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:40]} is too large")
    return value


def _whole(text: str) -> int:
    if len(text) > 20 or not -(1 << 63) <= int(text) < 1 << 63:
        raise ValueError(f"the number {text[:40]} does not fit 64 bits")
    return int(text)


def _strings(value: Any) -> Iterator[str]:
    """Yield every text of JSON, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield key
            yield from _strings(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from _strings(entry)


@dataclass(frozen=True)
class Form:
    """The parts of a multipart form by name: uploaded files as bytes, others as text."""

    parts: dict[str, list[str | bytes]]


async def parse_form(request: Request, body: bytes) -> Form:
    """Return the parts of a multipart form."""

    async def stream() -> AsyncGenerator[bytes, None]:
        for start in range(0, len(body), LARGE):
            yield body[start : start + LARGE]
            await asyncio.sleep(0)  # others go on

    parser = MultiPartParser(
        request.headers,
        stream(),
        max_files=limits.PARTS,
        max_fields=limits.PARTS,
        max_part_size=limits.TASK_BODY,
    )
    try:
        form = await parser.parse()
    except (MultiPartException, ValueError, LookupError, AssertionError) as error:
        reason = str(getattr(error, "message", error))[:200]
        raise ApiError(400, f"the body must be a valid multipart form: {reason}", code="invalid_form") from error
    parts: dict[str, list[str | bytes]] = {}
    try:
        for name, value in form.multi_items():
            content = await value.read() if isinstance(value, UploadFile) else value
            if isinstance(content, str) and SURROGATE.search(content):
                raise ApiError(400, f"{name[:80]} must be valid Unicode, but is not", code="invalid_form")
            parts.setdefault(name, []).append(content)
    finally:
        await form.close()
    return Form(parts)
