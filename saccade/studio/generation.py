"""Generation: one line of JSON per token as it is generated, and the addresses of the Generate page."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from saccade.core.serialize import dump_json
from saccade.errors import SaccadeError, UsageError
from saccade.studio.continuations import Continuation
from saccade.studio.forms import checked_form, parsed_options, read_form, read_json
from saccade.studio.pages import JsonResponse
from saccade.studio.security import STALL
from saccade.studio.sessions import RecentlyUsed, Sessions
from saccade.studio.work import Slots

AHEAD = 64  # lines that wait for a slow reader
MEMORY = 256 << 20  # bytes of the continuations that stay open
THREAD = "generation"
STREAMING = ("language_model", "translation", "summarisation", "captioning", "reading", "speech_recognition")
Line = dict[str, Any] | None  # None: the end


class Generation(StreamingResponse):
    """The lines of one continuation.

    A thread generates ahead of the reader, at most `AHEAD` lines, and ends when the reader leaves or reads nothing for
    `STALL` seconds. While it waits for the reader it computes nothing and holds no lock: others use the model.
    """

    def __init__(self, continuation: Continuation, slots: Slots) -> None:
        """Take one of the slots, which is given back when the thread ends; called in the event loop."""
        super().__init__(self._sent(), media_type="application/x-ndjson")
        self._continuation = continuation
        self._room, self._closed = threading.Semaphore(AHEAD), threading.Event()
        self._lines, self._loop, self._slots = asyncio.Queue[Line](), asyncio.get_running_loop(), slots
        slots.take()
        # One thread from the first token to the last: the recorder of attention belongs to one context.
        threading.Thread(target=self._work, name=THREAD, daemon=True).start()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._closed.set()
            self._continuation.stop()
            self._room.release()  # wakes the thread, which sees that nobody reads

    async def _sent(self) -> AsyncIterator[bytes]:
        while (line := await self._lines.get()) is not None:
            yield dump_json(line).encode() + b"\n"
            self._room.release()

    def _work(self) -> None:
        try:
            for line in self._generated():
                self._put(line)
                if not self._room.acquire(timeout=STALL) or self._closed.is_set():
                    break
        finally:
            self._put(None)
            self._slots.give_back()

    def _put(self, line: Line) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop has ended, and with it the reader
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)

    def _generated(self) -> Iterator[dict[str, Any]]:
        """Yield the lines; an error is the last of them."""
        try:
            yield from self._continuation.lines(self._slots)
        except SaccadeError as error:
            yield {"error": str(error)}
        except Exception as error:
            yield {"error": f"the generation failed: {type(error).__name__}: {error}"}
            raise


@dataclass(frozen=True)
class Branch:
    """Where a continuation begins: after some tokens of another one, and a token that the user chose."""

    parent: str
    keep: int
    token: int | None

    @classmethod
    def of(cls, body: dict[str, Any]) -> Branch | None:
        """Return the branch that a request asks for; None: it begins with the prompt."""
        if "parent" not in body:
            return None
        parent, token = body["parent"], body.get("token")
        if not isinstance(parent, str):
            raise UsageError("parent must be the id of a continuation")
        return cls(parent, whole(body, "keep"), None if token is None else whole(body, "token"))


def whole(body: dict[str, Any], name: str, least: int = 0) -> int:
    """Return a whole number of a request."""
    value = body.get(name, least)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 1 << 31:
        raise UsageError(f"{name} must be a whole number of at least {least}, but is {str(value)[:40]}")
    return value


class Generations:
    """The continuations that are open, and their addresses."""

    def __init__(self, sessions: Sessions, computations: Slots) -> None:
        self.sessions, self.computations, self.slots = sessions, computations, Slots()
        self.continuations = RecentlyUsed[Continuation](MEMORY, lambda continuation: continuation.nbytes)

    def routes(self) -> list[Route]:
        return [
            Route("/api/generate", self.generate, methods=["POST"]),
            Route("/api/generations/{id}", self.steer, methods=["POST"]),
            Route("/api/generations/{id}/rows", self.rows, methods=["POST"]),
            Route("/api/generations/{id}/distribution", self.distribution, methods=["POST"]),
        ]

    def names(self) -> list[str]:
        """Return the names of the models; of runs of built-in tasks those that generate token by token."""
        silent = self.sessions.run_names(lambda task: "." not in task and task not in STREAMING)
        return [name for name in self.sessions.names() if name not in silent]

    async def generate(self, request: Request) -> Response:
        """Generate an output, and answer with its lines."""
        form, body = await read_form(request), await read_json(request)
        branch, head = Branch.of(body), whole(body, "head", -1)

        def open_continuation() -> Continuation:
            model = self.sessions.model(form.model)
            inputs, options = checked_form(model, form)
            steps = [] if branch is None else self._continuation(branch.parent).branch(branch.keep, branch.token)
            continuation = Continuation(form.model, model, inputs, options, steps)
            continuation.show(form.attention, head)
            return self.continuations.put(continuation.id, continuation)

        return Generation(await self.computations.run(open_continuation), self.slots)

    async def steer(self, request: Request) -> Response:
        """Stop a continuation, or choose its options or the map whose rows come with its tokens."""
        body = await read_json(request)
        continuation = self._continuation(request.path_params["id"])
        if body.get("stop"):
            continuation.stop()
        if "map" in body:
            continuation.show(str(body["map"]), whole(body, "head", -1))
        if "options" in body:
            await run_in_threadpool(lambda: continuation.set_options(self._options(continuation, body)))
        return JsonResponse({"tokens": len(continuation.steps)})

    async def rows(self, request: Request) -> Response:
        """Return rows of a map that are computed already."""
        body = await read_json(request)
        name, head, first, last = (
            str(body.get("map")),
            whole(body, "head", -1),
            whole(body, "first"),
            whole(body, "last"),
        )
        continuation = self._continuation(request.path_params["id"])
        return JsonResponse(await run_in_threadpool(lambda: continuation.rows(name, head, first, last)))

    async def distribution(self, request: Request) -> Response:
        """Return the next-token probabilities of a step as some options shape them."""
        body = await read_json(request)
        continuation, number = self._continuation(request.path_params["id"]), whole(body, "step")
        return JsonResponse(
            await run_in_threadpool(lambda: continuation.distribution(number, self._options(continuation, body)))
        )

    def _continuation(self, id: str) -> Continuation:
        continuation = self.continuations.get(id)
        if continuation is None:
            raise UsageError("this continuation is no longer in the memory of the studio; generate it again")
        return continuation

    @staticmethod
    def _options(continuation: Continuation, body: dict[str, Any]) -> dict[str, Any]:
        options = body.get("options", {})
        if not isinstance(options, dict):
            raise UsageError("options must be an object")
        return parsed_options(continuation.model, options)
