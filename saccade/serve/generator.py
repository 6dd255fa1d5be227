"""Generator: one thread that drives the engine of a language model; requests and events cross over queues."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from saccade.core.generation import NOT_FINITE, TextEngine, TextEvent, TextRequest
from saccade.errors import ModelFileError, SaccadeError
from saccade.serve.errors import ApiError, busy, failure

DEAD = "the engine of this model has failed; the log of the server says why, and a restart is needed"
LONGEST_RETRY = 30  # seconds that a refused client is asked to wait
SMOOTHING = 0.1  # of the mean duration: the weight of the newest
log = logging.getLogger("saccade.serve")
Item = tuple[int, TextEvent] | ApiError
"""an event with the index of its text among those of the request, or why all of them ended"""


@dataclass(eq=False)
class Generation:
    """The texts of one HTTP request that are generated; belongs to the event loop."""

    requests: Sequence[TextRequest]
    accepted: asyncio.Future[None]
    """fails if the engine refuses one of the requests"""
    started: float = field(default_factory=time.monotonic)
    first: float | None = None
    """when the first token came"""
    items: asyncio.Queue[Item] = field(default_factory=asyncio.Queue)
    unfinished: int = 0
    closed: bool = False


Command = Callable[[Generation], None]


class Generator:
    """Generates for at most `engine.rows` requests at once, and lets `waiting` more wait.

    A place is taken before a prompt is encoded and is free again when the engine has ended the text, so that neither
    memory nor time is spent on requests for which there is no place.
    """

    def __init__(self, engine: TextEngine, waiting: int) -> None:
        self.engine, self.capacity = engine, engine.rows + waiting
        self.taken = 0
        self.live = 0
        """requests of the engine, as its thread last counted them"""
        self._seconds = 1.0  # mean duration of a text
        self._commands: queue.SimpleQueue[tuple[Command, Generation] | None] = queue.SimpleQueue()
        self._open: set[Generation] = set()  # that the engine has not ended; belongs to the event loop
        self._dead = False  # the thread has ended by an error, as far as the event loop knows
        self._live: dict[int, tuple[Generation, int]] = {}  # by number; belongs to the thread
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    @property
    def rows_in_use(self) -> int:
        return min(self.live, self.engine.rows)

    @property
    def waiting(self) -> int:
        return max(0, self.taken - self.rows_in_use)

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    # In the event loop

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        self._commands.put(None)

    def reserve(self, count: int) -> None:
        """Take places for some texts, or refuse the request."""
        if self._dead:
            raise ApiError(503, DEAD, code="engine_failed")
        if count > self.capacity:
            rule = f"a request must have at most {self.capacity} texts, which is all that this server holds at once"
            raise ApiError(400, f"{rule}, but has {count}; send several requests", param="n", code="invalid_value")
        if self.taken + count > self.capacity:
            seconds = min(LONGEST_RETRY, max(1, math.ceil(self._seconds / self.engine.rows)))
            message = f"{self.engine.rows} texts are generated and {self.capacity - self.engine.rows} can wait"
            raise busy(f"{message}, and all places are taken; try again in {seconds} s", seconds)
        self.taken += count

    def release(self, count: int) -> None:
        self.taken -= count

    def submit(self, requests: Sequence[TextRequest]) -> Generation:
        """Send requests, whose places are reserved, to the engine."""
        generation = Generation(requests, self._loop.create_future(), unfinished=len(requests))
        self._open.add(generation)
        self._commands.put((self._add, generation))
        if self._dead:  # since the places were reserved
            self._end_all()
        return generation

    def close(self, generation: Generation) -> bool:
        """End a generation; returns whether texts of it were unfinished, and are cancelled before the next step."""
        if generation.closed:
            return False
        generation.closed = True
        if generation.unfinished:
            self._commands.put((self._remove, generation))
        return generation.unfinished > 0

    def _deliver(self, events: Sequence[tuple[Generation, int, TextEvent]]) -> None:
        now = time.monotonic()
        for generation, index, event in events:
            if event.finish:
                self._free(generation, 1)
                self._seconds += SMOOTHING * (now - generation.started - self._seconds)
            if generation.first is None:
                generation.first = now
            if not generation.closed:
                generation.items.put_nowait((index, event))

    def _accepted(self, generation: Generation) -> None:
        if not generation.accepted.done():
            generation.accepted.set_result(None)

    def _fail(self, generation: Generation, error: ApiError, ended: int) -> None:
        self._free(generation, ended)
        if not generation.accepted.done():
            generation.accepted.set_exception(error)
            generation.accepted.exception()  # may be awaited by nobody: the client left
        generation.items.put_nowait(error)

    def _free(self, generation: Generation, ended: int) -> None:
        """Free the places of texts that the engine has ended; those of a generation are freed once."""
        ended = min(ended, generation.unfinished)
        generation.unfinished -= ended
        self.taken -= ended
        if not generation.unfinished:
            self._open.discard(generation)

    def _end_all(self) -> None:
        """End all requests, and refuse others: nobody generates."""
        self._dead = True
        for generation in list(self._open):
            self._fail(generation, failure(), generation.unfinished)

    # In the thread of the engine

    def _post(self, function: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(function, *arguments)

    def _run(self) -> None:
        try:
            while self._advance():
                pass
        except BaseException:  # also the requests that it cannot remove must end
            log.exception("the thread of the engine has ended by an error; restart the server")
            self.live = 0
            self._post(self._end_all)

    def _advance(self) -> bool:
        """Run the commands that have come, and generate; false: the end."""
        try:
            if not self._obey():
                return False
            self._hand_over(self.engine.step())
        except SaccadeError as error:
            self._fail_all(ApiError.of(error))
        except Exception:
            log.exception("the engine failed; all of its requests end")
            self._fail_all(failure())
        return True

    def _obey(self) -> bool:
        """Run the commands that have come, or wait for one while there is nothing to generate; false: the end."""
        while True:
            self.live = len(self.engine)
            try:
                command = self._commands.get(block=not self.live)
            except queue.Empty:
                return True
            if command is None:
                return False
            function, generation = command
            try:
                function(generation)
            except BaseException:  # the engine may have it or not: it ends in any case
                self._post(self._fail, generation, failure(), len(generation.requests))
                raise

    def _hand_over(self, events: Sequence[TextEvent]) -> None:
        posted: list[tuple[Generation, int, TextEvent]] = []
        failed: dict[Generation, int] = {}  # texts of each that ended with an error
        for event in events:
            if event.number not in self._live:
                continue
            generation, index = self._live[event.number]
            if event.finish:
                del self._live[event.number]
            if event.finish == "error":
                failed[generation] = failed.get(generation, 0) + 1
            else:
                posted.append((generation, index, event))
        if posted:
            self._post(self._deliver, posted)
        for generation, count in failed.items():
            ended = count + self._cancel(generation)
            self._post(self._fail, generation, ApiError.of(ModelFileError(NOT_FINITE)), ended)

    def _add(self, generation: Generation) -> None:
        if generation.closed:
            self._post(self._free, generation, len(generation.requests))
            return
        numbers: list[int] = []
        try:
            for request in generation.requests:
                self.engine.check(request)
            for request in generation.requests:
                numbers.append(self.engine.add(request))  # noqa: PERF401 - those before one that fails are removed
        except Exception as error:
            for number in numbers:
                self.engine.remove(number)
            if not isinstance(error, SaccadeError):
                log.exception("the engine failed to add a request")
            reason = ApiError.of(error) if isinstance(error, SaccadeError) else failure()
            self._post(self._fail, generation, reason, len(generation.requests))
            return
        self._live |= {number: (generation, index) for index, number in enumerate(numbers)}
        self._post(self._accepted, generation)

    def _remove(self, generation: Generation) -> None:
        self._post(self._free, generation, self._cancel(generation))

    def _cancel(self, generation: Generation) -> int:
        """Take the texts of a generation out of the engine; returns how many it had."""
        numbers = [number for number, (owner, _) in self._live.items() if owner is generation]
        for number in numbers:
            self.engine.remove(number)
            del self._live[number]
        return len(numbers)

    def _fail_all(self, error: ApiError) -> None:
        for generation in dict.fromkeys(owner for owner, _ in self._live.values()):
            self._post(self._fail, generation, error, self._cancel(generation))
