"""Streaming: the events of a generation as they come, whole or as server-sent events, until the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from saccade.core.generation import TextRequest
from saccade.core.serialize import dump_json
from saccade.serve.errors import ApiError
from saccade.serve.formats import TextFormat
from saccade.serve.generator import Generation, Generator, Item
from saccade.serve.metrics import Metrics
from saccade.serve.texts import Choice, Piece

KEEP_ALIVE = 15.0  # seconds without an event after which a comment is sent
T = TypeVar("T")


class TextJob:
    """The choices of one HTTP request, from its submission to its end."""

    def __init__(self, texts: Sequence[TextRequest], format: TextFormat, prompt_tokens: int) -> None:
        self.texts, self.format, self.prompt_tokens = texts, format, prompt_tokens
        self.choices = [Choice() for _ in texts]

    def start(self, generator: Generator, metrics: Metrics, model: str) -> None:
        """Submit the requests, whose places are reserved."""
        self._generator, self._metrics, self._model = generator, metrics, model
        self._generation: Generation = generator.submit(self.texts)

    async def accepted(self) -> None:
        """Wait until the engine has the requests, or refuses them."""
        await asyncio.shield(self._generation.accepted)

    async def finish(self) -> None:
        """Collect all events."""
        async for _ in self.pieces():
            pass

    async def pieces(self) -> AsyncIterator[list[tuple[int, Piece]]]:
        """Yield what new events add to the choices; nothing for a while: an empty list."""
        items = self._generation.items
        while not all(choice.finish for choice in self.choices):
            try:
                async with asyncio.timeout(KEEP_ALIVE):
                    ready = [await items.get()]
            except TimeoutError:
                yield []
                continue
            while not items.empty():
                ready.append(items.get_nowait())
            yield [self._piece(item) for item in ready]

    def usage(self) -> dict[str, int]:
        generated = sum(choice.generated for choice in self.choices)
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": generated,
            "total_tokens": self.prompt_tokens + generated,
        }

    def close(self) -> None:
        """End the generation and count it; called in any case."""
        if self._generation.closed:
            return
        labels = {"model": self._model}
        if self._generator.close(self._generation):
            self._metrics.count("saccade_cancelled_total", 1, **labels)
        usage = self.usage()
        self._metrics.count("saccade_prompt_tokens_total", usage["prompt_tokens"], **labels)
        self._metrics.count("saccade_completion_tokens_total", usage["completion_tokens"], **labels)
        if self._generation.first is not None:
            seconds = self._generation.first - self._generation.started
            self._metrics.observe("saccade_first_token_seconds", seconds, **labels)

    def _piece(self, item: Item) -> tuple[int, Piece]:
        if isinstance(item, ApiError):
            raise item
        index, event = item
        return index, self.choices[index].feed(event, scored=self.format.scored)


class EventStream(Response):
    """Server-sent events: a chunk for each token, the usage if requested, and [DONE]."""

    media_type = "text/event-stream"

    def __init__(self, job: TextJob, *, include_usage: bool) -> None:
        super().__init__(headers={"x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._job, self._include_usage = job, include_usage

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await until_disconnect(Request(scope, receive), self._send(send))
        except ClientDisconnect:
            return  # nobody is left to be told
        finally:
            self._job.close()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for content in self._events():
            if content:
                await send({"type": "http.response.body", "body": content, "more_body": True})
        self._job.close()  # before the client knows of the end
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})

    async def _events(self) -> AsyncIterator[bytes]:
        format = self._job.format
        begins = [format.first(index) for index in range(len(self._job.choices))]
        yield b"".join(self._event(chunk) for chunk in begins if chunk is not None)
        try:
            async for pieces in self._job.pieces():
                shown = (self._event(format.chunk(index, piece)) for index, piece in pieces if _has_content(piece))
                yield b"".join(shown) if pieces else b": waiting\n\n"
        except ApiError as error:  # the status is sent already
            yield _encode(error.to_json())
            return
        if self._include_usage:
            yield _encode(format.usage_chunk(self._job.usage()))

    def _event(self, chunk: dict[str, Any]) -> bytes:
        return _encode({**chunk, "usage": None} if self._include_usage else chunk)


def _has_content(piece: Piece) -> bool:
    return bool(piece.text or piece.tokens or piece.finish)


def _encode(value: Any) -> bytes:
    return f"data: {dump_json(value)}\n\n".encode()


async def until_disconnect(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of some work; when the client leaves, the work is cancelled."""

    async def leave() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    tasks: tuple[asyncio.Task[T], asyncio.Task[None]] = (asyncio.create_task(work), asyncio.create_task(leave()))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            raise ClientDisconnect
        return tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
