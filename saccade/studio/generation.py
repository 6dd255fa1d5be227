"""Generation: one line of JSON per token as it is generated, with the attention of its position."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from saccade.core import GeneratedToken, Weights
from saccade.core.serialize import dump_json
from saccade.errors import SaccadeError
from saccade.look.labels import visible
from saccade.model import Model
from saccade.studio.security import STALL
from saccade.studio.work import Slots

AHEAD = 64  # lines that wait for a slow reader
THREAD = "generation"
Line = dict[str, Any] | None  # None: the end


class Generation(StreamingResponse):
    """The lines of one generation, with rows of one attention (the last by default).

    A thread generates ahead of the reader, at most `AHEAD` lines, and ends when the reader leaves or reads nothing for
    `STALL` seconds. While it waits for the reader it computes nothing and holds no lock: others use the model.
    """

    def __init__(
        self, model: Model, inputs: Mapping[str, Any], options: Mapping[str, Any], name: str, slots: Slots
    ) -> None:
        """Take one of the slots, which is given back when the thread ends; called in the event loop."""
        super().__init__(self._sent(), media_type="application/x-ndjson")
        self._model, self._inputs, self._options, self._name = model, inputs, options, name
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
            for number, (token, row) in enumerate(self._tokens()):
                if not number:
                    yield {"prompt": [visible(label) for label in token.prompt]}
                yield {"token": visible(token.token), "text": token.text, "row": row}
        except SaccadeError as error:
            yield {"error": str(error)}
        except Exception as error:
            yield {"error": f"the generation failed: {type(error).__name__}: {error}"}
            raise

    def _tokens(self) -> Iterator[tuple[GeneratedToken, list[float]]]:
        """Yield the tokens with their rows; after the prompt was read, generations compute in turns."""
        tokens = self._model.stream(**self._inputs, **self._options)
        turn: AbstractContextManager[None] = contextlib.nullcontext()
        while True:
            with turn:
                token = next(tokens, None)
                if token is None:
                    return
                row = self._row(token)
            yield token, row
            turn = self._slots.turn()

    def _row(self, token: GeneratedToken) -> list[float]:
        """Return the weights of the newest query, as the mean over heads; none where a model has no attention."""
        weights: Weights | None = token.attention.get(self._name) or next(
            iter(list(token.attention.values())[-1:]), None
        )
        count = 0 if weights is None else weights.shape[1]
        if weights is None or not count:
            return []
        return [round(value, 4) for value in weights.rows(count - 1, count).mean(0)[0].tolist()]
